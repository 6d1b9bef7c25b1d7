"""The JSON report follows version 1 of the contract for traces of every kind."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from events import Event, document, kernel, launch, loader, runtime, step, x

from perftool.engine.analysis import analyze
from perftool.model.metrics import metric_kinds, metric_names
from perftool.model.report import BREAKDOWN
from perftool.reporters.json import render_json

Number = (int, float)
NONE = type(None)
TEXT, WHOLE, BOOL = (str,), (int,), (bool,)
PLACE = {"track": (str, int, NONE), "step": (int, NONE), "ts_ns": (int, NONE), "dur_ns": (int, NONE)}
SOURCE = {"file": (str, NONE), "line": (int, NONE), "function": TEXT}
WEIGHT = {"ns": WHOLE, "share": Number}
CODE_PLACE = {**PLACE, "source": SOURCE, "sources": [SOURCE | WEIGHT]}
# The types of each key. A dict describes an object, and a list describes any number of values of its single type.
CONTRACT: dict[str, Any] = {
    "version": WHOLE,
    "tool": {"name": TEXT, "version": TEXT},
    "inputs": [{
        "path": TEXT, "kind": TEXT, "rank": (int, NONE), "bytes": WHOLE, "events": WHOLE, "status": TEXT,
        "issues": [{"kind": TEXT, "count": WHOLE, "message": TEXT}],
    }],
    "omitted": [TEXT],
    "device": {"type": (str, NONE), "name": (str, NONE), "count": WHOLE},
    "run": {"kind": (str, NONE)},
    "verdict": {"headline": TEXT, "detail": TEXT, "causes": [{
        "name": TEXT, "text": TEXT, "share": Number, "ns_per_step": WHOLE, "codes": [TEXT], "longest": PLACE,
    }]},
    "summary": {
        name: {"value": (*Number, NONE), "unit": TEXT, "numerator": (*Number, NONE), "denominator": (*Number, NONE)}
        for name in metric_names()
    },
    "steps": [{"rank": WHOLE, "name": TEXT, "ts_ns": WHOLE, "dur_ns": WHOLE,
               "breakdown_ns": dict.fromkeys(BREAKDOWN, WHOLE)}],
    "ranks": [{
        "rank": WHOLE, "status": TEXT, "steps": WHOLE,
        **dict.fromkeys(
            ("step_ns", "window_ns", "busy_ns", "idle_ns", "compute_ns", "collective_ns", "exposed_ns", "waited_ns",
             "offset_ns", "spread_ns"), (int, NONE)),
    }],
    "findings": [{
        "code": TEXT, "name": TEXT, "severity": TEXT, "confidence": TEXT, "subject": TEXT, "message": TEXT, "why": TEXT,
        "fix": TEXT, "rank": (int, NONE), "location": CODE_PLACE, "related": [PLACE], "evidence": (dict,),
        "gain": {"ns_per_step": WHOLE, "share_of_step": Number, "kind": TEXT}, "fingerprint": TEXT, "suppressed": BOOL,
        "benchmark": (str, NONE), "advice": BOOL, "url": (str, NONE),
    }],
    "not_applicable": [{"code": TEXT, "reason": TEXT}],
}  # fmt: skip
NULLABLE = {"gain", "longest", "source"}
PROMISED = {
    "steps", "step_time_ms", "device_busy_ratio", "device_idle_ratio", "kernel_time_ms", "collective_time_ms",
    "exposed_collective_ratio", "mme_time_ms", "tpc_time_ms", "dma_time_ms", "mme_tpc_overlap_ms", "engines_idle_ms",
    "mme_low_precision_ratio", "device_host_overlap_ratio", "dataloader_ratio", "graph_build_ratio",
    "input_copy_ratio", "compile_ratio", "compilations", "fallback_ops", "syncs_per_step", "peak_memory_bytes",
}  # fmt: skip


def breaches(shape: Any, value: Any, place: str = "report") -> list[str]:
    """Return the places where ``value`` lacks a key of ``shape`` or has a value of the wrong type. Additional keys are
    allowed.
    """
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [f"{place}: no object"]
        missing = [f"{place}.{key}: missing" for key in shape if key not in value]
        return missing + [
            problem
            for key, inner in shape.items()
            if key in value and not (key in NULLABLE and value[key] is None)
            for problem in breaches(inner, value[key], f"{place}.{key}")
        ]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{place}: no list"]
        return [problem for at, item in enumerate(value) for problem in breaches(shape[0], item, f"{place}[{at}]")]
    return [] if type(value) in shape else [f"{place}: {type(value).__name__}"]


TRACES: dict[str, list[Event]] = {
    "nothing": [],
    # An annotation computes nothing, so this trace does not even show that the CPU works.
    "host alone": [x("forward", 0, 10)],
    "device alone": [kernel("k", 0, 10)],
    "starved": [
        step(1, 0, 1000), loader(0, 800), *launch(1, 810, 5, 820, 100), step(2, 1000, 900),
        *launch(2, 1010, 5, 1020, 90),
    ],
    "odd": [step(1, 0, 100), kernel("impossible", 10, 10**9), runtime("cudaDeviceSynchronize", 20, 60)],
}  # fmt: skip


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The JSON reports on ``TRACES``."""
    path = tmp_path_factory.mktemp("traces") / "trace.json"
    found = {}
    for name, events in TRACES.items():
        path.write_bytes(document(events))
        found[name] = render_json(analyze([str(path)]))
    return found


@pytest.mark.parametrize("trace", TRACES)
def test_the_report_keeps_the_contract(trace: str, rendered: dict[str, bytes]) -> None:
    printed = rendered[trace]
    report = json.loads(printed)
    assert breaches(CONTRACT, report) == []
    assert report["version"] == 1
    assert printed == orjson.dumps(
        report, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    )
    assert all(sum(one["breakdown_ns"].values()) == one["dur_ns"] for one in report["steps"])
    assert all(0 <= one["gain"]["share_of_step"] <= 1 for one in report["findings"] if one["gain"])


def test_findings_are_in_the_report(rendered: dict[str, bytes]) -> None:
    report = json.loads(rendered["starved"])
    assert {"GAP101", "GAP102"} <= {finding["code"] for finding in report["findings"]}
    assert report["summary"]["dataloader_ratio"]["value"] == pytest.approx(0.8 / 1.9)


def test_the_summary_has_every_promised_metric_with_its_unit() -> None:
    assert set(metric_names()) >= PROMISED
    assert {kind.unit for kind in metric_kinds()} <= {"ratio", "ms", "count", "bytes", "per_s"}


def test_the_check_finds_breaches() -> None:
    broken = {"tool": {"name": 1}, "steps": [{"rank": True}]}
    assert {"report.version: missing", "report.tool.name: int", "report.steps[0].rank: bool"} <= set(
        breaches(CONTRACT, broken)
    )


@pytest.mark.parametrize("trace", ["nothing", "host alone"])
def test_a_missing_signal_is_null_and_never_zero(trace: str, rendered: dict[str, bytes]) -> None:
    summary = json.loads(rendered[trace])["summary"]
    device = [
        name for name in PROMISED if name.startswith(("device_", "kernel_", "collective_", "mme_", "tpc_", "dma_"))
    ]
    assert {
        name: summary[name]["value"] for name in [*device, "engines_idle_ms", "peak_memory_bytes"]
    } == dict.fromkeys([*device, "engines_idle_ms", "peak_memory_bytes"])
