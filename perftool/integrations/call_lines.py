"""Adds the line of each call to a trace. PyTorch records that line, but its trace contains only the first line of each
function, which is not enough for a training loop. The events of Python functions get the argument ``Call line``, the
line in the user's own code that made the call.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from perftool.integrations.activities import torch_profiler
from perftool.model.own_code import PACKAGE_FOLDERS, is_own, is_written, package_of

_BASE = re.compile(rb'"baseTimeNanoseconds": (\d+)')
# The text of a Python function's event from its time to the start of its arguments. No match spans two events.
_FUNCTION = re.compile(rb'"ts": (\d+)\.(\d{3})\b[^{}]*\{(\s*)(?="Python parent id": )')


@dataclass(frozen=True)
class Calls:
    """The line of each call from the user's own code, keyed by the call's start in ns, and the installed packages whose
    code ran."""

    lines: Mapping[int, int]
    installed: Collection[str]


NO_CALLS = Calls({}, ())


def calls_of(profiler: torch_profiler.profile) -> Calls:
    """Return the calls that ``profiler`` recorded, or ``NO_CALLS`` if it recorded no stacks."""
    result = getattr(profiler.profiler, "kineto_results", None) if profiler.with_stack else None
    return NO_CALLS if result is None else _calls(result.experimental_event_tree())


def with_lines(pieces: Iterable[bytes], calls: Calls) -> Iterator[bytes]:
    """Add the lines of ``calls`` to the trace in ``pieces``. Each piece must end after an event."""
    base: int | None = None

    def with_line(function: re.Match[bytes]) -> bytes:
        line = calls.lines.get((base or 0) + int(function[1] + function[2]))
        return function[0] if line is None else b'%b"Call line": %d,%b' % (function[0], line, function[3])

    for piece in pieces:
        if base is None and (found := _BASE.search(piece)):
            base = int(found[1])
        yield _FUNCTION.sub(with_line, piece) if calls.lines else piece


def _calls(events: Iterable[Any]) -> Calls:
    lines: dict[int, int] = {}
    own: dict[str, bool] = {}

    def belongs_to_user(file: str) -> bool:
        if file not in own:
            own[file] = is_users(file)
        return own[file]

    left: list[Any] = list(events)
    while left:
        event = left.pop()
        left += event.children
        fields = event.extra_fields
        caller, callsite = getattr(fields, "caller", None), getattr(fields, "callsite", None)
        # A package's function that calls nothing else appears only as a callee.
        if (called := _file(callsite)) is not None:
            belongs_to_user(called)
        file = _file(caller)
        # For functions that were already running when the recording began, the call line is unknown.
        if caller is None or file is None or _same(caller, callsite):
            continue
        if belongs_to_user(file):
            lines[event.start_time_ns] = caller.line_number
    return Calls(lines, {package_of(file) for file in own if is_own(file) and not own[file]})


def relative_path(file: str) -> str:
    """Return the path of ``file`` in its import folder, as PyTorch's profiler does."""
    folders = [folder.rstrip("/") + "/" for folder in sys.path if isinstance(folder, str) and folder]
    within = max((folder for folder in folders if file.startswith(folder)), key=len, default="")
    return file[len(within) :]


def is_users(file: str) -> bool:
    """Whether ``file``, a path relative to its import folder, is the user's own code."""
    if is_written(file):
        file = f"{package_of(file)}/__init__.py"
    return is_own(file) and not is_installed(file, [folder for folder in sys.path if isinstance(folder, str)])


def is_installed(file: str, folders: Iterable[str]) -> bool:
    """Whether ``file``, a path relative to its import folder, belongs to an installed package. It does if the first of
    ``folders`` that contains it is for installed packages, or if pip lists the file there (``pip install --target``).
    """
    if "\0" in file:
        return False
    folder = next((folder for folder in folders if os.path.isfile(os.path.join(folder, file))), None)
    if folder is None:
        return False
    return os.path.basename(os.path.normpath(folder)) in PACKAGE_FOLDERS or package_of(file) in _listed(folder)


@cache
def _listed(folder: str) -> frozenset[str]:
    """Return the packages that pip lists as installed in ``folder``."""
    lists = (record.read_text(errors="replace") for record in Path(folder).glob("*.dist-info/RECORD"))
    return frozenset(package_of(line.partition(",")[0]) for text in lists for line in text.splitlines())


def _file(frame: Any) -> str | None:
    """Return the file of ``frame``. Its name may be garbage: PyTorch keeps no copy of the name, and the code object may
    have been freed."""
    try:
        return None if frame is None else str(frame.file_name)
    except UnicodeDecodeError:
        return None


def _same(one: Any, other: Any) -> bool:
    if other is None or one.line_number != other.line_number or _file(one) != _file(other):
        return False
    try:
        return bool(one.function_name == other.function_name)
    except UnicodeDecodeError:
        return False
