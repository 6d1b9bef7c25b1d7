"""Test cases of a rule: small inputs with their expected findings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perftool.engine.analysis import analysed
from perftool.engine.rule_tests.case_traces import PLACES, write_traces
from perftool.engine.rules.evaluate import Outcome
from perftool.errors import RuleError
from perftool.model.report import Finding
from perftool.model.rule import Rule
from perftool.model.toml_text import parse_toml
from perftool.readers.discover import Inputs, find_inputs
from perftool.readers.files.small_file import read_small

_TYPES = {
    "name": str, "findings": list, "events": list, "files": dict, "log": str, "log_times": int, "metrics": str,
    "config": str, "config_name": str, "device": str, "applicable": bool, "metadata": dict, "own_sql": str,
}  # fmt: skip
_TYPE_NAMES = {str: "a string", list: "a list", dict: "a table", bool: "true or false", int: "a number"}

# The limits on the events of a case, including copies, and on the length of its strings.
_MOST_EVENTS = 100_000
_MOST_TEXT = 64 << 20


@dataclass(frozen=True)
class Case:
    """The inputs of a run, and the expected findings of a rule.

    ``events`` are trace events in microseconds. By default ``ph`` is X, and ``pid`` and ``tid`` are 1, or 0 and 7 for
    device work. ``repeat`` and ``every`` (microseconds) copy an event: each copy gets the next ``correlation``, and
    ``count`` increments other arguments. ``rank`` puts the event into the trace of that rank. Events with ``on`` (an
    engine such as ``MME``, or ``op``, ``note``, ``bridge``, ``synapse`` or ``compiler``) are placed accordingly in the
    trace of the Gaudi ``device``. ``metadata`` contains additional keys of the trace.

    ``files`` maps the names of other inputs to their contents. ``log`` (repeated ``log_times`` times), ``metrics`` and
    ``config`` (as a file ``config_name``) are passed as logs. ``own_sql`` is the query of an additional user rule,
    TRC900. An expected finding states its subject and any of message, rank, step, gain_ns, predicted_ns, benchmark,
    related (a count) and the evidence.
    """

    code: str
    name: str
    findings: tuple[Mapping[str, Any], ...]
    events: tuple[Mapping[str, Any], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    log: str | None = None
    log_times: int = 1
    metrics: str | None = None
    config: str | None = None
    config_name: str = "ds_config.json"
    device: str = "GAUDI2"
    applicable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)
    own_sql: str | None = None

    @property
    def logs(self) -> Mapping[str, str]:
        """The contents of the files passed as logs, by file name."""
        log = None if self.log is None else self.log * self.log_times
        texts = {"run.log": log, "metrics.json": self.metrics, self.config_name: self.config}
        return {name: text for name, text in texts.items() if text is not None}


def load_cases(path: Path) -> tuple[Case, ...]:
    """Load the cases in the file ``path``, which is named after the code of their rule. Raise RuleError, which states
    the file and the key."""
    try:
        data = parse_toml(read_small(path).decode())
    except (OSError, ValueError) as error:
        raise RuleError(f"{path}: {error}") from None
    if set(data) != {"case"} or not isinstance(data["case"], list) or not data["case"]:
        raise RuleError(f"{path}: expected one or more [[case]] tables, and nothing else")
    return tuple(_case(path, at, table) for at, table in enumerate(data["case"]))


def run_case(case: Case, rule: Rule, folder: Path) -> Outcome:
    """Run ``rule`` on ``case``, whose inputs are written into ``folder``."""
    rule = rule_for(case, rule)
    rules = [rule] if case.own_sql is None else [rule, replace(rule, code="TRC900", sql=case.own_sql)]
    with analysed(inputs_of(case, folder), rules) as run:
        return run.outcome


def rule_for(case: Case, rule: Rule) -> Rule:
    """Return ``rule`` without its replay, unless ``case`` expects a prediction. The gain is then the bound from the
    evidence."""
    predicts = any("predicted_ns" in row for row in case.findings)
    return rule if predicts else replace(rule, whatif=None, whatif_ranks=None)


def inputs_of(case: Case, folder: Path) -> Inputs:
    """Write the inputs of ``case`` into ``folder``."""
    files = [_write(folder, name, text) for name, text in case.files.items()]
    logs = [_write(folder, name, text) for name, text in case.logs.items()]
    if case.events or not (files or logs):
        files += map(str, write_traces(case.events, case.metadata, case.device, folder))
    # The traces of a case are ranks of one run, even if they do not state their rank.
    return find_inputs(files, logs, as_one_run=True)


def differences(case: Case, rule: Rule, outcome: Outcome, folder: Path) -> list[str]:
    """Return the differences between ``outcome``, the result of ``run_case``, and what ``rule`` should find on
    ``case``.
    """
    own = [finding for finding in outcome.findings if finding.code == rule.code]
    found = sorted((_shown(finding, folder) for finding in own), key=lambda row: str(row["subject"]))
    wanted = sorted(case.findings, key=lambda row: str(row.get("subject")))
    if [row["subject"] for row in found] != [row.get("subject") for row in wanted]:
        return [f"finds {_subjects(found)} instead of {_subjects(wanted)}"]
    texts = [text for row, expected in zip(found, wanted, strict=True) for text in _mismatches(row, expected)]
    return texts + _applicability(case, rule, outcome)


def _case(path: Path, at: int, table: Any) -> Case:
    place = f"{path}: key case[{at}]"
    if not isinstance(table, dict):
        raise RuleError(f"{place} must be a table")
    for key, value in table.items():
        if key not in _TYPES:
            raise RuleError(f"{place}: unknown key {key}; the keys are {', '.join(_TYPES)}")
        if not isinstance(value, _TYPES[key]):
            raise RuleError(f"{place}: key {key} must be {_TYPE_NAMES[_TYPES[key]]}")
    for key in ("name", "findings"):
        if key not in table:
            raise RuleError(f"{place}: key {key} is missing")
    if len(table.get("log", "")) * table.get("log_times", 1) > _MOST_TEXT:
        raise RuleError(f"{place}: key log_times: the log would be larger than {_MOST_TEXT >> 20} MiB")
    _check_places(place, table.get("events", []))
    keys: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return Case(code=path.stem, **keys)


def _check_places(place: str, events: list[Any]) -> None:
    """Raise RuleError if ``events`` are not tables, if only some have a valid ``on``, or if there are too many."""
    places = [event.get("on") for event in events if isinstance(event, dict)]
    if len(places) != len(events):
        raise RuleError(f"{place}: key events must be a list of tables")
    if any(places) and (unknown := [on for on in places if not isinstance(on, str) or on not in PLACES]):
        raise RuleError(f"{place}: key events: on = {unknown[0]!r} is not one of {', '.join(PLACES)}")
    copies = [event.get("repeat", 1) for event in events]
    if not all(isinstance(count, int) and count >= 0 for count in copies) or sum(copies) > _MOST_EVENTS:
        raise RuleError(f"{place}: key events: repeat must be a whole number, for at most {_MOST_EVENTS:,} events")
    sizes = (len(json.dumps(event, default=str)) * count for event, count in zip(events, copies, strict=True))
    if sum(sizes) > _MOST_TEXT:
        raise RuleError(f"{place}: key events: the trace would be larger than {_MOST_TEXT >> 20} MiB")


def _write(folder: Path, name: str, text: str) -> str:
    path = folder / Path(name).name
    path.write_text(text, encoding="utf-8")
    return str(path)


def _shown(finding: Finding, folder: Path) -> dict[str, Any]:
    """Return the parts of a finding that a case may check, with paths relative to ``folder``."""
    sources = finding.location.sources
    places = [f"{one.file}:{one.line}" if one.line else str(one.file) for one in sources]
    row = {
        "subject": finding.subject, "where": ", ".join(places),
        "message": finding.message, "rank": finding.rank, "step": finding.location.step,
        "gain_ns": finding.gain.ns_per_step if finding.gain else None,
        "predicted_ns": finding.gain.ns_per_step if finding.gain and finding.gain.kind == "predicted" else None,
        "related": len(finding.related),
        "benchmark": finding.benchmark, "short_fix": finding.short_fix,
        **finding.evidence,
    }  # fmt: skip
    return {key: value.replace(f"{folder}/", "") if isinstance(value, str) else value for key, value in row.items()}


def _subjects(rows: list[dict[str, Any]] | list[Mapping[str, Any]]) -> str:
    return ", ".join(str(row.get("subject")) for row in rows) or "nothing"


def _mismatches(row: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    for key, value in wanted.items():
        if key not in row:
            yield f"{wanted['subject']}: there is no {key}"
        elif not _alike(row[key], value):
            yield f"{wanted['subject']}: {key} is {row[key]!r} instead of {value!r}"


def _alike(value: Any, wanted: Any) -> bool:
    """Whether two values are equal; numbers may differ by a millionth, because decimal text is rounded."""
    if isinstance(wanted, (int, float)) and hasattr(value, "__float__"):
        return abs(float(value) - wanted) <= 1e-6 * max(1.0, abs(wanted))
    return bool(value == wanted)


def _applicability(case: Case, rule: Rule, outcome: Outcome) -> list[str]:
    applies = rule.code not in [skipped.code for skipped in outcome.not_applicable]
    return [] if applies == case.applicable else [f"applicable is {applies} instead of {case.applicable}"]
