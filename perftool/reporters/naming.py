"""What to call a run, and how to say what it ran on."""

from __future__ import annotations

from collections.abc import Sequence

from perftool.model.inputs import InputFile
from perftool.model.report import Device, Report
from perftool.reporters.labels import format_metric
from perftool.units import format_ratio


def run_name(report: Report) -> str:
    """The name of the trace, or, of several ranks, of their folder; of the inputs when none is a trace."""
    traces = [read for read in report.inputs if read.kind == "trace"] or list(report.inputs)
    if not traces:
        return "no input"
    if len(traces) == 1:
        return _last(traces[0].path)
    ranks = {read.rank for read in traces} - {None}
    what = "ranks" if len(ranks) == len(traces) else "files"
    return f"{_folder(traces) or _last(traces[0].path) + ' ...'} ({len(traces)} {what})"


def device_name(device: Device) -> str:
    """The name of the device, or its type, with their number when there are several; empty when none was seen."""
    name = device.name or device.type or ""
    return f"{device.count} x {name}" if name and device.count > 1 else name


def facts(report: Report) -> list[str]:
    """Those that the input shows: the device, what the run does, its steps and their median, how busy the device is."""
    summary = report.summary
    known = [name for name in [device_name(report.device)] if name]
    steps, window = summary["steps"].value, summary["window_ms"].value
    if report.run.kind:
        known.append(report.run.kind)
    if steps:
        early = len({step.name for step in report.steps if step.left_out == "warm-up"})
        after = f" after {early} of warm-up" if early else ""
        known.append(
            f"{steps:.0f} step{'s' if steps > 1 else ''}{after}, median {format_metric(summary['step_time_ms'])}"
        )
    elif window is not None:
        known.append(f"{format_metric(summary['window_ms'])} without steps")
    busy = summary["device_busy_ratio"].value
    return [*known, *([f"busy {format_ratio(busy)}"] if busy is not None else [])]


def _folder(files: Sequence[InputFile]) -> str:
    folders = {read.path.replace("\\", "/").rpartition("/")[0] for read in files}
    return _last(folders.pop()) if len(folders) == 1 else ""


def _last(path: str) -> str:
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path
