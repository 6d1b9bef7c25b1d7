"""Which line made each call: PyTorch records it, and leaves it out of the trace that it writes.

The trace names a function by the line that it begins at. That is enough for a small function; of a training loop
it says nothing. So what is recorded here gets an argument more: ``Call line`` of a Python function's event is the line
of the user's own code that called it.
"""

from __future__ import annotations

import gzip
import json
import re
import sysconfig
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perftool.integrations.activities import torch_profiler
from perftool.model.own_code import INSTALLED_KEY, is_own, package_of
from perftool.output_file import gzipped_at_the_end, whole_file

_TIME = re.compile(r'\s*"ts": (\d+)\.(\d{3})\b')
_BASE = re.compile(r'\s*"baseTimeNanoseconds": (\d+)')
_FUNCTION = re.compile(r'(\s*)"Python parent id": ')


@dataclass(frozen=True)
class Calls:
    """When each call that the user's own code made began, in ns, with its line; and packages whose code ran, and which
    are installed ones."""

    lines: Mapping[int, int]
    installed: Collection[str]


def save_trace(profiler: torch_profiler.profile, path: Path) -> None:
    """Write what ``profiler`` recorded to ``path``, gzipped and whole; with stacks, the lines of the calls too."""
    with whole_file(path) as place:
        _save(profiler, place)


def _save(profiler: torch_profiler.profile, path: Path) -> None:
    result = getattr(profiler.profiler, "kineto_results", None) if profiler.with_stack else None
    if result is None:
        with gzipped_at_the_end(path) as plain:
            profiler.export_chrome_trace(str(plain))
        return
    calls = _calls(result.experimental_event_tree())
    with tempfile.TemporaryDirectory(prefix="perftool-") as folder:
        plain = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(plain))
        with (
            plain.open(encoding="utf-8", errors="surrogateescape") as source,
            gzip.open(path, "wt", compresslevel=6, encoding="utf-8", errors="surrogateescape") as target,
        ):
            target.writelines(with_calls(source, calls))


def with_calls(text: Iterable[str], calls: Calls) -> Iterator[str]:
    """``text``, a trace as PyTorch writes it, line by line, with what ``calls`` knows."""
    base = at = 0
    for part in text:
        if found := _TIME.match(part):
            at = base + int(found[1] + found[2])
        elif (found := _FUNCTION.match(part)) and at in calls.lines:
            yield f'{found[1]}"Call line": {calls.lines[at]},\n'
        elif found := _BASE.match(part):
            base = int(found[1])
            yield f'    "{INSTALLED_KEY}": {json.dumps(sorted(calls.installed))},\n'
        yield part


def _calls(events: Iterable[Any]) -> Calls:
    lines: dict[int, int] = {}
    own: dict[str, bool] = {}
    left: list[Any] = list(events)
    while left:
        event = left.pop()
        left += event.children
        fields = event.extra_fields
        caller = getattr(fields, "caller", None)
        # What was running when the recording began was called before, nobody knows where.
        if caller is None or _same(caller, getattr(fields, "callsite", None)):
            continue
        file = caller.file_name
        if file not in own:
            own[file] = is_own(file) and not _installed(file)
        if own[file]:
            lines[event.start_time_ns] = caller.line_number
    return Calls(lines, {package_of(file) for file in own if is_own(file) and not own[file]})


def _installed(file: str) -> bool:
    """Whether ``file``, which the profiler names below the folder that Python imports it from, is installed here."""
    folders = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    return any((Path(folder) / file).is_file() for folder in folders)


def _same(one: Any, other: Any) -> bool:
    return other is not None and all(
        getattr(one, name) == getattr(other, name) for name in ("file_name", "line_number", "function_name")
    )
