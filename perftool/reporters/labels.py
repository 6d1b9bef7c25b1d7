"""Formats the metrics of the summary, and what bounds a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perftool.model.metrics import Unit, metric_kinds
from perftool.model.replayed import BoundShare
from perftool.model.report import Metric, Report
from perftool.model.words import kind_label, of_steps
from perftool.units import format_bytes, format_count, format_ns, format_ratio

# Smaller shares of the step are not listed.
_NAMED = 0.005


def listed_metrics(report: Report) -> Iterator[tuple[str, Metric]]:
    """Yield the label and value of every metric that applies to the device; serving metrics only if known."""
    for kind in metric_kinds():
        metric = report.summary[kind.name]
        is_missing = metric.value is None and kind.serving
        label = kind.label_for(report.device.type)
        if label is not None and not is_missing:
            yield of_steps(label, report.run.step_word), metric


def format_metric(metric: Metric) -> str:
    """Format the value of ``metric``, which must not be None, with its unit."""
    assert metric.value is not None
    return format_value(metric.value, metric.unit)


def format_value(value: float, unit: Unit) -> str:
    """Format the value of a metric with its unit."""
    if unit == "ratio":
        return format_ratio(value)
    if unit == "ms":
        return format_ns(value * 1e6)
    if unit == "per_s":
        return f"{format_count(value)}/s"
    return format_bytes(value) if unit == "bytes" else format_count(value)


def bounds_text(bounds: Sequence[BoundShare]) -> str:
    """List what bounds the step, as shares of the step: ``host 62.0 %, kernels 30.1 %``."""
    return ", ".join(f"{kind_label(b.kind)} {format_ratio(b.share)}" for b in bounds if b.share >= _NAMED)
