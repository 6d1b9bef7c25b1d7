"""Formats text about the rates of ops and the peaks of devices, shared by all reports."""

from __future__ import annotations

import json

from perftool.model.chains import ChainPlace
from perftool.model.efficiency import Efficiency, OpRate
from perftool.model.unmodelled import why_no_model
from perftool.units import format_ns, format_ratio

_MOST_PEAKS = 4
# Rates below these, in TFLOP/s and TB/s, are shown in GFLOP/s and GB/s.
_SMALL_RATE, _SMALL_BANDWIDTH = 1.0, 0.1
# Winograd convolutions need fewer operations than the model counts, and caches reduce the number of bytes
# read from memory.
ABOVE_MODEL = "faster than modelled"


def shapes_text(op: OpRate | ChainPlace) -> str:
    """Format the shapes of the input tensors, as in ``8x16, 16x4``. Return "" if they were not recorded."""
    try:
        dims = json.loads(op.input_dims) if op.input_dims else []
    except (ValueError, RecursionError):
        return ""
    if not isinstance(dims, list):
        return ""
    shapes = [one for one in dims if isinstance(one, list) and one]
    return ", ".join("…" if isinstance(one[0], list) else "x".join(map(str, one)) for one in shapes)


def rate_text(op: OpRate) -> str:
    """Format the achieved rate, in bytes/s if the op is bound by memory, otherwise in FLOP/s. Return "" if it is
    unknown."""
    if op.tflops and (op.bound != "memory" or not op.tbytes):
        return _flops_text(op.tflops)
    return _bytes_text(op.tbytes) if op.tbytes else ""


def _flops_text(tera: float) -> str:
    return f"{tera:,.1f} TFLOP/s" if tera >= _SMALL_RATE else f"{tera * 1e3:,.1f} GFLOP/s"


def _bytes_text(tera: float) -> str:
    return f"{tera:,.2f} TB/s" if tera >= _SMALL_BANDWIDTH else f"{tera * 1e3:,.2f} GB/s"


def best_text(op: OpRate) -> str:
    """Return the op's share of the device's peak and what bounds it, or why the share is unknown."""
    if op.roofline_ratio is None:
        return why_no_model(op)
    return share_text(op.roofline_ratio, f" ({op.bound or 'differs'})")


def share_text(roofline_ratio: float, after: str = "") -> str:
    """Format a share of the device's peak, followed by ``after``; above 100 %, return ``ABOVE_MODEL``."""
    return ABOVE_MODEL if roofline_ratio > 1 else format_ratio(roofline_ratio) + after


def efficiency_notes(efficiency: Efficiency) -> list[str]:
    """Say what share of the peak all ops reach together, which peaks are assumed, and what the input lacks."""
    lines = []
    if efficiency.best_ns is not None and efficiency.bounded_ns:
        known = f"{format_ns(efficiency.bounded_ns)} of {format_ns(efficiency.work_ns)}"
        share = format_ratio(efficiency.best_ns / efficiency.bounded_ns)
        lines.append(
            f"The peak is known for {known} of work: at the peak, that work would take "
            f"{format_ns(efficiency.best_ns)}, {share} of the measured time"
        )
    if efficiency.peaks:
        rates = ", ".join(
            f"{peak.dtype} {_flops_text(peak.rate / 1e12)}{' (estimate)' if peak.estimate else ''}"
            for peak in efficiency.peaks[:_MOST_PEAKS]
        )
        first = efficiency.peaks[0]
        lines.append(f"Assumed for {first.device}: {rates}, {_bytes_text(first.bandwidth / 1e12)} ({first.source})")
    return [*lines, efficiency.missing] if efficiency.missing else lines
