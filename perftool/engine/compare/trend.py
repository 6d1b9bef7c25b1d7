"""Finds out where the level of a metric changed over many runs, and whether the last level is worse."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatch
from math import inf, isinf, log
from statistics import median

from perftool.engine.compare.settings import named
from perftool.engine.report.complete_steps import MOST_LOST_KERNELS, lost_time, lost_to_warm_up, slow_iterations
from perftool.errors import InputError, MissingExtraError, SettingsError
from perftool.model.metrics import MetricKind, metric_kinds
from perftool.model.trend import (
    DEFAULT_LAST,
    DEFAULT_METRIC,
    DEFAULT_THRESHOLD,
    FEWEST_RUNS,
    TIME_FORMAT,
    History,
    Level,
    Point,
    RunLine,
    Trend,
    TrendVerdict,
)
from perftool.units import NS_PER_MS, format_ratio

# The penalty for a change of level, in units of the noise: this number times the logarithm of the number of runs. It
# was tested on 60 series each of 12, 30 and 100 runs. In pure noise (normal, or Student's t with 3 degrees of freedom),
# at most two series showed a change. A rise by five units in the last four runs was found in 97 to 100 % of the series
# with normal noise, and in 78 to 83 % of those with Student's t noise.
_PENALTY = 2.0
# The noise is assumed to be at least this share of the median, because runs with identical numbers would have none.
_LEAST_NOISE = 0.005
# Some metrics, such as fallback_ops, are 0 in most runs. Then the last runs are a new level if all of them are above 0
# and this is unlikely to be chance: given the share of earlier runs above 0, its probability is below this value. Fewer
# than one in 100 random series of 12, 30 or 100 runs, with 10, 20 or 30 % of the runs above 0, showed such a level.
_MOST_CHANCE = 0.01
# All runs and ranks with device work have this metric.
_DEVICE_WORK = "device_busy_ratio"
# Runs that overlap in time, such as the ranks in a watched folder, may be analysed in a different order from that in
# which they were recorded. This is the longest overlap to expect.
_MOST_OVERLAP = timedelta(hours=1)
# The fields that say how steps were found. They are empty in lines from earlier versions.
_STEP_KEYS = ("steps_from", "step_unit")


def trend_of(
    history: History,
    metric: str = DEFAULT_METRIC,
    *,
    rank: int | None = None,
    only: str | None = None,
    since: str = "",
    last: int = DEFAULT_LAST,
    threshold: float = DEFAULT_THRESHOLD,
) -> Trend:
    """Judge ``metric`` over the ``last`` runs (of ``rank``) that are comparable with the newest run.

    ``only`` is a pattern for run names, ``since`` is the earliest time or a prefix of it, and ``threshold`` is in
    percent. Raise SettingsError for an unknown metric or an infinite threshold, which no run exceeds, InputError if no
    run is left, and MissingExtraError if the statistics library is missing.
    """
    kind = next((kind for kind in metric_kinds() if kind.name == metric), None)
    if kind is None:
        raise SettingsError(f"{metric}: not a metric of the summary; docs/json.md lists the metrics")
    if isinf(threshold):
        raise SettingsError("--threshold: the limit is too large")
    chosen = [one for one in history.lines if only is None or fnmatch(one.name, only) or fnmatch(one.label, only)]
    lines = [line for line in chosen if line.at >= since]
    wanted = [line for line in lines if line.rank == rank]
    if not wanted:
        raise InputError(f"the file has no matching {'run' if rank is None else f'line of rank {rank}'}")
    wanted.sort(key=_when)
    newest = wanted[-1]
    alike = [line for line in wanted if _are_comparable(line, newest)]
    whole = [line for line in alike if not line.lost]
    shown = [line for line in whole if line.metrics.get(metric) is not None][-last:]
    levels = _levels(shown, metric)
    points = tuple(Point(line.at, line.label, _value(line, metric)) for line in shown)
    trend = Trend(
        kind, newest.device, newest.world_size, newest.origin, points,
        levels, "cannot be judged", None, None, threshold / 100, len(wanted) - len(alike),
        sum(line.metrics.get(metric) is None for line in whole), history.damaged,
        _unjudged(newest, max(lines, key=_when), chosen[-1], metric, history)
        or _with_corrupt_lines(shown, history)
        or _without_usual_ranks(newest, whole, lines)
        or _without_device_work(newest, whole)
        or _with_other_steps(newest, wanted)
        or _with_lost_kernels(newest, whole)
        or _with_lost_time(newest, whole, threshold / 100)
        or _with_other_settings(newest, len(alike), len(wanted)),
        len(alike) - len(whole),
    )  # fmt: skip
    return _judged(trend)


def _when(line: RunLine) -> tuple[str, str]:
    return line.at, line.time


def _is_earlier(one: RunLine, other: RunLine) -> bool:
    """Whether ``one`` is dated earlier than ``other`` by more than ``_MOST_OVERLAP``."""
    try:
        return _read(other.at) - _read(one.at) > _MOST_OVERLAP
    except ValueError:
        return one.at < other.at


def _read(time: str) -> datetime:
    return datetime.strptime(time, TIME_FORMAT).replace(tzinfo=timezone.utc)


def _unjudged(newest: RunLine, last: RunLine, latest: RunLine, metric: str, history: History) -> str:
    """Return why the newest run cannot be judged, or "" if it can. The check must not pass a run that it cannot judge.

    ``newest`` is the newest line to judge, and ``last`` is a line of the newest run, possibly of another rank.
    ``latest`` is the last line of the file. Its run was analysed last and should be the newest, but the clock of the
    machine that recorded it, or of another machine, may be wrong.
    """
    if history.damaged and not history.intact:
        return "the last line of the file is corrupt, so the newest run is not judged"
    if _when(newest) != _when(last):
        whose = "for the whole run" if newest.rank is None else f"for rank {newest.rank}"
        return f"the newest run ({last.label}) has no line {whose}, so it is not judged"
    if _is_earlier(latest, newest) or (latest.lost and latest.at < newest.at):
        damage = " incomplete and" if latest.lost else ""
        return (
            f"the run that was analysed last ({latest.label}) is{damage}, by its date, "
            f"older than another run ({newest.label}, {newest.at}), so it is not judged"
        )
    if newest.lost:
        some = "an input" if newest.lost == 1 else f"{newest.lost} inputs"
        return f"the newest run ({newest.label}) is incomplete, so it is not judged: {some} could not be read in full"
    if newest.metrics.get(metric) is None:
        return f"the newest run ({newest.label}) does not show {metric}, so it is not judged"
    return ""


def _with_corrupt_lines(shown: Sequence[RunLine], history: History) -> str:
    """If a corrupt line of the file may be one of the last runs that make a level, return why the newest run is not
    judged, otherwise ""."""
    intact = set(map(id, history.lines[len(history.lines) - history.intact :]))
    behind = sum(id(line) in intact for line in shown)
    # Before the first of these runs, a corrupt line belongs to an earlier series.
    if behind >= min(FEWEST_RUNS, len(shown)) or len(shown) + history.damaged < 2 * FEWEST_RUNS:
        return ""
    return (
        f"fewer than {FEWEST_RUNS} runs follow a corrupt line of the file, so the newest run is not judged: a worse "
        "level may be hidden"
    )


def _without_usual_ranks(newest: RunLine, runs: Sequence[RunLine], lines: Sequence[RunLine]) -> str:
    """If ``newest`` lacks ranks that most ``runs`` have, return why it is not judged, otherwise "". A missing
    rank may be the slowest rank."""
    ranks: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for line in lines:
        if line.rank is not None:
            ranks[_when(line)].add(line.rank)
    times = Counter(_when(run) for run in runs)
    counts: Counter[int] = Counter()
    for when, count in times.items():
        counts.update(dict.fromkeys(ranks[when] - ranks[_when(newest)], count))
    missing = [rank for rank, count in counts.items() if 2 * count > len(runs)]
    lacks = f"the newest run ({newest.label}) lacks {named(missing)}, which most runs have, so it is not judged"
    return lacks if missing else ""


def _without_device_work(newest: RunLine, runs: Sequence[RunLine]) -> str:
    """If ``newest`` has no device work although most ``runs`` do, return why it is not judged, otherwise ""."""
    shown = [run for run in runs if run.metrics.get(_DEVICE_WORK) is not None]
    if newest in shown or 2 * len(shown) <= len(runs):
        return ""
    return f"the newest run ({newest.label}) is not judged: it shows no device work, but most runs do"


def _with_other_steps(newest: RunLine, wanted: Sequence[RunLine]) -> str:
    """If the steps of ``newest`` were detected differently from those of most runs, return why it is not judged,
    otherwise ""."""
    known = {key: Counter(filter(None, (getattr(line, key) for line in wanted))) for key in _STEP_KEYS}
    own = {key: getattr(newest, key) for key in _STEP_KEYS}
    if not any(own[key] and 2 * known[key][own[key]] < known[key].total() for key in _STEP_KEYS):
        return ""
    return f"the newest run ({newest.label}) is not judged: its steps were detected differently from those of most runs"


def _with_other_settings(newest: RunLine, alike: int, runs: int) -> str:
    """If there are enough ``runs``, but too few of them (``alike``) have the device and settings of ``newest``, return
    why it is not judged, otherwise "". Without this check, renaming the device would be enough to pass the gate."""
    if not alike < 2 * FEWEST_RUNS <= runs:
        return ""
    return (
        f"the newest run ({newest.label}) is not judged: only {alike} of {runs} runs have its device, world size, "
        f"origin and kind of steps, and a verdict needs {2 * FEWEST_RUNS}; --since or --only starts a new series"
    )


def _with_lost_kernels(newest: RunLine, runs: Sequence[RunLine]) -> str:
    """If ``newest`` lacks many more kernels than ``runs`` usually do, return why it is not judged, otherwise ""."""
    after = newest.lost_kernels_ratio
    usual = [one.lost_kernels_ratio for one in runs if one is not newest and one.lost_kernels_ratio is not None]
    if after is None or not usual or after - median(usual) <= MOST_LOST_KERNELS:
        return ""
    return (
        f"the newest run ({newest.label}) is not judged: it lacks {format_ratio(after)} of the kernels that its steps "
        f"launched (usually {format_ratio(median(usual))})"
    )


def _with_lost_time(newest: RunLine, runs: Sequence[RunLine], limit: float) -> str:
    """If ``newest`` lost time that its median step does not show, return why it is not judged, otherwise ""."""
    others = [one for one in runs if one is not newest]
    recorded = [one.recorded_per_step_ms for one in others if one.recorded_per_step_ms is not None]
    steps = [ms for one in others if (ms := one.metrics.get(DEFAULT_METRIC)) is not None]
    after, step = newest.recorded_per_step_ms, newest.metrics.get(DEFAULT_METRIC)
    # Slower steps also make the recording longer.
    if step is None or not steps or step > median(steps) * (1 + limit):
        return ""
    run = f"the newest run ({newest.label})"
    if slow := slow_iterations(run, _mean_ns([newest]), "usually", _mean_ns(others), limit):
        return slow
    if after is None or not recorded:
        return ""
    before = median(recorded)
    if lost := lost_time(run, after * NS_PER_MS, "usually", before * NS_PER_MS, limit):
        return lost
    # Lines of earlier versions do not show warm-up steps.
    warm_ups = [one.warm_up_steps for one in others if one.warm_up_steps is not None]
    warmed = [one.with_warm_up_ms for one in others if one.with_warm_up_ms is not None]
    if newest.warm_up_steps is None or newest.with_warm_up_ms is None or not warm_ups or not warmed:
        return ""
    after, before = newest.with_warm_up_ms * NS_PER_MS, median(warmed) * NS_PER_MS
    return lost_to_warm_up(run, newest.warm_up_steps, after, "usually", median(warm_ups), before, limit)


def _mean_ns(runs: Sequence[RunLine]) -> dict[str, float]:
    """Return the mean time of a server's iteration in the median of ``runs``, by phase."""
    means: defaultdict[str, list[float]] = defaultdict(list)
    for run in runs:
        for phase, ms in run.iteration_ms.items():
            if ms is not None:
                means[phase].append(ms * NS_PER_MS)
    return {phase: median(own) for phase, own in means.items()}


def _are_comparable(one: RunLine, newest: RunLine) -> bool:
    """Whether the numbers of two runs are comparable. Lines from earlier versions do not say how steps were found."""
    same = all(getattr(one, key) == getattr(newest, key) for key in ("device", "world_size", "origin"))
    return same and all(len({getattr(one, key), getattr(newest, key)} - {""}) < 2 for key in _STEP_KEYS)


def _value(line: RunLine, metric: str) -> float:
    return float(line.metrics[metric] or 0)


def _levels(lines: Sequence[RunLine], metric: str) -> tuple[Level, ...]:
    values = [_value(line, metric) for line in lines]
    levels: list[Level] = []
    before: Sequence[RunLine] = ()
    start = 0
    for end in _ends(values):
        part = lines[start:end]
        middle = median(values[start:end])
        change = middle / levels[-1].median - 1 if levels and levels[-1].median else None
        new = tuple(sorted(_usual(part) - _usual(before))) if before else ()
        levels.append(Level(part[0].at, part[-1].at, len(part), middle, change, new))
        start, before = end, part
    return tuple(levels)


def _usual(lines: Sequence[RunLine]) -> set[str]:
    """Return the codes that occur in more than half of the runs."""
    counts = Counter(code for line in lines for code in set(line.codes))
    return {code for code, count in counts.items() if 2 * count > len(lines)}


def _ends(values: Sequence[float]) -> list[int]:
    """Return the end index (exclusive) of each level of ``values``, from an optimal partition by PELT (Killick 2012).

    The cost of a partition is the distance of the values from the median of their level, in units of the noise (the
    median change from run to run). This is robust to outliers.
    """
    if len(values) < 2 * FEWEST_RUNS:
        return [len(values)] if values else []
    try:
        import numpy as np
        import ruptures
    except ImportError:
        raise MissingExtraError("trend needs ruptures: python -m pip install 'habana-perf-tool[trend]'") from None
    signal = np.asarray(values, dtype=float)
    # The median distance between two samples of a normal distribution is 0.954 standard deviations.
    noise = float(np.median(np.abs(np.diff(signal)))) / 0.954
    noise = max(noise, _LEAST_NOISE * abs(float(np.median(signal))))
    is_mostly_zero = not noise
    if is_mostly_zero:
        noise = float(np.abs(signal).max()) or 1.0
    search = ruptures.Pelt(model="l1", min_size=FEWEST_RUNS, jump=1)
    found: list[int] = search.fit((signal - np.median(signal)) / noise).predict(pen=_PENALTY * log(len(values)))
    ends = _at_the_changes(values, [int(end) for end in found])
    return _with_rise_from_zero(values, ends) if is_mostly_zero else ends


def _with_rise_from_zero(values: Sequence[float], ends: Sequence[int]) -> list[int]:
    """Return ``ends``, with a level of the last runs if it cannot be chance that all of them are above 0."""
    before = len(values)
    while before and values[before - 1] > 0:
        before -= 1
    last = len(values) - before
    # Another run like the last ones is counted, because a share of 0 would make any rise impossible.
    share = (sum(value > 0 for value in values[:before]) + 1) / (before + 1)
    starts = [0, *ends[:-1]]
    if last < FEWEST_RUNS or share**last > _MOST_CHANCE or before <= starts[-1]:
        return list(ends)
    return [*starts[1:], before, len(values)]


def _at_the_changes(values: Sequence[float], ends: Sequence[int]) -> list[int]:
    """Move each of ``ends`` to where the levels on both sides have the least spread. The search requires at least
    ``FEWEST_RUNS`` runs per level, so it may place the start of a level too early. If the last level then has fewer
    runs, it is merged with the level before it.
    """
    moved = list(ends)
    for at in range(len(ends) - 1):
        begin, end = moved[at - 1] if at else 0, ends[at + 1]
        cuts = range(begin + 1, end)
        moved[at] = min(cuts, key=lambda cut: _spread(values[begin:cut]) + _spread(values[cut:end]), default=ends[at])
    if len(moved) > 1 and moved[-1] - moved[-2] < FEWEST_RUNS:
        del moved[-2]
    return moved


def _spread(values: Sequence[float]) -> float:
    middle = median(values)
    return sum(abs(value - middle) for value in values)


def _judged(trend: Trend) -> Trend:
    """Compare the last level of ``trend`` with the best earlier level."""
    if len(trend.points) < 2 * FEWEST_RUNS:
        return trend
    *earlier, now = trend.levels
    if not earlier:
        return replace(trend, verdict="steady")
    if trend.kind.better is None:
        return replace(trend, verdict="changed")
    best = min(earlier, key=lambda level: _regression_size(trend.kind, level))
    lost = _regression_size(trend.kind, now) - _regression_size(trend.kind, best)
    # Ratios are compared in percentage points, because it is harmless if a tiny ratio doubles.
    if trend.kind.unit == "ratio":
        worse = lost
    elif best.median:
        worse = lost / abs(best.median)
    else:
        worse = inf if lost > 0 else 0.0
    return replace(trend, verdict=_verdict(worse, trend.threshold), best=best, worse=worse)


def _regression_size(kind: MetricKind, level: Level) -> float:
    return -level.median if kind.better == "higher" else level.median


def _verdict(worse: float, threshold: float) -> TrendVerdict:
    if worse > threshold:
        return "worse"
    return "better" if worse < -threshold else "steady"
