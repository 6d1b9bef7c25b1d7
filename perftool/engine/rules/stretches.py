"""Finds which line of the user's code each host thread runs, over time, from recorded functions and call stacks."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from perftool.model.own_code import (
    INSTALLED_KEY,
    Line,
    files_of,
    innermost,
    is_installed,
    is_library,
    is_own,
    package_of,
)
from perftool.store.trace_store import TraceStore

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

# If a call runs another function more often than this, that function is a loop body, and the line of the loop is
# reported.
_LOOP = 16
_CALLED = """
FROM frames AS f JOIN feeding_tracks AS t ON t.track = f.track WHERE f.rank = $rank AND f."end" > f.ts
"""
# There are many calls but few distinct callees.
_KINDS = f"SELECT DISTINCT f.file, f.line, f.function, f.stack {_CALLED} ORDER BY ALL"
_CALLS = f"""
WITH kinds AS (
    SELECT unnest($files::VARCHAR[]) AS file, unnest($lines::INTEGER[]) AS line,
           unnest($functions::VARCHAR[]) AS function, unnest($stacks::VARCHAR[]) AS stack,
           unnest(range(len($files)))::INTEGER AS kind
),
calls AS (SELECT f.* {_CALLED})
SELECT c.track, c.ts, c."end", k.kind, c.call_line
FROM calls AS c LEFT JOIN kinds AS k
    ON k.function = c.function AND k.file IS NOT DISTINCT FROM c.file AND k.line IS NOT DISTINCT FROM c.line
    AND k.stack IS NOT DISTINCT FROM c.stack
WHERE k.kind IS NOT NULL OR c.call_line IS NOT NULL
ORDER BY c.track, c.ts, c."end" DESC, c.id
"""

# Only on a CPU does the time of a function include the work.
_WINDOW_ON_CPU = """
SELECT host_ts, host_end FROM windows WHERE rank = $rank AND rank IN (SELECT rank FROM launches WHERE own_work)
"""
# Python's names for a comprehension or a lambda: part of the function around it.
_PART_OF_FUNCTION = re.compile(r"<(?!module>).+>")

# A call: start, end, its line of the user's code (None if not the user's), and the user's line that made it.
Call = tuple[int, int, Line | None, int | None]
# The callee in frames: file, line, function and stack.
_Kind = tuple[str | None, int | None, str, str | None]

_NOWHERE: Line = (None, None, "")
# Functions that only wait for the next batch or message, in any library.
_WAITING = "SELECT DISTINCT name FROM roles WHERE cat = 'python_function' AND role = 'queue_wait'"
_NUMBER = re.compile(r"\(\d+\): ")


@dataclass(frozen=True)
class Track:
    """Stretches of a host thread in time order, as arrays: from ``begins`` to ``ends``, in ns.

    ``lines`` holds the number of the running line, ``loops`` the number of the line with the enclosing loop.
    """

    begins: Int64s
    ends: Int64s
    lines: Int64s
    loops: Int64s


@dataclass
class FunctionTime:
    """A function of the user at one place in the hierarchy of the user's calls: its time inside the rank's window, in
    ns, callees included, the number of its calls, and the user's functions that it calls, by line.
    """

    line: Line
    ns: int = 0
    calls: int = 0
    inner: dict[Line, FunctionTime] = field(default_factory=dict)


@dataclass(frozen=True)
class FeedingLines:
    """The lines that ran on the threads that feed the device of a rank; ``lines`` holds all lines, by number.

    ``outermost`` contains the user's outermost functions on the thread that runs them longest; it is empty if the rank
    does not run on the CPU.
    """

    lines: tuple[Line, ...]
    tracks: tuple[Track, ...]
    outermost: tuple[FunctionTime, ...] = ()


_numbering = Lock()
_known: WeakKeyDictionary[TraceStore, dict[int, FeedingLines]] = WeakKeyDictionary()


def lines_run(store: TraceStore, rank: int) -> FeedingLines:
    """The lines that the feeding threads of ``rank`` ran, computed once per store."""
    with _numbering:
        known = _known.setdefault(store, {})
        if rank not in known:
            store.build(["frames", "feeding_tracks", "roles", "windows", "launches"])
            tracks = list(_calls(store, rank).values())
            windows = store.select(_WINDOW_ON_CPU, {"rank": rank})
            by_track = [_functions(calls, one["host_ts"], one["host_end"]) for one in windows for calls in tracks]
            longest = max(by_track, key=lambda functions: sum(one.ns for one in functions), default=())
            known[rank] = replace(_numbered([_nested(calls) for calls in tracks]), outermost=longest)
        return known[rank]


def _calls(store: TraceStore, rank: int) -> dict[int, list[Call]]:
    """The calls of each track to or from a line of the user's code, sorted by nesting."""
    kinds: list[_Kind] = [
        (file, line, name, stack) for file, line, name, stack in store.iterate(_KINDS, {"rank": rank})
    ]
    waiting = {_NUMBER.sub(": ", row["name"], count=1) for row in store.select(_WAITING)}
    installed = _installed(store, rank, kinds)
    lines = [
        _NOWHERE if _waits(kind, waiting) else line for kind, line in zip(kinds, _lines(kinds, installed), strict=True)
    ]
    own = [(kind, line) for kind, line in zip(kinds, lines, strict=True) if line is not None]
    named = ("files", "lines", "functions", "stacks")
    values = {name: [kind[at] for kind, _ in own] for at, name in enumerate(named)}
    by_track: dict[int, list[Call]] = {}
    for track, ts, end, kind, call_line in store.iterate(_CALLS, {"rank": rank, **values}):
        by_track.setdefault(track, []).append((ts, end, None if kind is None else own[kind][1], call_line))
    return by_track


def _waits(kind: _Kind, waiting: Collection[str]) -> bool:
    """Whether the function ``kind``, the user's or a library's, is one of ``waiting``."""
    file, _, function, stack = kind
    return stack is None and file is not None and f"{file}: {function}" in waiting and is_own(file)


def _installed(store: TraceStore, rank: int, kinds: Iterable[_Kind]) -> set[str]:
    """The installed packages of ``rank``, as its trace lists them. If it has no list: those that are also installed
    here, and well-known libraries. Code in the current folder is the user's.
    """
    listed = store.metadata.get(rank, {}).get(INSTALLED_KEY)
    if isinstance(listed, list):
        return {name for name in listed if isinstance(name, str)}
    folders = ["", *(folder for folder in sys.path if isinstance(folder, str))]
    named = {file for file, *_, stack in kinds if file is not None and stack is None}
    named |= {file for *_, stack in kinds if stack is not None for file in files_of(stack)}
    own = {file for file in named if is_own(file)}
    return {package_of(file) for file in own if is_library(file) or is_installed(file, folders)}


def _lines(kinds: Sequence[_Kind], installed: Collection[str]) -> list[Line | None]:
    """The line of the user's code for each kind of call. If no kind has such a line, the line of a library's code; if
    there is none either, the module.
    """
    for packages in (installed, ()) if installed else ((),):
        lines = [_line(kind, packages) for kind in kinds]
        if any(line is not None for line in lines):
            return lines
    return [(None, None, function) if function.startswith("nn.Module: ") else None for _, _, function, _ in kinds]


def _line(kind: _Kind, installed: Collection[str]) -> Line | None:
    file, line, function, stack = kind
    if stack is not None:
        return innermost(stack, installed)
    return (file, line, function) if file is not None and is_own(file, installed) else None


# A stretch: start, end, the running line, and the line with the enclosing loop.
_Stretch = tuple[int, int, Line, Line]


def _numbered(tracks: Sequence[Sequence[_Stretch]]) -> FeedingLines:
    import numpy as np

    numbers: dict[Line, int] = {}
    arrays = []
    for stretches in tracks:
        rows = [
            (ts, end, numbers.setdefault(line, len(numbers)), numbers.setdefault(loop, len(numbers)))
            for ts, end, line, loop in stretches
        ]
        arrays.append(Track(*np.array(rows, dtype=np.int64).reshape(-1, 4).T.copy()))
    return FeedingLines(tuple(numbers), tuple(arrays))


def _is_function(line: Line) -> bool:
    """Whether ``line`` is a function in a file."""
    return line[0] is not None and not _PART_OF_FUNCTION.fullmatch(line[2])


def _functions(calls: Sequence[Call], begin: int, finish: int) -> tuple[FunctionTime, ...]:
    """The user's outermost functions in the sorted ``calls``, with their time between ``begin`` and ``finish``."""
    root = FunctionTime(_NOWHERE)
    around: list[tuple[int, FunctionTime]] = []
    functions_in_files = {line for _, _, line, _ in calls if line and _is_function(line)}
    for ts, end, line, _ in calls:
        if line not in functions_in_files or end <= begin or ts >= finish:
            continue
        while around and around[-1][0] <= ts:
            around.pop()
        parent = around[-1][1] if around else root
        if parent.line == line:
            continue
        function = parent.inner.setdefault(line, FunctionTime(line))
        function.ns += min(end, finish) - max(ts, begin)
        function.calls += 1
        around.append((end, function))
    return tuple(root.inner.values())


def _nested(calls: Sequence[Call]) -> list[_Stretch]:
    """The stretches in which a call of the sorted ``calls`` is innermost."""
    parents, pieces = _innermost(calls)
    lines: list[Line] = []
    for (_, _, line, called_at), parent in zip(calls, parents, strict=True):
        lines.append(line or _at(lines[parent] if parent >= 0 else None, called_at))
    often = Counter(zip(parents, lines, strict=True))
    loops: list[Line] = []
    for number, parent in enumerate(parents):
        line, called_at = calls[number][2:]
        if parent >= 0 and loops[parent] != lines[parent]:
            loops.append(loops[parent])
        elif parent >= 0 and line is not None and often[parent, line] > _LOOP:
            loops.append(_at(loops[parent], called_at))
        else:
            loops.append(lines[number])
    return [(ts, end, lines[at], loops[at]) for ts, end, at in pieces if lines[at] != _NOWHERE]


def _at(function: Line | None, line: int | None) -> Line:
    """``function`` at one of its lines, if known."""
    if function is None or function[0] is None:
        return function or _NOWHERE
    return function[0], line or function[1], function[2]


def _innermost(calls: Sequence[Call]) -> tuple[list[int], list[tuple[int, int, int]]]:
    """The parent of each of ``calls`` (-1: none), and stretches of time with their innermost call."""
    parents: list[int] = []
    pieces: list[tuple[int, int, int]] = []
    around: list[int] = []
    at = 0
    for number, (ts, *_) in enumerate(calls):
        while around and (end := calls[around[-1]][1]) <= ts:
            if end > at:
                pieces.append((at, end, around[-1]))
                at = end
            around.pop()
        if not around:
            at = ts
        elif ts > at:
            pieces.append((at, ts, around[-1]))
            at = ts
        parents.append(around[-1] if around else -1)
        around.append(number)
    while around:
        if (end := calls[around[-1]][1]) > at:
            pieces.append((at, end, around[-1]))
            at = end
        around.pop()
    return parents, pieces
