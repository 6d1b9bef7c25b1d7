"""Removes a part of a recording. No sentence about the rest may claim what only the removed part showed."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from invariants import breaches
from recordings import FOLDER

from perftool.engine.analysis import analyze
from perftool.engine.report.causes import CLAUSES
from perftool.model.devices import known_devices
from perftool.model.report import Report

Events = list[dict[str, Any]]
Trace = dict[str, Any]
SAMPLES = Path(__file__).parents[2] / "sample_traces"
SHIPPED = [SAMPLES / "benchmarks" / "small_copies" / "naive" / "small_copies.json.gz"]
SHIPPED += [SAMPLES / "cpu" / f"{name}.json.gz" for name in ("unfused_optimizer", "many_small_ops")]
# Small recordings that cover stacks, detected steps, collectives, a graph, and a run without a device.
NAMES = ("mi300_bert_small", "rtx2080_linear", "cuda_nccl_ddp", "mi300_sglang_decode", "gpu_job_without_device_events")
RECORDED = [path for name in NAMES if (path := FOLDER / f"{name}.json.gz").is_file()]
_WORK = {"kernel", "memcpy", "memset", "gpu_memcpy", "gpu_memset"}
_HOST = {"cpu_op", "user_annotation", "python_function", "cuda_runtime", "cuda_driver"}
# The causes that idle time may have without host events.
_UNSEEN = {"unknown"}
# Rules whose findings need only shapes.
SHAPED = {
    "BAT102",
    "BAT104",
    "BAT105",
    "ENG104",
    "ENG113",
    "FUS111",
    "FUS113",
    "FUS114",
    "FUS115",
    "FUS116",
    "GAP113",
    "RCP102",
    "SRV106",
}


def side(device: bool) -> Callable[[Events], Events]:
    """Keep either the events of the device, whose lanes are separate processes, or all other events."""

    def chosen(events: Events) -> Events:
        lanes = {e["pid"] for e in events if str(e.get("cat", "")).lower() in _WORK}
        return [e for e in events if e.get("ph") == "M" or (e.get("pid") in lanes) is device]

    return chosen


def of(*cats: str) -> Callable[[Events], Events]:
    return lambda events: [event for event in events if str(event.get("cat", "")).lower() not in cats]


def without_stacks(events: Events) -> Events:
    kept = of("python_function")(events)
    return [{**e, "args": {k: v for k, v in e.get("args", {}).items() if k != "Call stack"}} for e in kept]


def without(*keys: str) -> Callable[[Events], Events]:
    """Return a function that removes the given arguments from events."""
    return lambda events: [{**e, "args": {k: v for k, v in e.get("args", {}).items() if k not in keys}} for e in events]


def without_machine(whole: Trace) -> Trace:
    """Return the recording without its device, its processor and the load of the cores."""
    told = ("deviceProperties", "perftoolRecording")
    return {key: value for key, value in whole.items() if key not in told and "version" not in key.lower()}


def in_events(change: Callable[[Events], Events]) -> Callable[[Trace], Trace]:
    return lambda whole: {**whole, "traceEvents": change(whole["traceEvents"])}


def one_thread(events: Events) -> Events:
    """Keep the busiest host thread and the device."""
    ops = Counter((e["pid"], e["tid"]) for e in events if e.get("cat") in _HOST)
    kept = ops.most_common(1)[0][0] if ops else None
    return [e for e in events if e.get("cat") not in _HOST or (e["pid"], e["tid"]) == kept]


def part(first: bool) -> Callable[[Events], Events]:
    def cut(events: Events) -> Events:
        times = [e["ts"] for e in events if e.get("ph") == "X"]
        middle = (min(times) + max(times)) / 2
        return [e for e in events if "ts" not in e or e.get("ph") == "M" or (e["ts"] < middle) is first]

    return cut


def thinned(events: Events) -> Events:
    return [e for number, e in enumerate(events) if e.get("ph") != "X" or number % 10 == 0]


def without_kernels(events: Events) -> Events:
    """Remove one in ten kernels, as if the profiler's buffer had overflowed."""
    work = [number for number, e in enumerate(events) if str(e.get("cat", "")).lower() == "kernel"]
    lost = set(work[::10])
    return [e for number, e in enumerate(events) if number not in lost]


def no_host(report: Report) -> list[str]:
    claimed = {cause.name for cause in report.idle_causes} - _UNSEEN
    said = [
        clause for name, clause in CLAUSES.items() if name not in _UNSEEN and clause in report.verdict.headline.lower()
    ]
    return [*claimed, *said, *(f.code for f in report.findings if f.advice and "host" in f.message and "gap" in f.name)]


def no_stacks(report: Report) -> list[str]:
    placed = [f"{f.code} at {s.file}" for f in report.findings for s in f.location.sources if s.file]
    needing = {rule.code for rule in report.rules if "frames" in rule.needs}
    return [*placed, *(f.code for f in report.findings if f.code in needing | {"GAP111"})]


def no_shapes(report: Report) -> list[str]:
    return [f.code for f in report.findings if f.code in SHAPED]


def no_types(report: Report) -> list[str]:
    return [f.code for f in report.findings if f.code in {"PRC102", "PRC104"}]


def no_annotations(report: Report) -> list[str]:
    return [report.run.steps_from] if report.run.steps_from not in (None, "copies") else []


def no_device(report: Report) -> list[str]:
    sentences = [report.verdict.headline, report.verdict.below, *(f.message for f in report.findings if f.advice)]
    known = [name for name in ("device_busy_ratio", "device_idle_ratio") if report.summary[name].value is not None]
    claims = [
        text for text in sentences if any(words in text for words in ("device is idle", "device waits", "device works"))
    ]
    return [
        *known,
        *claims,
        *(cause.name for cause in report.idle_causes),
        *(row.name for row in report.top_device_ops),
    ]


def no_idle_time(report: Report) -> list[str]:
    # One launch on a Gaudi runs many kernels, so it does not show how many are missing.
    if report.device.type == "hpu" or all(one.lost_kernels_ratio is None for one in report.ranks):
        return []
    known = [name for name in ("device_busy_ratio", "device_idle_ratio") if report.summary[name].value is not None]
    texts = [report.verdict.headline, report.verdict.below, *(f.message for f in report.findings if f.advice)]
    claims = [text for text in texts if any(words in text for words in ("device is idle", "device waits", "is lost"))]
    gains = [f.code for f in report.findings if f.gain]
    untold = [] if any(f.code == "TRC113" for f in report.findings) else ["TRC113"]
    return [*known, *claims, *gains, *untold, *(cause.name for cause in report.idle_causes)]


# The content of these tables is unknown if the machine is unknown.
OF_MACHINES = {"known_devices", "rated_devices", "device_facts", "machines", "machine_loads"}


def no_machine(report: Report) -> list[str]:
    told = [report.verdict.headline, report.verdict.below, *(f"{f.message} {f.fix}" for f in report.findings)]
    names = [name for device in known_devices() for name in (device.name, device.title)]
    rated = [name for name in ("roofline_ratio", "mfu_ratio", "hfu_ratio") if report.summary[name].value is not None]
    needing = {rule.code for rule in report.rules if OF_MACHINES.intersection(rule.needs)}
    return [
        *([report.device.name] if report.device.name else []),
        *rated,
        *(f.code for f in report.findings if f.code in needing),
        *(text for text in told if any(name in text for name in names) or re.search(r"at [\d.]+ % of (its|the)", text)),
    ]


def nothing(report: Report) -> list[str]:
    return []


CHANGES: dict[str, tuple[Callable[[Trace], Trace], Callable[[Report], list[str]]]] = {
    "host": (in_events(side(device=True)), no_host),
    "stacks": (in_events(without_stacks), no_stacks),
    "annotations": (in_events(of("user_annotation")), no_annotations),
    "device": (in_events(side(device=False)), no_device),
    "shapes": (in_events(without("Input Dims", "Input Strides", "Concrete Inputs")), no_shapes),
    "types, numbers of autograd": (in_events(without("Input type", "Sequence number")), no_types),
    "machine": (without_machine, no_machine),
    "first half, threads": (in_events(lambda events: one_thread(part(first=False)(events))), nothing),
    "last half": (in_events(part(first=True)), nothing),
    "most": (in_events(thinned), nothing),
    "a tenth of the kernels": (in_events(without_kernels), no_idle_time),
}


def taken_from() -> Iterator[Any]:
    """Pair each change with one shipped and one recorded trace. Nearly all of these contain what the change removes.
    If the rest of a recording proves nothing in particular, one of the two is enough.
    """
    for number, (taken, (_, claims)) in enumerate(CHANGES.items()):
        some = [RECORDED[number % len(RECORDED)]] if RECORDED else []
        if claims is not nothing or not some:
            some.append(SHIPPED[number % len(SHIPPED)])
        yield from (pytest.param(path, taken, id=f"{path.name}-{taken}") for path in some)


@pytest.mark.parametrize(("path", "taken"), taken_from())
def test_removed_evidence_is_not_claimed(path: Path, taken: str, tmp_path: Path) -> None:
    change, claims = CHANGES[taken]
    whole = json.loads(gzip.decompress(path.read_bytes()))
    left = change(whole)
    if left == whole:
        pytest.skip("the recording holds nothing of that")
    changed = tmp_path / "trace.json"
    changed.write_text(json.dumps(left))
    report = analyze([str(changed)])

    assert list(breaches(report)) == []
    assert claims(report) == []


# The description of a processor with its measured peaks, as `record` writes it.
PROCESSOR = {
    "version": 1,
    "machine": {"processor": "Intel(R) Xeon(R) Processor", "cores": 2, "cores_allowed": 2},
    "process": {"torch": "2.13.0+cpu", "threads": 2},
    "peaks": {"products": {"fp32": 3e11}, "memory_bandwidth": 2e10},
}


def test_facts_of_a_processor_are_claimed_only_where_they_are_recorded(tmp_path: Path) -> None:
    whole = json.loads(gzip.decompress((SAMPLES / "cpu" / "unfused_optimizer.json.gz").read_bytes()))
    reports = []
    for number, trace in enumerate(({**whole, "perftoolRecording": PROCESSOR}, whole)):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(trace))
        reports.append(analyze([str(path)]))

    assert reports[0].device.name in no_machine(reports[0])
    assert no_machine(reports[1]) == []
