"""The cases of the rules: small traces written down beside the findings they must give."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from perftool.engine.analysis import analyze
from perftool.engine.pack import builtin_folder, load_pack
from perftool.model.report import Report
from perftool.model.rule import Rule

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CASES_DIR = Path(__file__).parent
Event = dict[str, Any]
_DEVICE_WORK = {"kernel", "gpu_memcpy", "gpu_memset"}


@dataclass(frozen=True)
class Case:
    """One trace and the findings of one rule on it.

    ``events`` are trace events in microseconds. Left out, ``ph`` is X, and ``pid`` and ``tid`` are 1 and 1,
    or 0 and 7 for device work. ``repeat`` and ``every`` (microseconds) copy an event; with each copy its
    ``correlation`` grows by one. ``rank`` puts an event into the trace of that rank. ``files`` are read
    before the events, name and text. ``own_sql`` is the query of a user's rule, TRC900, that runs beside
    the one under test. An expected finding names its subject and some of ``message``, ``gain_ns``, ``rank``,
    ``step`` and the evidence.
    """

    code: str
    name: str
    findings: tuple[Mapping[str, Any], ...]
    events: tuple[Mapping[str, Any], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    own_sql: str | None = None
    applicable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)


@cache
def pack() -> dict[str, Rule]:
    """The shipped rules by code."""
    return {rule.code: rule for rule in load_pack(builtin_folder())}


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case of every rule, in the order of the files."""
    return tuple(case for path in sorted(CASES_DIR.glob("*.toml")) for case in _load(path))


def run(case: Case, folder: Path) -> Report:
    """Write the traces of ``case`` into ``folder`` and analyse them with its rule."""
    rules = [pack()[case.code]]
    if case.own_sql is not None:
        rules.append(replace(rules[0], code="TRC900", sql=case.own_sql))
    return analyze([str(path) for path in _write(case, folder)], rules)


def _load(path: Path) -> Iterator[Case]:
    for table in tomllib.loads(path.read_text(encoding="utf-8"))["case"]:
        keys: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
        yield Case(code=path.stem, **keys)


def _write(case: Case, folder: Path) -> list[Path]:
    for name, text in case.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    ranks: dict[int, list[Event]] = {}
    for event in case.events:
        ranks.setdefault(event.get("rank", 0), []).extend(_copies(event))
    if not ranks and not case.files:
        ranks[0] = []
    traces = [_write_trace(folder, rank, events, case.metadata) for rank, events in sorted(ranks.items())]
    return [*(folder / name for name in case.files), *traces]


def _write_trace(folder: Path, rank: int, events: list[Event], metadata: Mapping[str, Any]) -> Path:
    path = folder / f"trace_rank{rank}.json"
    path.write_text(json.dumps({**metadata, "distributedInfo": {"rank": rank}, "traceEvents": events}))
    return path


def _copies(event: Mapping[str, Any]) -> Iterator[Event]:
    on_device = event.get("cat") in _DEVICE_WORK
    base: Event = {"ph": "X", "pid": 0 if on_device else 1, "tid": 7 if on_device else 1, "args": {}}
    base |= {key: value for key, value in event.items() if key not in ("repeat", "every", "rank")}
    for index in range(event.get("repeat", 1)):
        copy = {**base, "ts": base["ts"] + index * event.get("every", 0)}
        if "correlation" in base["args"]:
            copy["args"] = {**base["args"], "correlation": base["args"]["correlation"] + index}
        yield copy
