"""How ops and peaks are written in every report."""

from __future__ import annotations

import json

from perftool.model.efficiency import Efficiency, OpRate
from perftool.units import format_ns, format_ratio

_MOST_PEAKS = 4
# Kernels that need fewer operations or bytes than the formula of their op counts: Winograd's convolutions, caches.
ABOVE_MODEL = "above its model"


def shapes_text(op: OpRate) -> str:
    """The shapes of the tensors among the inputs, as ``8x16, 16x4``; empty where none is recorded."""
    try:
        dims = json.loads(op.input_dims) if op.input_dims else []
    except (ValueError, RecursionError):
        return ""
    if not isinstance(dims, list):
        return ""
    shapes = [one for one in dims if isinstance(one, list) and one]
    return ", ".join("…" if isinstance(one[0], list) else "x".join(map(str, one)) for one in shapes)


def rate_text(op: OpRate) -> str:
    """What it reached: operations where these bound it, else bytes."""
    if op.tflops and (op.bound != "memory" or not op.tbytes):
        return f"{op.tflops:,.1f} TFLOP/s"
    return f"{op.tbytes:,.2f} TB/s" if op.tbytes else ""


def best_text(op: OpRate) -> str:
    """Its share of the device's best, and what bounds that."""
    if op.roofline_ratio is None:
        return "no model" if op.bytes is None and op.kind != "collective" else ""
    return share_text(op.roofline_ratio, f" ({op.bound or 'differs'})")


def share_text(roofline_ratio: float, after: str = "") -> str:
    """A share of the device's best and what comes ``after`` it; a share above all of it is none."""
    return ABOVE_MODEL if roofline_ratio > 1 else format_ratio(roofline_ratio) + after


def efficiency_notes(told: Efficiency) -> list[str]:
    """What was assumed, what all comes to, and what the input lacks."""
    lines = []
    if told.best_ns is not None and told.bounded_ns:
        known = f"{format_ns(told.bounded_ns)} of {format_ns(told.work_ns)}"
        share = format_ratio(told.best_ns / told.bounded_ns)
        lines.append(f"{known} of work have a known best: {format_ns(told.best_ns)}, {share} of what they took")
    if told.peaks:
        rates = ", ".join(
            f"{peak.dtype} {peak.rate / 1e12:,.1f} TFLOP/s{' (estimate)' if peak.estimate else ''}"
            for peak in told.peaks[:_MOST_PEAKS]
        )
        first = told.peaks[0]
        lines.append(f"Assumed of {first.device}: {rates}, {first.bandwidth / 1e12:.2f} TB/s ({first.source})")
    return [*lines, told.missing] if told.missing else lines
