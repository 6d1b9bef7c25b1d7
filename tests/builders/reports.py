"""A small run with content for every section of a report, with its report and its charts."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from events import Event, document, instant, kernel, loader, memcpy, meta, runtime, step, x

from perftool.engine.analysis import report_on
from perftool.engine.drawing.pictures import pictures_of
from perftool.model.pictures import Pictures
from perftool.model.report import Finding, Gain, Location, Report
from perftool.model.rule import Advice, Rule
from perftool.store.trace_store import TraceStore


def starved(kernel_name: str = "gemm", op_name: str = "aten::mm") -> list[Event]:
    """Return three steps of 10 ms: 6 ms of waiting for a batch, a copy, then 3 ms of kernels. Memory is recorded.

    All lengths differ, so that every ranking has only one possible order.
    """
    events = [meta("thread_name", "thread 1 (python)")]
    for number, at in enumerate((0, 10_000, 20_000), 1):
        events += [
            step(number, at, 9_990),
            loader(at + 10, 6_000 + 10 * number),
            x(op_name, at + 6_100, 200),
            runtime("cudaMemcpyAsync", at + 6_120, 50 + number, number * 10),
            memcpy("Memcpy HtoD (Pageable -> Device)", at + 6_150, 300 + number, number * 10),
            runtime("cudaLaunchKernel", at + 6_200, 20 + number, number * 10 + 1),
            kernel(kernel_name, at + 6_500, 3_000 + number, number * 10 + 1),
        ]
        sizes = {"Device Type": 1, "Device Id": 0, "Addr": number, "Total Reserved": 4 << 20}
        events.append(instant("[memory]", at + 6_300, Bytes=1 << 20, **sizes, **{"Total Allocated": number << 20}))
    return events


def finding(**changes: Any) -> Finding:
    """Return a finding of ``RULE`` about the second batch of ``starved``. No other rule of the pack affects it."""
    made = Finding(
        code=RULE.code, name=RULE.name, severity=RULE.severity, confidence=RULE.confidence, subject="loader",
        message="the loader keeps the device waiting", why=RULE.why, fix=RULE.fix.whole,
        short_fix=RULE.short_fix.whole, rank=0,
        location=Location(None, 2, 10_010_000, 6_020_000), related=(Location(None, 2, 10_010_000, 6_020_000, "next"),),
        evidence={"wait_ns": 6_020_000, "batches": 3, "wait_ratio": 0.6}, gain=Gain(6_000_000, 0.6),
        fingerprint="0123456789abcdef", benchmark="loader",
    )  # fmt: skip
    return replace(made, **changes)


RULE = Rule(
    code="GAP901", name="slow-loader", summary="The device waits for data", severity="warning", confidence="high",
    status="stable", since="0.1", devices=("any",), tags=(), needs=(), benchmark="loader", params=(), sql=None,
    message="", why="It starves.", fix=Advice((("any", "Load ahead."),)),
    short_fix=Advice((("any", "Load ahead"),)), example="# write\nloader = DataLoader(data, num_workers=8)",
    references=("https://example.org/loading",),
)  # fmt: skip


def reported(*traces: list[Event], findings: Sequence[Finding] = (), **metadata: Any) -> Report:
    """Return a report on ``traces``. Each trace is one rank, in a file named ``rank0.json`` and so on."""
    return replace(_opened(traces, metadata)[1], findings=tuple(findings))


def analysed(*traces: list[Event], findings: Sequence[Finding] = (), **metadata: Any) -> tuple[Report, Pictures]:
    """Return the report from ``reported``, and its charts."""
    report = reported(*traces, findings=findings, **metadata)
    return report, pictures_of(_opened(traces, metadata)[0], report)


# The last few stores with their reports, and what closes them. They are kept because many tests change only the
# findings. There are few because an open store takes tens of megabytes.
_OPEN: dict[tuple[bytes, ...], tuple[TraceStore, Report, ExitStack]] = {}
_MOST_OPEN = 4


def _opened(traces: Sequence[list[Event]], metadata: Mapping[str, Any]) -> tuple[TraceStore, Report]:
    documents = tuple(document(events, **metadata) for events in traces)
    store, report, until = _OPEN.pop(documents, None) or _read(documents)
    _OPEN[documents] = store, report, until
    if len(_OPEN) > _MOST_OPEN:
        _close_first()
    return store, report


def _read(documents: Sequence[bytes]) -> tuple[TraceStore, Report, ExitStack]:
    with ExitStack() as until:
        folder, store = until.enter_context(tempfile.TemporaryDirectory()), until.enter_context(TraceStore())
        for number, trace in enumerate(documents):
            path = Path(folder) / f"rank{number}.json"
            path.write_bytes(trace)
            store.add_trace(str(path))
        report = report_on(store, (RULE,))
        named = tuple(replace(one, path=Path(one.path).name) for one in report.inputs)
        return store, replace(report, inputs=named), until.pop_all()


def _close_first() -> None:
    _OPEN.pop(next(iter(_OPEN)))[2].close()


@atexit.register
def _close_all() -> None:
    while _OPEN:
        _close_first()
