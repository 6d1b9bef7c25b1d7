"""How reports describe a run and its device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from perftool.engine.report.complete_steps import median_step_ns, of_slowest_rank
from perftool.model.inputs import InputFile
from perftool.model.links import without_query
from perftool.model.report import Device, RankSummary, Report
from perftool.reporters.escape import one_line
from perftool.units import format_ns, format_ratio, ranks_text, with_date

_MOST_HOSTS = 4
_CLEARLY = 1.05


def device_word(report: Report) -> str:
    """Return ``CPU`` for a run without an accelerator, otherwise ``device``."""
    return "CPU" if report.device.type == "cpu" else "device"


def run_title(report: Report) -> str:
    """Return the name of the run, with its timestamp in nanoseconds replaced by a date in UTC."""
    return with_date(run_name(report))


def run_name(report: Report) -> str:
    """Return the name of the trace, of the folder of several traces, or of other inputs."""
    traces = [read for read in report.inputs if read.kind == "trace"] or list(report.inputs)
    if not traces:
        return "no input"
    if len(traces) == 1:
        return _last(traces[0].path)
    ranks = {read.rank for read in traces} - {None}
    what = "ranks" if len(ranks) == len(traces) else "files"
    return f"{_folder(traces) or _parent(traces) or _last(traces[0].path) + ' ...'} ({len(traces)} {what})"


def run_folder(report: Report) -> str:
    """Return the name of the folder of the traces, or "" for the working directory and for several folders."""
    return _folder([read for read in report.inputs if read.kind == "trace"])


def device_name(device: Device) -> str:
    """Return the name or type of the device, prefixed with the count if there are several, or "" without a device."""
    name = device.name or device.type or ""
    return f"{device.count} x {name}" if name and device.count > 1 else name


def facts(report: Report) -> list[str]:
    """List what is known, as short phrases: the device, how the ranks are parallelised, their hosts, the kind of run,
    its steps and their length, and the busy share of the device."""
    summary = report.summary
    known = [name for name in [device_name(report.device)] if name]
    steps, window = summary["steps"].value, summary["window_ms"].value
    if report.run.parallel:
        known.append(report.run.parallel)
    if hosts := _hosts(report.ranks):
        known.append(hosts)
    if report.run.kind:
        known.append(report.run.kind)
    if steps:
        early = len({step.name for step in report.steps if step.left_out == "warm-up"})
        after = f" after {early} warm-up {report.run.step_word}{'s' if early > 1 else ''}" if early else ""
        average, time = step_time(report)
        rest = "" if average == "median" or report.run.lengths else f", median {_median_step(report)}"
        single = round(steps) == 1 and len(report.ranks) == 1
        length = f" of {time}{after}" if single else f"{after}, {average} {time}{rest}"
        slowest = _slowest_rank(report) if average == "median" else ""
        known.append(f"{steps_text(report, round(steps))}{length}{slowest}")
    elif window is not None:
        # The window of a run is the sum of its ranks' windows.
        known.append(f"{format_ns(round(window * 1e6 / max(len(report.ranks), 1)))} without steps")
    busy = summary["device_busy_ratio"].value
    return [*known, *([_busy(report, busy)] if busy is not None else [])]


def step_time(report: Report) -> tuple[str, str]:
    """Return the name and value of the average that describes a step: the median, or the mean if steps are uneven."""
    mean_ns = report.run.mean_step_ns
    return ("mean", format_ns(mean_ns)) if mean_ns else ("median", _median_step(report))


def _median_step(report: Report) -> str:
    return format_ns(median_step_ns(report.steps))


def _slowest_rank(report: Report) -> str:
    """Return the median step of the slowest rank if it is clearly longer than that of all ranks."""
    slowest = of_slowest_rank(report.steps)
    slowest_ns = median_step_ns(slowest)
    clear = slowest_ns > _CLEARLY * median_step_ns(report.steps)
    return f" (rank {slowest[0].rank}: {format_ns(slowest_ns)})" if clear else ""


def _hosts(ranks: Sequence[RankSummary]) -> str:
    """List the ranks of each host. Return "" if a host is unknown, for a single host, and for more than
    ``_MOST_HOSTS``."""
    places: dict[str, list[int]] = {}
    for rank in ranks:
        places.setdefault(one_line(rank.host or ""), []).append(rank.rank)
    if "" in places or not 1 < len(places) <= _MOST_HOSTS:
        return ""
    return "; ".join(f"{host}: {ranks_text(own)}" for host, own in sorted(places.items()))


def steps_text(report: Report, steps: int) -> str:
    """Return the number of recorded steps, per rank if there are several."""
    counts = sorted({rank.steps for rank in report.ranks if rank.status == "ok" and rank.steps})
    least, most = (counts[0], counts[-1]) if counts else (steps, steps)
    ending = "s" if most > 1 else ""
    return f"{least} to {most} {report.run.step_word}s" if least < most else f"{most} {report.run.step_word}{ending}"


def _busy(report: Report, ratio: float) -> str:
    """Return the busy share of the device, without the time collectives spend waiting for other ranks."""
    # On a CPU, collectives run on their own threads, so compute goes on while they wait.
    if report.device.type == "cpu":
        return f"busy {format_ratio(ratio)}"
    waiting = sum(map(_waiting_ns, report.ranks))
    recorded = sum((rank.busy_ns or 0) + (rank.idle_ns or 0) for rank in report.ranks if rank.waited_ns is not None)
    if len(report.ranks) < 2 or waiting < 0.01 * recorded or not recorded:
        return f"busy {format_ratio(ratio)}"
    share = waiting / recorded
    return f"busy {format_ratio(max(0.0, ratio - share))}, waiting for ranks {format_ratio(share)}"


def _waiting_ns(rank: RankSummary) -> int:
    """Return how long the rank waits for others while nothing else runs, in ns. This is a lower bound: it assumes that
    all overlapped collective time is waiting."""
    return max(0, (rank.waited_ns or 0) - ((rank.collective_ns or 0) - (rank.exposed_ns or 0)))


def _folder(files: Sequence[InputFile]) -> str:
    folders = {read.path.replace("\\", "/").rpartition("/")[0] for read in files}
    return _last(folders.pop()) if len(folders) == 1 else ""


def _parent(files: Sequence[InputFile]) -> str:
    """Return the name of the innermost folder that contains all ``files``, or "" for the working directory."""
    parts = zip(*(read.path.replace("\\", "/").split("/")[:-1] for read in files), strict=False)
    common = [same[0] for same in takewhile(lambda part: len(set(part)) == 1, parts)]
    return common[-1] if common else ""


def _last(path: str) -> str:
    return without_query(path).replace("\\", "/").rstrip("/").rpartition("/")[2] or path
