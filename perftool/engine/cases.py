"""Cases of a rule: small traces written down beside the findings they must give."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli

from perftool.engine.analysis import analyze
from perftool.errors import RuleError
from perftool.model.report import Finding, Report
from perftool.model.rule import Rule

_DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_TYPES = {"name": str, "findings": list, "events": list, "files": dict, "applicable": bool, "metadata": dict}
_TYPE_NAMES = {str: "a text", list: "a list", dict: "a table", bool: "true or false"}


@dataclass(frozen=True)
class Case:
    """One trace and the findings of one rule on it.

    ``events`` are trace events in microseconds. Left out, ``ph`` is X, and ``pid`` and ``tid`` are 1, or 0 and 7 for
    device work. ``repeat`` and ``every`` (microseconds) copy an event, each copy with the next ``correlation``;
    ``rank`` puts it into the trace of that rank. ``files`` are further inputs, name and text. An expected finding
    names its subject and some of message, rank, step, gain_ns and the evidence.
    """

    name: str
    findings: tuple[Mapping[str, Any], ...]
    events: tuple[Mapping[str, Any], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    applicable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)


def load_cases(path: Path) -> tuple[Case, ...]:
    """The cases in the file ``path``. Raises RuleError naming file and key."""
    try:
        data = tomli.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError) as error:
        raise RuleError(f"{path}: {error}") from None
    if set(data) != {"case"} or not isinstance(data["case"], list) or not data["case"]:
        raise RuleError(f"{path}: must hold one or more [[case]] tables and nothing else")
    return tuple(_case(path, at, table) for at, table in enumerate(data["case"]))


def differences(case: Case, rule: Rule, folder: Path) -> list[str]:
    """How what ``rule`` says about ``case`` differs from what it should; its trace is written into ``folder``."""
    report = analyze([str(path) for path in _write(case, folder)], [rule])
    found = sorted((_shown(one) for one in report.findings), key=lambda row: str(row["subject"]))
    wanted = sorted(case.findings, key=lambda row: str(row.get("subject")))
    if [row["subject"] for row in found] != [row.get("subject") for row in wanted]:
        return [f"finds {_subjects(found)} instead of {_subjects(wanted)}"]
    texts = [text for row, expected in zip(found, wanted, strict=True) for text in _unlike(row, expected)]
    return texts + _applicability(case, rule, report)


def _case(path: Path, at: int, table: Any) -> Case:
    place = f"{path}: key case[{at}]"
    if not isinstance(table, dict):
        raise RuleError(f"{place} must be a table")
    for key, value in table.items():
        if key not in _TYPES:
            raise RuleError(f"{place}: unknown key {key}; there are {', '.join(_TYPES)}")
        if not isinstance(value, _TYPES[key]):
            raise RuleError(f"{place}: key {key} must be {_TYPE_NAMES[_TYPES[key]]}")
    for key in ("name", "findings"):
        if key not in table:
            raise RuleError(f"{place}: key {key} is missing")
    keys: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return Case(**keys)


def _write(case: Case, folder: Path) -> list[Path]:
    for name, text in case.files.items():
        (folder / Path(name).name).write_text(text, encoding="utf-8")
    ranks: dict[int, list[Mapping[str, Any]]] = {} if case.files else {0: []}
    for event in case.events:
        ranks.setdefault(event.get("rank", 0), []).extend(_copies(event))
    traces = []
    for rank, events in sorted(ranks.items()):
        traces.append(folder / f"trace_rank{rank}.json")
        info = {**case.metadata.get("distributedInfo", {}), "rank": rank}
        whole = {**case.metadata, "distributedInfo": info, "traceEvents": events}
        traces[-1].write_text(json.dumps(whole), encoding="utf-8")
    return [*(folder / Path(name).name for name in case.files), *traces]


def _copies(event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    on_device = event.get("cat") in _DEVICE_WORK
    base: dict[str, Any] = {
        "ph": "X",
        "pid": 0 if on_device else 1,
        "tid": 7 if on_device else 1,
        "args": {},
        "ts": 0,
    }
    base |= {key: value for key, value in event.items() if key not in ("repeat", "every", "rank")}
    for index in range(event.get("repeat", 1)):
        args = dict(base["args"])
        if "correlation" in args:
            args["correlation"] += index
        yield {**base, "args": args, "ts": base["ts"] + index * event.get("every", 0)}


def _shown(finding: Finding) -> dict[str, Any]:
    return {
        **finding.evidence, "subject": finding.subject, "message": finding.message, "rank": finding.rank,
        "step": finding.location.step, "gain_ns": finding.gain.ns_per_step if finding.gain else None,
    }  # fmt: skip


def _subjects(rows: list[dict[str, Any]] | list[Mapping[str, Any]]) -> str:
    return ", ".join(str(row.get("subject")) for row in rows) or "nothing"


def _unlike(row: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    for key, value in wanted.items():
        if key not in row:
            yield f"{wanted['subject']}: there is no {key}"
        elif not _alike(row[key], value):
            yield f"{wanted['subject']}: {key} is {row[key]!r} instead of {value!r}"


def _alike(value: Any, wanted: Any) -> bool:
    """Equal; numbers up to a millionth, as they went through decimal text."""
    if isinstance(wanted, (int, float)) and hasattr(value, "__float__"):
        return abs(float(value) - wanted) <= 1e-6 * max(1.0, abs(wanted))
    return bool(value == wanted)


def _applicability(case: Case, rule: Rule, report: Report) -> list[str]:
    applies = rule.code not in [skipped.code for skipped in report.not_applicable]
    return [] if applies == case.applicable else [f"applicable is {applies} instead of {case.applicable}"]
