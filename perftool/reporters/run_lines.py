"""Writes a run and its ranks as JSON lines for a summary file."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from perftool import __version__
from perftool.engine.compare.run_side import mean_iterations
from perftool.engine.report.complete_steps import recorded_per_step, warm_up_steps
from perftool.model.report import RankSummary, Report
from perftool.model.trend import LINE_VERSION, TIME_FORMAT
from perftool.readers.files.finished import FileState
from perftool.reporters.json import dump
from perftool.reporters.naming import run_folder, run_name
from perftool.reporters.verdict import origin
from perftool.units import EARLIEST_DATE_NS, NS_PER_MS, NS_PER_S

_MOST_CODES = 5


def render_run_lines(report: Report, time: datetime, file: FileState | None = None, *, unrecognised: int = 0) -> bytes:
    """Write a line of JSON for the run and, if it has several ranks, one for each rank.

    ``time`` (UTC) is when the run was analysed. ``file`` is its trace, if that comes from a watched folder.
    ``unrecognised`` inputs count as lost. Unknown numbers are null.
    """
    head: dict[str, Any] = {
        **_start(run_name(report), time), "origin": origin(report), "device": report.device.name or report.device.type,
        "world_size": report.run.world_size or len(report.ranks) or None, "folder": run_folder(report),
        "recorded": _recorded(report), "lost": sum(bool(read.loss) for read in report.inputs) + unrecognised,
        "steps_from": report.run.steps_from or "", "step_unit": report.run.step_unit or "",
        "recorded_per_step_ms": _recorded_per_step_ms(report), "warm_up_steps": warm_up_steps(report.steps),
        "with_warm_up_ms": _recorded_per_step_ms(report, with_warm_up=True),
        "lost_kernels_ratio": _lost_kernels_ratio(report), "iteration_ms": _iteration_ms(report),
    }  # fmt: skip
    if file is not None:
        head["file"] = file.to_json()
    run = {
        **head, "rank": None, "metrics": {name: metric.value for name, metric in report.summary.items()},
        "findings": [finding.code for finding in report.advice[:_MOST_CODES]],
    }  # fmt: skip
    ranks = report.ranks if len(report.ranks) > 1 else ()
    return b"".join(map(dump, [run, *({**head, **_of_rank(rank, report)} for rank in ranks)]))


def render_unread_line(name: str, time: datetime) -> bytes:
    """Write the line of a trace that cannot be read. Without it, ``trend`` would judge the run before it as the newest.
    The line does not name the file, so that a restarted process tries to read the file again."""
    line = {
        **_start(name, time), "origin": "", "device": None, "world_size": None, "folder": "", "recorded": "", "lost": 1,
        "steps_from": "", "step_unit": "", "recorded_per_step_ms": None, "warm_up_steps": None, "with_warm_up_ms": None,
        "lost_kernels_ratio": None, "iteration_ms": {}, "rank": None, "metrics": {}, "findings": [],
    }  # fmt: skip
    return dump(line)


def _start(name: str, time: datetime) -> dict[str, Any]:
    return {"version": LINE_VERSION, "tool": __version__, "time": time.strftime(TIME_FORMAT), "name": name}


def _recorded(report: Report) -> str:
    """Return the start of the first step as ISO 8601 in UTC, or "" if times are not relative to 1970."""
    first = min((step.ts_ns for step in report.steps), default=0)
    if first < EARLIEST_DATE_NS:
        return ""
    return datetime.fromtimestamp(first // NS_PER_S, timezone.utc).strftime(TIME_FORMAT)


def _recorded_per_step_ms(report: Report, *, with_warm_up: bool = False) -> float | None:
    """Return the length of the recording per step, in ms, of the rank where it is largest. ``trend`` compares this
    value, as ``diff --fail-if`` does. Return None for a server, where the value depends on the requests."""
    if report.run.steps_from == "iteration":
        return None
    recorded = {one.rank: one.recorded_ns for one in report.ranks if one.recorded_ns is not None}
    ns = recorded_per_step(report.steps, recorded, with_warm_up=with_warm_up)
    return None if ns is None else ns / NS_PER_MS


def _iteration_ms(report: Report) -> dict[str, float]:
    means = mean_iterations(report.serving.phases if report.serving else ())
    return {phase: ns / NS_PER_MS for phase, ns in means.items()}


def _lost_kernels_ratio(report: Report) -> float | None:
    """Return the largest ratio of lost kernels of any rank, or None if the ratio is unknown for all ranks."""
    return max((one.lost_kernels_ratio for one in report.ranks if one.lost_kernels_ratio is not None), default=None)


def _of_rank(rank: RankSummary, report: Report) -> dict[str, Any]:
    codes = [finding.code for finding in report.advice if finding.rank == rank.rank]
    return {
        "rank": rank.rank, "host": rank.host, "metrics": rank_metrics(rank),
        "findings": list(dict.fromkeys(codes))[:_MOST_CODES],
    }  # fmt: skip


def rank_metrics(rank: RankSummary) -> dict[str, float | None]:
    """Return the summary metrics that are known for a single rank, by name."""
    known = None if rank.busy_ns is None or rank.idle_ns is None else rank.busy_ns + rank.idle_ns
    return {
        "steps": float(rank.steps),
        "step_time_ms": _ms(rank.step_ns),
        "window_ms": _ms(rank.window_ns),
        "device_busy_ratio": _ratio(rank.busy_ns, known),
        "device_idle_ratio": _ratio(rank.idle_ns, known),
        "kernel_time_ms": _ms(rank.compute_ns),
        "collective_time_ms": _ms(rank.collective_ns),
        "exposed_collective_ratio": _ratio(rank.exposed_ns, rank.window_ns),
    }


def _ms(ns: int | None) -> float | None:
    return None if ns is None else ns / NS_PER_MS


def _ratio(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None
