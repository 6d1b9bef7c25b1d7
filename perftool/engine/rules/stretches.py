"""Determines which line of the user's code each host thread runs over time, from recorded functions and call stacks."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from perftool.model.own_code import INSTALLED_KEY, Line, innermost, is_library, is_own, is_written, package_of
from perftool.store.trace_store import TraceStore

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

# If a function calls another more often than this, the callee is a loop body, and the line of the loop is reported.
_LOOP = 16
_CALLED = """
FROM frames AS f JOIN feeding_tracks AS t ON t.track = f.track WHERE f.rank = $rank AND f."end" > f.ts
"""
# The distinct callees. There are far fewer callees than calls, so each is classified as the user's code only once.
_KINDS = f"SELECT DISTINCT f.file, f.line, f.function, f.stack {_CALLED} ORDER BY ALL"
# Recorders may also give the lines of calls in files that a library wrote, which are no lines of the function around.
_CALLS = f"""
WITH kinds AS (
    SELECT unnest($files::VARCHAR[]) AS file, unnest($lines::INTEGER[]) AS line,
           unnest($functions::VARCHAR[]) AS function, unnest($stacks::VARCHAR[]) AS stack,
           unnest(range(len($files)))::INTEGER AS kind
),
written AS (SELECT id FROM frames WHERE list_contains($written::VARCHAR[], file)),
calls AS (
    SELECT f.* REPLACE (CASE WHEN s.id IS NULL THEN f.call_line END AS call_line)
    FROM (SELECT f.* {_CALLED}) AS f
    LEFT JOIN (SELECT id FROM slices WHERE parent IN (FROM written)) AS s ON s.id = f.id
)
SELECT c.track, c.ts, c."end", k.kind, c.call_line
FROM calls AS c LEFT JOIN kinds AS k
    ON k.function = c.function AND k.file IS NOT DISTINCT FROM c.file AND k.line IS NOT DISTINCT FROM c.line
    AND k.stack IS NOT DISTINCT FROM c.stack
WHERE k.kind IS NOT NULL OR c.call_line IS NOT NULL
ORDER BY c.track, c.ts, c."end" DESC, c.id
"""

# A line that runs for a larger share of the time would be the source of every finding.
_EVERYWHERE = 0.95
# ``on_cpu`` is true if the CPU is the device. The time of a function then includes the work of its ops.
_WINDOW = """
SELECT host_ts, host_end, rank IN (SELECT rank FROM launches WHERE own_work) AS on_cpu FROM windows WHERE rank = $rank
"""
# The autograd functions that run on the thread of the op they differentiate, with that op.
_BACKWARD = """
SELECT d.op_track, d.op_ts, d.op_end, o.name, d.ts, d."end"
FROM _differentiated AS d JOIN ops AS o ON o.id = d.op WHERE d.rank = $rank AND d.op_track = d.track ORDER BY d.ts
"""
_MODULE_CALLS = """
SELECT track, ts, "end" FROM frames WHERE rank = $rank AND file IS NULL AND starts_with(function, 'nn.Module: ')
ORDER BY track, ts
"""
# Python's names for comprehensions and lambdas, which count as part of the function around them.
_PART_OF_FUNCTION = re.compile(r"<(?!module>).+>")

# A call: start, end, the line of the callee (None if not the user's code), and the calling line of the user's code.
Call = tuple[int, int, Line | None, int | None]
# An autograd function: start, end and name of the op that it differentiates, whether that op is outside modules, and
# the start and end of the function itself.
_Backward = tuple[int, int, str, bool, int, int]
# The window of a rank on the host: start, end, and whether the CPU is the device.
_Window = tuple[int, int, bool]
# A callee in the table ``frames``: file, line, function and stack.
_Kind = tuple[str | None, int | None, str, str | None]

# A stretch: start, end, the running line, the line of the enclosing loop, and the index of the running function in the
# call tree.
_Stretch = tuple[int, int, Line, Line, int]
# A function in the call tree: the index of its caller (-1 if it has none), and the function.
Node = tuple[int, Line]

NOWHERE: Line = (None, None, "")
# Functions of any library that only wait for the next batch or message.
_WAITING = "SELECT DISTINCT name FROM roles WHERE cat = 'python_function' AND role = 'queue_wait'"
_NUMBER = re.compile(r"\(\d+\): ")


@dataclass(frozen=True)
class Track:
    """The stretches of a host thread in time order, as arrays, from ``begins`` to ``ends`` in ns.

    ``lines`` contains the index of the running line, ``loops`` contains that of the line of the enclosing loop, and
    ``nodes`` contains that of the running function in the call tree.
    """

    begins: Int64s
    ends: Int64s
    lines: Int64s
    loops: Int64s
    nodes: Int64s


@dataclass
class FunctionTime:
    """One of the user's functions, at one place in the call tree of the user's code.

    ``ns``: its time inside the rank's window, including its callees and ``backward_ns``.
    ``calls``: the number of its calls.
    ``backward_ns``: the time of the backward pass of ops that it or a callee ran. It is not counted for the function
    that runs the backward pass.
    ``inner``: the user's functions that it calls.
    ``own``: the time in ns of ops outside modules and outside ``inner``, including their backward pass, by line of the
    function and name of the op. Ops without a backward pass are left out.
    """

    line: Line
    ns: int = 0
    calls: int = 0
    backward_ns: int = 0
    inner: dict[Line, FunctionTime] = field(default_factory=dict)
    own: Counter[tuple[Line, str]] = field(default_factory=Counter)


@dataclass(frozen=True)
class FeedingLines:
    """The lines that ran on the threads that feed the device of a rank. ``tracks`` refer to ``lines`` and ``tree`` by
    index. ``tree`` is the call tree, in which callers precede their callees.

    ``outermost`` contains the user's outermost functions on the thread that runs them longest. It is empty if the CPU
    is not the device.
    """

    lines: tuple[Line, ...]
    tracks: tuple[Track, ...]
    tree: tuple[Node, ...]
    outermost: tuple[FunctionTime, ...] = ()


_numbering = Lock()
_known: WeakKeyDictionary[TraceStore, dict[int, FeedingLines]] = WeakKeyDictionary()


def lines_run(store: TraceStore, rank: int) -> FeedingLines:
    """Return the lines that ran on the threads that feed the device of ``rank``, computed once per store."""
    with _numbering:
        known = _known.setdefault(store, {})
        if rank not in known:
            store.build(["frames", "feeding_tracks", "roles", "windows", "launches", "_differentiated", "ops"])
            windows = [tuple(one.values()) for one in store.select(_WINDOW, {"rank": rank})]
            code = _own_code(store, rank, windows)
            on_cpu = any(computes for *_, computes in windows)
            backward = _backward(store, rank) if on_cpu else {}
            by_track = [
                _functions(calls, code.nested[track], backward.get(track, ()), begin, finish)
                for begin, finish, computes in windows if computes for track, calls in code.calls.items()
            ]  # fmt: skip
            longest = max(by_track, key=lambda functions: sum(one.ns for one in functions), default=())
            known[rank] = replace(_numbered(list(code.nested.values()), tuple(code.tree)), outermost=longest)
        return known[rank]


@dataclass(frozen=True)
class _Code:
    """For each track, the calls to or from the user's code, and the stretches during which each is the innermost; and
    the call tree, in which callers precede their callees."""

    calls: dict[int, list[Call]]
    nested: dict[int, list[_Stretch]]
    tree: dict[Node, int]


def _own_code(store: TraceStore, rank: int, windows: Sequence[_Window]) -> _Code:
    """Return the calls and lines that count as the user's code on the tracks of ``rank``.

    The user's own code may not show where the time goes: there is none, or one line takes nearly all of the time. In
    that case, the package that it calls counts as well. If that does not show it either, all installed packages count.
    """
    listed = store.metadata.get(rank, {}).get(INSTALLED_KEY)
    installed = {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set()
    own = _code(_calls(store, rank, installed))
    if not installed or _locates(own.nested.values(), windows):
        return own
    everything = _calls(store, rank, ())
    if (package := _called_package(everything, installed)) is not None:
        own = _code(_calls(store, rank, installed - {package}))
        if _locates(own.nested.values(), windows):
            return own
    return _code(everything)


def _code(calls: dict[int, list[Call]]) -> _Code:
    tree: dict[Node, int] = {}
    return _Code(calls, {track: _nested(of_track, tree) for track, of_track in calls.items()}, tree)


def _called_package(tracks: Mapping[int, Sequence[Call]], installed: Collection[str]) -> str | None:
    """Return the ``installed`` package in which calls from other code spend the most time, or None if there are
    none.
    """
    spent: Counter[str] = Counter()
    for calls in tracks.values():
        last_end = 0
        for ts, end, line, _ in calls:
            if ts < last_end or line is None or line[0] is None or (package := package_of(line[0])) not in installed:
                continue
            spent[package] += end - ts
            last_end = end
    return max(sorted(spent), key=lambda package: spent[package], default=None)


def _locates(tracks: Iterable[Sequence[_Stretch]], windows: Sequence[_Window]) -> bool:
    """Whether ``tracks`` contain lines of the user's code, and none of them takes nearly all of the ``windows``."""
    whole = sum(finish - begin for begin, finish, _ in windows)
    located = False
    for stretches in tracks:
        spent: Counter[Line] = Counter()
        for begin, finish, _ in windows:
            for ts, end, line, *_ in stretches:
                located = located or line[0] is not None
                spent[line] += max(0, min(end, finish) - max(ts, begin))
        if max(spent.values(), default=0) > _EVERYWHERE * whole:
            return False
    return located


def _calls(store: TraceStore, rank: int, installed: Collection[str]) -> dict[int, list[Call]]:
    """Return the calls to or from lines of the user's code by track, each caller before its callees."""
    kinds: list[_Kind] = [
        (file, line, name, stack) for file, line, name, stack in store.iterate(_KINDS, {"rank": rank})
    ]
    waiting = {_NUMBER.sub(": ", row["name"], count=1) for row in store.select(_WAITING)}
    lines = [NOWHERE if line and _name(line) in waiting else line for line in _lines(kinds, installed)]
    own = [(kind, line) for kind, line in zip(kinds, lines, strict=True) if line is not None]
    named = ("files", "lines", "functions", "stacks")
    values = {name: [kind[at] for kind, _ in own] for at, name in enumerate(named)}
    files = {file for file, *_ in kinds if file is not None}
    written = sorted(file for file in files if is_written(file) and not is_own(file, installed))
    by_track: dict[int, list[Call]] = {}
    for track, ts, end, kind, call_line in store.iterate(_CALLS, {"rank": rank, "written": written, **values}):
        by_track.setdefault(track, []).append((ts, end, None if kind is None else own[kind][1], call_line))
    return by_track


def _name(line: Line) -> str:
    """Return a function in the profiler's notation, without the line."""
    file, _, function = line
    return f"{file}: {function}"


def _lines(kinds: Sequence[_Kind], installed: Collection[str]) -> list[Line | None]:
    """Return the line of the user's code for each kind of call or, if there are no such lines at all, the module."""
    lines = [_line(kind, installed) for kind in kinds]
    if any(line is not None for line in lines):
        return lines
    return [(None, None, function) if function.startswith("nn.Module: ") else None for _, _, function, _ in kinds]


def _line(kind: _Kind, installed: Collection[str]) -> Line | None:
    file, line, function, stack = kind
    if stack is not None:
        return innermost(stack, installed)
    return (file, line, function) if file is not None and is_own(file, installed) else None


def _numbered(tracks: Sequence[Sequence[_Stretch]], tree: tuple[Node, ...]) -> FeedingLines:
    import numpy as np

    numbers: dict[Line, int] = {}
    arrays = []
    for stretches in tracks:
        rows = [
            (ts, end, numbers.setdefault(line, len(numbers)), numbers.setdefault(loop, len(numbers)), node)
            for ts, end, line, loop, node in stretches
        ]
        arrays.append(Track(*np.array(rows, dtype=np.int64).reshape(-1, 5).T.copy()))
    return FeedingLines(tuple(numbers), tuple(arrays), tree)


def _is_of_script(line: Line) -> bool:
    """Whether ``line`` is a named function, or the module level, in one of the user's own files."""
    return line[0] is not None and not is_library(line[0]) and not _PART_OF_FUNCTION.fullmatch(line[2])


def _with_lines(functions: Collection[Line]) -> dict[Line, Line]:
    """Map each of ``functions`` to itself. A function that was running when the recording started has no line. It is
    mapped to the function with the same file and name that has a line, if there is exactly one."""
    known: dict[tuple[str | None, str], list[Line]] = {}
    for one in functions:
        if one[1] is not None:
            known.setdefault((one[0], one[2]), []).append(one)
    same = ((one, known.get((one[0], one[2]), [])) for one in functions)
    return {one: lines[0] if one[1] is None and len(lines) == 1 else one for one, lines in same}


def _backward(store: TraceStore, rank: int) -> dict[int, list[_Backward]]:
    """Return the outermost autograd functions on each track, in time order."""
    modules: dict[int, list[tuple[int, int]]] = {}
    for track, ts, end in store.iterate(_MODULE_CALLS, {"rank": rank}):
        calls = modules.setdefault(track, [])
        if not calls or ts >= calls[-1][1]:
            calls.append((ts, end))
    by_track: dict[int, list[_Backward]] = {}
    for track, op_ts, op_end, name, ts, end in store.iterate(_BACKWARD, {"rank": rank}):
        functions = by_track.setdefault(track, [])
        if not functions or ts >= functions[-1][-1]:
            calls = modules.get(track, [])
            at = bisect_right(calls, op_ts, key=lambda call: call[0]) - 1
            functions.append((op_ts, op_end, name, at < 0 or op_ts >= calls[at][1], ts, end))
    return by_track


def _functions(
    calls: Sequence[Call], nested: Sequence[_Stretch], backward: Sequence[_Backward], begin: int, finish: int
) -> tuple[FunctionTime, ...]:
    """Return the user's outermost functions in the sorted ``calls``, with their time between ``begin`` and
    ``finish``.
    """
    root = FunctionTime(NOWHERE)
    of_script = _with_lines({line for _, _, line, _ in calls if line and _is_of_script(line)})
    scripted = [
        (max(ts, begin), min(end, finish), of_script[line], None)
        for ts, end, line, _ in calls if line in of_script and end > begin and ts < finish
    ]  # fmt: skip
    parents, pieces = _innermost(scripted)
    # For each call, the innermost function. Also each function with its caller, callers first.
    functions: list[FunctionTime] = []
    called: list[tuple[FunctionTime, FunctionTime]] = []
    for (ts, end, line, _), parent in zip(scripted, parents, strict=True):
        caller = functions[parent] if parent >= 0 else root
        # A recursive call counts as part of its caller.
        if line is None or caller.line == line:
            functions.append(caller)
            continue
        if (function := caller.inner.get(line)) is None:
            function = caller.inner[line] = FunctionTime(line)
            called.append((function, caller))
        function.ns += end - ts
        function.calls += 1
        functions.append(function)
    taken, given = _moved(backward, nested, pieces, functions)
    # The time of a caller includes that of its callees, so each change to a function also applies to its callers.
    for function, caller in reversed(called):
        gained = taken[id(function)]
        function.backward_ns += gained
        function.ns += gained - given[id(function)]
        taken[id(caller)] += gained
        given[id(caller)] += given[id(function)]
    return tuple(root.inner.values())


def _moved(
    backward: Sequence[_Backward],
    nested: Sequence[_Stretch],
    pieces: Sequence[tuple[int, int, int]],
    functions: Sequence[FunctionTime],
) -> tuple[Counter[int], Counter[int]]:
    """Return two counters of the time of ``backward`` in ns, by the ``id`` of a function: the time to add to functions
    that ran the forward pass, and the time to subtract from functions that run the backward pass. Work outside modules
    is also added to ``FunctionTime.own``.

    ``pieces`` refer to their innermost call by its index in ``functions``.
    """
    taken: Counter[int] = Counter()
    given: Counter[int] = Counter()
    counted = set()
    for op_ts, op_end, name, outside, ts, end in backward:
        forward, at = _piece(pieces, op_ts), _piece(pieces, ts)
        if forward is None or at is None:
            continue
        function, call = functions[pieces[forward][2]], pieces[at][2]
        ns = 0
        # If the backward pass calls the user's functions, their time is not moved.
        while at < len(pieces) and pieces[at][0] < end:
            ns += (min(end, pieces[at][1]) - max(ts, pieces[at][0])) if pieces[at][2] == call else 0
            at += 1
        taken[id(function)] += ns
        given[id(functions[call])] += ns
        if outside:
            stretch = _piece(nested, op_ts)
            line = function.line if stretch is None else nested[stretch][2]
            function.own[line, name] += ns + (0 if op_ts in counted else op_end - op_ts)
            counted.add(op_ts)
    return taken, given


def _piece(pieces: Sequence[tuple[int, int, int]] | Sequence[_Stretch], at: int) -> int | None:
    """Return the index of the piece that contains the time ``at``, or None if no piece does."""
    number = bisect_right(pieces, at, key=lambda piece: piece[0]) - 1
    return number if number >= 0 and at < pieces[number][1] else None


def _nested(calls: Sequence[Call], tree: dict[Node, int]) -> list[_Stretch]:
    """Return the stretches during which one of the sorted ``calls`` is innermost. Their functions are added to
    ``tree``.
    """
    parents, pieces = _innermost(calls)
    lines: list[Line] = []
    for (_, _, line, called_at), parent in zip(calls, parents, strict=True):
        around = lines[parent] if parent >= 0 else None
        lines.append(_named_after(line, around) if line else _at(around, called_at))
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
    nodes: list[int] = []
    for (_, _, line, _), parent in zip(calls, parents, strict=True):
        caller = nodes[parent] if parent >= 0 else -1
        # Comprehensions, recursive calls and calls that leave the user's code are part of the function around them.
        part = line is None or _PART_OF_FUNCTION.fullmatch(line[2]) or (parent >= 0 and line == calls[parent][2])
        nodes.append(caller if part and caller >= 0 else tree.setdefault((caller, line or NOWHERE), len(tree)))
    return [(ts, end, lines[at], loops[at], nodes[at]) for ts, end, at in pieces if lines[at] != NOWHERE]


def _named_after(line: Line, around: Line | None) -> Line:
    """Return ``line``. If it is in a comprehension or lambda in the file of the function ``around`` it, give it the
    name of that function."""
    inner = around is not None and line[0] == around[0] and _PART_OF_FUNCTION.fullmatch(line[2])
    return (*line[:2], around[2]) if around is not None and inner else line


def _at(function: Line | None, line: int | None) -> Line:
    """Return ``function`` with its line replaced by ``line``, unless either is unknown."""
    if function is None or function[0] is None:
        return function or NOWHERE
    return function[0], line or function[1], function[2]


def _innermost(calls: Sequence[Call]) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Return two lists: the index of the parent of each of ``calls`` (-1 if it has none), and the pieces into which the
    starts and ends of calls divide time (start, end, index of the innermost call)."""
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
