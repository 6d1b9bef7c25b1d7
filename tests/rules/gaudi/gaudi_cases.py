"""The cases of the Gaudi rules: events, logs, metrics and configuration beside the findings they must give."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tomli

from perftool.engine.analysis import analyze
from perftool.engine.pack import builtin_folder, load_pack
from perftool.model.report import Report
from perftool.model.rule import Rule

CASES_DIR = Path(__file__).parent
_MAIN, _BRIDGE, _SYNAPSE, _ANNOTATED, _DEVICE = 1, 20_001, 10_001, 2, 0
# Where an event belongs, as generation B writes it: process, thread, category.
_PLACES: Mapping[str, tuple[int, int, str]] = {
    "op": (_MAIN, 1, "cpu_op"),
    "note": (_MAIN, 1, "user_annotation"),
    "bridge": (_BRIDGE, 1, "Runtime"),
    "synapse": (_SYNAPSE, 1, "Runtime"),
    "compiler": (_ANNOTATED, 4_294_966_299, "Runtime"),
    "PDMA": (_DEVICE, 3001, "Runtime"),
    "DMA": (_DEVICE, 4001, "Runtime"),
    "MME": (_DEVICE, 6001, "Kernel"),
    "TPC": (_DEVICE, 7001, "Kernel"),
}
_PROCESSES = {_BRIDGE: "Bridge Logs", _SYNAPSE: "Synapse Logger", _DEVICE: "/device:HPU:0"}


@dataclass(frozen=True)
class Case:
    """The inputs of one run and the findings of one rule on it.

    ``events`` are trace events in microseconds: ``on`` says where (an engine, ``op``, ``note``, ``bridge``,
    ``synapse`` or ``compiler``), ``repeat`` and ``every`` copy one. ``log``, ``metrics`` and ``config`` are texts of
    files; ``config_name`` names the last one, and the log's text stands there ``log_times`` times. Each expected
    finding names some of ``message``, ``gain_ns``, ``step`` and evidence, and always its subject.
    """

    code: str
    name: str
    findings: tuple[Mapping[str, Any], ...]
    events: tuple[Mapping[str, Any], ...] = ()
    log: str | None = None
    log_times: int = 1
    metrics: str | None = None
    config: str | None = None
    config_name: str = "ds_config.json"
    applicable: bool = True
    device: str | None = "GAUDI2"


def all_cases() -> list[Case]:
    """Every case, in the order of the files."""
    return [case for path in sorted(CASES_DIR.glob("*.toml")) for case in _load(path)]


@cache
def rules() -> dict[str, Rule]:
    """The shipped rules by code."""
    return {rule.code: rule for rule in load_pack(builtin_folder())}


def run(case: Case, folder: Path) -> Report:
    """Write the inputs of ``case`` into ``folder`` and analyse them with its rule."""
    log = None if case.log is None else case.log * case.log_times
    texts = {"run.log": log, "metrics.json": case.metrics, case.config_name: case.config}
    files = []
    for name, text in texts.items():
        if text is not None:
            (folder / name).write_text(text, encoding="utf-8")
            files.append(str(folder / name))
    traces = [_write_trace(case, folder / "trace.json")] if case.events else []
    return analyze(traces, [rules()[case.code]], logs=files)


def _load(path: Path) -> Iterator[Case]:
    for table in tomli.loads(path.read_text(encoding="utf-8"))["case"]:
        keys = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
        yield Case(code=path.stem, **keys)


def _write_trace(case: Case, path: Path) -> str:
    names = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": name}}
        for pid, name in _PROCESSES.items()
    ]
    thread = {"ph": "M", "name": "thread_name", "ts": 0, "args": {"name": "Synapse/python3"}}
    names.append({**thread, "pid": _ANNOTATED, "tid": _PLACES["compiler"][1]})
    events = [copy for event in case.events for copy in _copies(event)]
    document = {"deviceProperties": [{"name": case.device}], "traceEvents": names + events}
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def _copies(event: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    pid, tid, category = _PLACES[event["on"]]
    base = {"ph": "X", "pid": pid, "tid": tid, "cat": category, "args": {}}
    base |= {key: value for key, value in event.items() if key not in ("on", "repeat", "every")}
    for index in range(event.get("repeat", 1)):
        yield {**base, "ts": event["ts"] + index * event.get("every", 0)}
