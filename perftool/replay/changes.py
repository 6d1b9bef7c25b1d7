"""Applies the changes of a fix to a graph: changes the durations of host work and tasks, and removes dependencies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from perftool.replay.graph import Graph
from perftool.replay.links import Kind
from perftool.replay.recording import NONE, Bools, Int64s
from perftool.replay.spans import IntervalReach, Span, covers, inside, of_threads, saved
from perftool.replay.threads import MAIN

ChangeKind = Literal["skip", "shorten", "detach", "prefetch", "merge"]
CHANGE_KINDS: tuple[ChangeKind, ...] = get_args(ChangeKind)
# The lag of a removed link.
_GONE = -(1 << 60)
_WAITS = (Kind.DONE, Kind.QUEUE, Kind.THREAD)


@dataclass(frozen=True)
class Change:
    """One primitive change, either to a device task (``task`` is its slices.id) or to the stretch of the host thread
    ``track`` from ``ts`` to ``end``.

    ``skip`` removes the task, or the stretch and the work launched in it. ``shorten`` multiplies the time by
    ``factor``. ``detach`` removes the host's waits for the task, or its waits in the stretch. ``prefetch`` moves the
    task to another stream, or the stretch to ``parallel`` workers. ``merge`` runs the tasks, or the work launched in
    the stretch, back to back, as if there were one launch.
    """

    kind: ChangeKind
    task: int
    track: int = NONE
    ts: int = 0
    end: int = 0
    factor: float = 1.0
    parallel: int = 1


@dataclass
class Altered:
    """The lags and durations of a graph after changes. A step takes at least ``concurrent_ns``, the time of work that
    runs concurrently. ``by_workers``: whether other host processes, which need cores, do some of this work. ``saved``
    maps a host thread to recorded times and the work (ns) removed before each of them."""

    lag: Int64s
    dur: Int64s
    concurrent_ns: int = 0
    by_workers: bool = False
    saved: dict[int, tuple[Int64s, Int64s]] = field(default_factory=dict)

    def left_ns(self, thread: int, ts: int, end: int) -> int:
        """Return the work of ``thread`` that remains between ``ts`` and ``end``, in ns."""
        if thread not in self.saved:
            return end - ts
        before, after = np.interp([ts, end], *self.saved[thread])
        return max(0, round(end - ts - (after - before)))


@dataclass
class _Hosts:
    """Stretches of host threads, as (thread, ts, end, factor)."""

    stretches: list[tuple[int, int, int, float]] = field(default_factory=list)

    def add(self, thread: int, ts: int, end: int, factor: float) -> None:
        self.stretches.append((thread, ts, end, factor))


def altered(graph: Graph, changes: Sequence[Change]) -> Altered:
    """Apply all ``changes`` to the lags and durations of ``graph``. Changes outside the steps have no effect."""
    result = Altered(graph.links.lag.copy(), graph.dur.copy())
    tasks = graph.recording.tasks
    by_id = {task: number for number, task in enumerate(tasks.id.tolist())}
    hosts = _Hosts()
    for kind in CHANGE_KINDS:
        mine = [change for change in changes if change.kind == kind]
        on_device = [(by_id[change.task], change) for change in mine if change.task in by_id]
        threads = graph.recording.tracks
        on_host = [(threads[change.track], change) for change in mine if change.track in threads]
        _ON_DEVICE[kind](graph, result, on_device)
        _ON_HOST[kind](graph, result, on_host, hosts)
    _shorten_host(graph, result, hosts)
    return result


OnDevice = Iterable[tuple[int, Change]]
OnHost = Sequence[tuple[int, Change]]


def _remove(graph: Graph, result: Altered, tasks: Int64s) -> None:
    """Remove ``tasks``: set their durations to 0, and remove all their links except those along their lane."""
    nodes = graph.first_task + tasks
    result.dur[nodes] = 0
    links = graph.links
    into = np.isin(links.target, nodes) & (links.kind != Kind.STREAM)
    out = np.isin(links.source, nodes) & (links.kind != Kind.STREAM)
    result.lag[into | out] = _GONE


def _numbers(chosen: OnDevice) -> Int64s:
    return np.array([number for number, _ in chosen], dtype=np.int64)


def _skip_tasks(graph: Graph, result: Altered, chosen: OnDevice) -> None:
    _remove(graph, result, _numbers(chosen))


def _shorten_tasks(graph: Graph, result: Altered, chosen: OnDevice) -> None:
    for number, change in chosen:
        node = graph.first_task + number
        result.dur[node] = round(result.dur[node] * change.factor)


def _detach_tasks(graph: Graph, result: Altered, chosen: OnDevice) -> None:
    nodes = graph.first_task + _numbers(chosen)
    result.lag[np.isin(graph.links.source, nodes) & (graph.links.kind == Kind.DONE)] = _GONE


def _prefetch_tasks(graph: Graph, result: Altered, chosen: OnDevice) -> None:
    numbers = _numbers(chosen)
    result.concurrent_ns = max(
        result.concurrent_ns, int(graph.dur[graph.first_task + numbers].sum()) // len(graph.step_begin)
    )
    _remove(graph, result, numbers)


def _merge_tasks(graph: Graph, result: Altered, chosen: OnDevice) -> None:
    _run_back_to_back(graph, result, _numbers(chosen))


def _run_back_to_back(graph: Graph, result: Altered, tasks: Int64s) -> None:
    """Start each of ``tasks``, except the first on each lane, when the previous one ends, regardless of its launch."""
    firsts = tasks[np.unique(graph.recording.tasks.lane[tasks], return_index=True)[1]]
    _follow(graph, result, tasks[~np.isin(tasks, firsts)])


def _run_launched_back_to_back(graph: Graph, result: Altered, spans: Sequence[Span]) -> None:
    """Remove the gaps between the tasks launched in each of ``spans``, which may overlap."""
    calls, tasks = graph.recording.launches, graph.recording.tasks
    found = np.flatnonzero(_launched_in(graph, spans))
    thread, lane = calls.thread[tasks.launch[found]], tasks.lane[found]
    order = np.lexsort((found, thread, lane))
    found, thread, lane = found[order], thread[order], lane[order]
    time = calls.ts[tasks.launch[found]]
    earlier, later = np.minimum(time[1:], time[:-1]), np.maximum(time[1:], time[:-1])
    together = np.zeros(len(later), dtype=bool)
    known = covers(spans)
    for number, at in of_threads(thread[1:], known):
        together[at] = known[number].reach(earlier[at]) > later[at]
    _follow(graph, result, found[1:][together & (thread[1:] == thread[:-1]) & (lane[1:] == lane[:-1])])


def _follow(graph: Graph, result: Altered, rest: Int64s) -> None:
    """Start each of the tasks ``rest`` when the previous task on its lane ends."""
    into = np.isin(graph.links.target, graph.first_task + rest)
    result.lag[into & (graph.links.kind == Kind.LAUNCH)] = _GONE
    stream = into & (graph.links.kind == Kind.STREAM)
    result.lag[stream] = np.minimum(result.lag[stream], 0)


def _skip_host(graph: Graph, result: Altered, chosen: OnHost, hosts: _Hosts) -> None:
    """Skip host stretches, and the work that other threads do while the main thread waits in them."""
    spans = [(thread, change.ts, change.end) for thread, change in chosen]
    spans += _awaited_stretches(graph, [(ts, end) for thread, ts, end in spans if thread == MAIN])
    for thread, ts, end in spans:
        hosts.add(thread, ts, end, 0.0)
    _remove(graph, result, np.flatnonzero(_launched_in(graph, spans)))
    _release_waits(graph, result, spans, _WAITS)


def _awaited_stretches(graph: Graph, intervals: Sequence[tuple[int, int]]) -> list[Span]:
    """Return the stretches of other threads that the main thread waits for during ``intervals``."""
    if not intervals:
        return []
    handovers = graph.handovers
    chosen = (handovers.to == MAIN) & (IntervalReach(intervals).reach(handovers.since) >= handovers.resumed)
    columns = (handovers.cause[chosen], handovers.since[chosen], handovers.caused[chosen])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _shorten_hosts(graph: Graph, result: Altered, chosen: OnHost, hosts: _Hosts) -> None:
    for thread, change in chosen:
        hosts.add(thread, change.ts, change.end, change.factor)


def _detach_host(graph: Graph, result: Altered, chosen: OnHost, hosts: _Hosts) -> None:
    _release_waits(graph, result, [(thread, change.ts, change.end) for thread, change in chosen], _WAITS)


def _prefetch_host(graph: Graph, result: Altered, chosen: OnHost, hosts: _Hosts) -> None:
    """Move host work to ``parallel`` loader workers. A step then takes at least as long as each worker needs."""
    total = 0.0
    for thread, change in chosen:
        begin, last = max(change.ts, graph.recording.begin), min(change.end, int(graph.recording.steps.host_end[-1]))
        total += max(0, last - begin) / change.parallel
        hosts.add(thread, change.ts, change.end, 0.0)
    result.concurrent_ns = max(result.concurrent_ns, int(total) // len(graph.step_begin))
    result.by_workers = result.by_workers or bool(chosen)


def _merge_host(graph: Graph, result: Altered, chosen: OnHost, hosts: _Hosts) -> None:
    """Divide the time of each stretch by the number of its launches, and run their device work back to back."""
    calls = graph.recording.launches
    by_thread: dict[int, list[Change]] = defaultdict(list)
    for thread, change in chosen:
        by_thread[thread].append(change)
    spans: list[Span] = []
    for thread, at in of_threads(calls.thread, by_thread):
        begin, end = (
            np.searchsorted(calls.ts[at], [getattr(change, bound) for change in by_thread[thread]])
            for bound in ("ts", "end")
        )
        for change, count in zip(by_thread[thread], (end - begin).tolist(), strict=True):
            if count > 1:
                hosts.add(thread, change.ts, change.end, 1 / count)
                spans.append((thread, change.ts, change.end))
    _run_launched_back_to_back(graph, result, spans)
    _merge_computing(graph, chosen, hosts)


def _merge_computing(graph: Graph, chosen: OnHost, hosts: _Hosts) -> None:
    """For CPU-only runs: divide the gaps around the merged ops by the number of these ops."""
    ops = graph.recording.computing
    by_thread = dict(of_threads(ops.thread, {thread for thread, _ in chosen}))
    for thread, change in chosen:
        at = by_thread[thread]
        begin, end = np.searchsorted(ops.ts[at], [change.ts, change.end])
        mine = at[begin:end]
        ends = [change.ts, *ops.end[mine].tolist()]
        if len(mine) > 1:
            for ts, until in zip(ends, [*ops.ts[mine].tolist(), change.end], strict=True):
                hosts.add(thread, ts, until, 1 / len(mine))


_ON_DEVICE = {
    "skip": _skip_tasks, "shorten": _shorten_tasks, "detach": _detach_tasks, "prefetch": _prefetch_tasks,
    "merge": _merge_tasks,
}  # fmt: skip
_ON_HOST = {
    "skip": _skip_host, "shorten": _shorten_hosts, "detach": _detach_host, "prefetch": _prefetch_host,
    "merge": _merge_host,
}  # fmt: skip


def _launched_in(graph: Graph, spans: Sequence[Span]) -> Bools:
    """Return a mask of the tasks that were launched in one of ``spans``."""
    tasks, calls = graph.recording.tasks, graph.recording.launches
    launched = inside(calls.thread, calls.ts, spans)
    known = tasks.launch != NONE
    found: Bools = np.zeros(len(tasks), dtype=bool)
    found[known] = launched[tasks.launch[known]]
    return found


def _release_waits(graph: Graph, result: Altered, spans: Sequence[Span], kinds: Sequence[Kind]) -> None:
    """Make waits that end inside ``spans`` return immediately."""
    points, links = graph.points, graph.links
    # A wait that ends when a span ends is inside it; a wait that ends when a span begins is not.
    released = np.zeros(len(graph.dur), dtype=bool)
    released[: len(points)] = inside(points.thread, points.time - 1, spans)
    result.lag[released[links.target] & np.isin(links.kind, list(kinds))] = _GONE


def _shorten_host(graph: Graph, result: Altered, hosts: _Hosts) -> None:
    """Subtract the savings of ``hosts`` from the stretches of each thread."""
    links, points = graph.links, graph.points
    on_host = np.isin(links.kind, [Kind.HOST, Kind.CALL, Kind.THREAD]) & (result.lag != _GONE)
    by_thread: dict[int, list[tuple[int, int, float]]] = defaultdict(list)
    for thread, ts, until, factor in hosts.stretches:
        by_thread[thread].append((ts, until, factor))
    stretches = np.flatnonzero(on_host)
    of = points.thread[np.minimum(links.target[stretches], len(points) - 1)]
    for thread, at in of_threads(of, by_thread):
        times, savings = result.saved[thread] = saved(by_thread[thread])
        mine = stretches[at]
        begin, end = points.time[links.source[mine]], points.time[links.target[mine]]
        less = np.interp(end, times, savings) - np.interp(begin, times, savings)
        # Scale by the share of work in the stretch: its lag excludes waiting, which these changes do not shorten.
        share = np.where(end > begin, result.lag[mine] / np.maximum(1, end - begin), 0.0)
        result.lag[mine] -= np.round(less * share).astype(np.int64)
