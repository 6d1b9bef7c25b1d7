"""Statements that hold for every report, no matter what was recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perftool.engine.report.complete_steps import median_step_ns
from perftool.model.devices import find_device
from perftool.model.report import Report

TRAINING_ONLY = {"FUS101", "FUS102", "FUS105", "FUS107", "COL104", "COL107", "CPY104"}
LARGE = 0.2
# The names that advice uses for types of 16 bits or fewer and for TF32.
_TYPES = {"bf16": "with BF16", "tf32": "allow TF32", "fp16": "with FP16"}
_COLLECTIVE = re.compile(r"nccl|rccl|hccl|all_?reduce|all_?gather|reduce_?scatter", re.I)
_PERCENT = re.compile(r"([\d,]+(?:\.\d+)?) %")


def breaches(report: Report) -> Iterator[str]:
    """Yield the statements of ``report`` that cannot be true."""
    yield from _gains(report)
    yield from _percentages(report)
    yield from _causes(report)
    yield from _device(report)
    if report.run.kind == "inference":
        yield from (f"{f.code} on inference" for f in report.findings if f.code in TRAINING_ONLY)
        yield from (f"{f.code}: learning rate on inference" for f in report.findings if "learning rate" in f.fix)
    yield from _types(report)
    yield from _collectives(report)
    if not report.verdict.headline:
        yield "no headline"
    if any(not finding.advice for finding in report.advice):
        yield "trace health among the advice"


def _types(report: Report) -> Iterator[str]:
    """Advised data types must be supported by the matrix engines of a known device."""
    known = find_device(report.device.name or "")
    if known is None:
        return
    taken = {peak.dtype for peak in known.peaks if peak.unit == "matrix"}
    for finding in report.findings:
        advised = {kind for kind, text in _TYPES.items() if text in " ".join((finding.fix + finding.short_fix).split())}
        yield from (f"{finding.code} advises {kind} on {known.name}" for kind in sorted(advised - taken))


def _collectives(report: Report) -> Iterator[str]:
    """Time in collectives must count as communication, whichever library recorded them."""
    named = [row.name for row in report.top_device_ops if _COLLECTIVE.search(row.name)]
    if named and not report.summary["collective_time_ms"].value:
        yield f"{named[0]} is not communication"


def _gains(report: Report) -> Iterator[str]:
    """A gain must not exceed the step time, or the device's idle time if the fix saves only host time."""
    mean_ns = report.run.mean_step_ns
    # If most kernels are missing, the step time is unknown, and gains are compared with the recorded steps.
    step = mean_ns / 1e6 if mean_ns else report.summary["step_time_ms"].value or median_step_ns(report.steps) / 1e6
    idle = report.summary["device_idle_ratio"].value
    host_side = {rule.code for rule in report.rules if rule.relieves == "host"}
    one_rank = len(report.ranks) < 2
    for finding in report.findings:
        if finding.gain is None:
            continue
        if not finding.advice:
            yield f"{finding.code}: a gain for what concerns the trace"
        if not step or finding.gain.ns_per_step > step * 1e6 + 1:
            yield f"{finding.code}: gains more than the step"
        if finding.gain.share_of_step > 1:
            yield f"{finding.code}: gains more than all of a step"
        if finding.code in host_side and idle is not None and one_rank and finding.gain.share_of_step > idle + 1e-6:
            yield f"{finding.code}: gains more than the idle time"


def _percentages(report: Report) -> Iterator[str]:
    texts = [report.verdict.headline, report.verdict.below, *(finding.message for finding in report.findings)]
    for text in texts:
        yield from (f"{found} %: {text}" for found in _PERCENT.findall(text) if float(found.replace(",", "")) > 100.05)


def _causes(report: Report) -> Iterator[str]:
    """The verdict must name every cause of idle time above 20 % of the window."""
    window = report.summary["window_ms"].value
    named = {cause.name for cause in report.verdict.causes}
    for cause in report.idle_causes:
        if window and cause.total_ns > (LARGE + 1e-9) * window * 1e6 and cause.name not in named:
            yield f"{cause.name} takes {cause.share:.0%} and has no name"


def _device(report: Report) -> Iterator[str]:
    busy, idle, unknown = (report.summary[f"device_{what}_ratio"].value for what in ("busy", "idle", "unknown"))
    if busy is not None and idle is not None and abs(busy + idle - 1) > 1e-9:
        yield "busy and idle do not add up"
    if unknown is not None and not 0 <= unknown <= 1:
        yield "more unknown than there is"
    spent = sum(cause.total_ns for cause in report.idle_causes)
    metric = report.summary["device_idle_ratio"]
    if metric.numerator is not None and abs(spent - metric.numerator * 1e6) > 1000:
        yield "the causes of idle time do not add up to it"
