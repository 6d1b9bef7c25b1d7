"""Worker processes need free cores to save time. If no core was free, or if the trace does not say whether one
was, the gain is a bound.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from stores import findings_of

from perftool.engine.analysis import analyze
from perftool.engine.rules.pack import shipped_rules
from perftool.model.recorded_on import RECORDED_KEY
from perftool.model.report import Finding
from perftool.replay.cores import Cores

LOADING = [rule for rule in shipped_rules() if rule.code == "GAP102"]
FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def machine(cores: float, own_us: int, busy_us: int, delay_us: int = 0, count: int = 0) -> dict[str, Any]:
    """Return the facts recorded about six steps of 60 ms. PyTorch has ``count`` threads (0: unknown)."""
    threads = [{"tid": 1, "name": "python", "cpu_ns": 360_000_000 - 1000 * delay_us, "delay_ns": 1000 * delay_us}]
    window = {"wall_ns": 360_000_000, "cpu_ns": 1000 * own_us, "machine_cpu_ns": 1000 * busy_us, "threads": threads}
    return {"version": 1, "machine": {"cores_allowed": cores}, "process": {"threads": count or None}, "window": window}


def trace(folder: Path, recorded: dict[str, Any] | None, device: bool = False) -> Path:
    """Write a trace of six steps of 60 ms: 20 ms for a batch, then 40 ms of work on the host or on a device."""
    events: list[dict[str, Any]] = []
    for number in range(6):
        at = 60_000 * number
        here = {"ph": "X", "pid": 1, "tid": 1}
        events += [
            {**here, "cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": at, "dur": 60_000},
            {**here, "cat": "user_annotation", "name": FETCH, "ts": at, "dur": 20_000},
            {**here, "cat": "cpu_op", "name": "aten::mm", "ts": at + 20_000, "dur": 39_900},
        ]
        if device:
            link = {"correlation": number + 1}
            events += [
                {**here, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 20_010, "dur": 5, "args": link},
                {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "gemm", "ts": at + 20_020, "dur": 39_800,
                 "args": link},
                {**here, "cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "ts": at + 20_100, "dur": 39_730},
            ]  # fmt: skip
    path = folder / "trace.json"
    path.write_text(json.dumps({**({RECORDED_KEY: recorded} if recorded else {}), "traceEvents": events}))
    return path


def loader(trace: Path) -> Finding:
    (found,) = findings_of([str(trace)], LOADING)
    return found


def test_free_cores_make_a_prediction(tmp_path: Path) -> None:
    finding = loader(trace(tmp_path, machine(8, 360_000, 400_000)))

    assert finding.gain
    assert (finding.gain.kind, finding.gain.ns_per_step) == ("predicted", 20_000_000)
    assert "cores" not in finding.message


def test_busy_cores_make_a_bound_with_a_reason(tmp_path: Path) -> None:
    """Both cores are busy 95 % of the time, so workers would save little, but loading cheaper batches could still save
    the whole wait.
    """
    finding = loader(trace(tmp_path, machine(2, 684_000, 684_000)))

    assert finding.gain
    assert (finding.gain.kind, finding.gain.ns_per_step) == ("bound", 20_000_000)
    assert finding.message.endswith("; workers need cores, but the 2 cores that the run may use were 95.0 % busy")


def test_unknown_cores_make_a_bound(tmp_path: Path) -> None:
    finding = loader(trace(tmp_path, None))

    assert finding.gain
    assert (finding.gain.kind, finding.gain.ns_per_step) == ("bound", 20_000_000)
    assert finding.message.endswith("; the trace does not say how many cores the machine has for workers")


def test_a_device_leaves_the_cores_to_the_workers(tmp_path: Path) -> None:
    gain = loader(trace(tmp_path, None, device=True)).gain
    assert gain
    assert gain.kind == "predicted"


def test_an_overloaded_machine_is_reported_and_gains_are_bounds(tmp_path: Path) -> None:
    report = analyze([str(trace(tmp_path, machine(8, 360_000, 400_000, delay_us=180_000)))])

    assert [f.gain and f.gain.kind for f in report.findings if f.code == "GAP102"] == ["bound"]
    assert report.verdict.caveats.startswith(
        "The machine was overloaded: threads of the run waited for a core for 50.0 % of the"
    )
    assert report.model is not None
    assert "the machine was overloaded" in str(report.model.why_not)


@pytest.mark.parametrize(
    ("own_us", "threads", "by_itself"), [(700_000, 3, True), (400_000, 3, False), (700_000, 2, False)]
)
def test_a_run_with_more_threads_than_cores_overloads_itself(
    own_us: int, threads: int, by_itself: bool, tmp_path: Path
) -> None:
    report = analyze([str(trace(tmp_path, machine(2, own_us, 710_000, 180_000, threads)))])

    assert report.verdict.caveats.startswith("The run has more busy threads than cores: ") == by_itself
    assert report.verdict.caveats.startswith("The machine was overloaded: ") != by_itself


def test_a_finding_precedes_python_that_may_be_waiting_for_a_core(tmp_path: Path) -> None:
    """The update takes 30 ms. For 20 ms of that time, the thread runs Python or waits."""
    path = trace(tmp_path, machine(8, 360_000, 400_000, delay_us=180_000))
    whole = json.loads(path.read_text())
    events = [event for event in whole["traceEvents"] if event["name"].startswith("ProfilerStep")]
    update = ("aten::mul_", "aten::lerp_", "aten::addcmul_", "aten::sqrt", "aten::addcdiv_", "aten::add_")
    for number in range(6):
        at, here = 60_000 * number, {"ph": "X", "pid": 1, "tid": 1}
        events += [
            {**here, "cat": "user_annotation", "name": "Optimizer.step#AdamW.step", "ts": at, "dur": 30_000},
            *({**here, "cat": "cpu_op", "name": name, "ts": at + 1000 * place, "dur": 990}
              for place, name in enumerate(update * 5)),
            {**here, "cat": "cpu_op", "name": "aten::mm", "ts": at + 30_000, "dur": 10_000},
            {**here, "cat": "python_function", "name": "train.py(3): shuffle", "ts": at + 40_000, "dur": 19_990},
        ]  # fmt: skip
    path.write_text(json.dumps({**whole, "traceEvents": events}))
    report = analyze([str(path)])

    assert report.advice[0].code == "FUS101"
    assert report.advice[0].gain is not None
    # The bound is the time of the loop.
    assert report.advice[0].gain.ns_per_step == 29_990_000
    assert report.verdict.headline.startswith("Up to 50.0 % of each step is lost: the optimizer ")
    assert report.verdict.caveats.startswith("The machine was overloaded: ")


@pytest.mark.parametrize(
    ("cores", "least_ns", "lacks"),
    [
        (Cores(8, 2.0, 0.0), 0, False),
        (Cores(2, 1.0, 0.5), 67, True),
        (Cores(2, 1.0, 1.5), 100, True),
        (Cores(), 0, True),
    ],
    ids=["enough", "shared", "none left", "unknown"],
)
def test_work_needs_cores_wherever_it_is_done(cores: Cores, least_ns: int, lacks: bool) -> None:
    found, why = cores.least_step(100, 60, on_device=False)
    assert (found, why is not None) == (least_ns, lacks)


@pytest.mark.parametrize(
    "recorded",
    [[], {"version": 2}, {"version": 1}, {"version": 1, "machine": 3, "window": {"wall_ns": "x", "threads": [3]}},
     {"version": 1, "window": {"wall_ns": 10**400, "threads": {"a": 1}}, "machine": {"cores_quota": -1}}],
    ids=["list", "newer", "bare", "wrong types", "huge"],
)  # fmt: skip
def test_damaged_facts_are_ignored(tmp_path: Path, recorded: Any) -> None:
    gain = loader(trace(tmp_path, recorded)).gain
    assert gain
    assert gain.kind == "bound"
