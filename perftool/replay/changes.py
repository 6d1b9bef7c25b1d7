"""What a fix changes in the schedule: lengths of host stretches and tasks, and links that no longer hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from perftool.replay.graph import Graph
from perftool.replay.links import Kind
from perftool.replay.recording import NONE, Bools, Int64s
from perftool.replay.threads import MAIN

ChangeKind = Literal["skip", "shorten", "detach", "prefetch", "merge"]
CHANGE_KINDS: tuple[ChangeKind, ...] = get_args(ChangeKind)
# A link with this lag never holds anything up.
_GONE = -(1 << 60)
_WAITS = (Kind.DONE, Kind.QUEUE, Kind.THREAD)


@dataclass(frozen=True)
class Change:
    """One primitive, on the device task ``task`` (slices.id), or on the host from ``ts`` to ``end`` of ``track``.

    ``skip``: it takes no time, and what it launched is gone. ``shorten``: it takes ``factor`` of its time. ``detach``:
    the host no longer waits in it, or for it. ``prefetch``: it is done beside the rest, on ``parallel`` threads or
    streams. ``merge``: the launches in it become one, and their work follows without gaps.
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
    """Lags and lengths of a graph after changes. ``beside_ns`` is what runs beside the rest: no step is shorter.

    ``saved`` says for a host thread, by times of the recording, how much of what it did until then is gone.
    """

    lag: Int64s
    dur: Int64s
    beside_ns: int = 0
    saved: dict[int, tuple[Int64s, Int64s]] = field(default_factory=dict)

    def left_ns(self, thread: int, ts: int, end: int) -> int:
        """What is left of the work of ``thread`` from ``ts`` to ``end``."""
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
    """The lags and lengths of ``graph`` with all ``changes`` made together; those outside of the steps are none."""
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


def _gone(graph: Graph, result: Altered, tasks: Int64s) -> None:
    """These tasks take no time, and neither wait for anything but their lane nor are waited for."""
    nodes = graph.first_task + tasks
    result.dur[nodes] = 0
    links = graph.links
    into = np.isin(links.target, nodes) & (links.kind != Kind.STREAM)
    out = np.isin(links.source, nodes) & (links.kind != Kind.STREAM)
    result.lag[into | out] = _GONE


def _numbers(chosen: OnDevice) -> Int64s:
    return np.array([number for number, _ in chosen], dtype=np.int64)


def _skip_tasks(graph: Graph, result: Altered, chosen: OnDevice) -> None:
    _gone(graph, result, _numbers(chosen))


def _shorten_tasks(graph: Graph, result: Altered, chosen: OnDevice) -> None:
    for number, change in chosen:
        node = graph.first_task + number
        result.dur[node] = round(result.dur[node] * change.factor)


def _detach_tasks(graph: Graph, result: Altered, chosen: OnDevice) -> None:
    nodes = graph.first_task + _numbers(chosen)
    result.lag[np.isin(graph.links.source, nodes) & (graph.links.kind == Kind.DONE)] = _GONE


def _prefetch_tasks(graph: Graph, result: Altered, chosen: OnDevice) -> None:
    numbers = _numbers(chosen)
    result.beside_ns = max(result.beside_ns, int(graph.dur[graph.first_task + numbers].sum()) // len(graph.step_begin))
    _gone(graph, result, numbers)


def _merge_tasks(graph: Graph, result: Altered, chosen: OnDevice) -> None:
    """Tasks without the launches: they follow each other without gaps."""
    _close_up(graph, result, _numbers(chosen))


def _close_up(graph: Graph, result: Altered, tasks: Int64s) -> None:
    """All of ``tasks`` but the first of each lane follow at once, whenever they were launched."""
    lanes = graph.recording.tasks.lane[tasks]
    firsts = {int(tasks[lanes == lane][0]) for lane in np.unique(lanes).tolist()}
    rest = np.array([task for task in tasks.tolist() if task not in firsts], dtype=np.int64)
    into = np.isin(graph.links.target, graph.first_task + rest)
    result.lag[into & (graph.links.kind == Kind.LAUNCH)] = _GONE
    stream = into & (graph.links.kind == Kind.STREAM)
    result.lag[stream] = np.minimum(result.lag[stream], 0)


def _skip_host(graph: Graph, result: Altered, chosen: OnHost, hosts: _Hosts) -> None:
    """What another thread does for the interval goes with it."""
    spans = [(thread, change.ts, change.end) for thread, change in chosen]
    spans += [served for thread, ts, end in spans if thread == MAIN for served in _served(graph, ts, end)]
    for thread, ts, end in spans:
        hosts.add(thread, ts, end, 0.0)
    _gone(graph, result, np.flatnonzero(_launched_in(graph, spans)))
    _let_go(graph, result, spans, _WAITS)


def _served(graph: Graph, ts: int, end: int) -> list[tuple[int, int, int]]:
    """Stretches of other threads for which the main one waits between ``ts`` and ``end``."""
    handed = graph.handed
    inside = (handed.to == MAIN) & (handed.since >= ts) & (handed.resumed <= end)
    return [
        (int(thread), int(since), int(done))
        for thread, since, done in zip(handed.cause[inside], handed.since[inside], handed.caused[inside], strict=True)
    ]


def _shorten_hosts(graph: Graph, result: Altered, chosen: OnHost, hosts: _Hosts) -> None:
    for thread, change in chosen:
        hosts.add(thread, change.ts, change.end, change.factor)


def _detach_host(graph: Graph, result: Altered, chosen: OnHost, hosts: _Hosts) -> None:
    _let_go(graph, result, [(thread, change.ts, change.end) for thread, change in chosen], _WAITS)


def _prefetch_host(graph: Graph, result: Altered, chosen: OnHost, hosts: _Hosts) -> None:
    """The loader's workers do it; they are as many as ``parallel``, and each must keep up."""
    total = 0.0
    for thread, change in chosen:
        begin, last = max(change.ts, graph.recording.begin), min(change.end, int(graph.recording.steps.host_end[-1]))
        total += max(0, last - begin) / change.parallel
        hosts.add(thread, change.ts, change.end, 0.0)
    result.beside_ns = max(result.beside_ns, int(total) // len(graph.step_begin))


def _merge_host(graph: Graph, result: Altered, chosen: OnHost, hosts: _Hosts) -> None:
    """The host does the share of one launch of what it did for all of them."""
    calls = graph.recording.launches
    for thread, change in chosen:
        inside = (calls.thread == thread) & (calls.ts >= change.ts) & (calls.ts < change.end)
        count = int(inside.sum())
        if count > 1:
            hosts.add(thread, change.ts, change.end, 1 / count)
            _close_up(graph, result, np.flatnonzero(_launched_in(graph, [(thread, change.ts, change.end)])))


_ON_DEVICE = {
    "skip": _skip_tasks, "shorten": _shorten_tasks, "detach": _detach_tasks, "prefetch": _prefetch_tasks,
    "merge": _merge_tasks,
}  # fmt: skip
_ON_HOST = {
    "skip": _skip_host, "shorten": _shorten_hosts, "detach": _detach_host, "prefetch": _prefetch_host,
    "merge": _merge_host,
}  # fmt: skip


def _launched_in(graph: Graph, spans: Sequence[tuple[int, int, int]]) -> Bools:
    """Which tasks were launched in one of ``spans`` (thread, ts, end)."""
    tasks, calls = graph.recording.tasks, graph.recording.launches
    inside = _inside(calls.thread, calls.ts, spans)
    known = tasks.launch != NONE
    found: Bools = np.zeros(len(tasks), dtype=bool)
    found[known] = inside[tasks.launch[known]]
    return found


def _inside(thread: Int64s, time: Int64s, spans: Sequence[tuple[int, int, int]]) -> Bools:
    """Which of the moments lie in one of ``spans``, starts included."""
    found: Bools = np.zeros(len(time), dtype=bool)
    for number in {span[0] for span in spans}:
        mine = np.array(sorted(span[1:] for span in spans if span[0] == number), dtype=np.int64)
        reach = np.maximum.accumulate(mine[:, 1])
        at = np.searchsorted(mine[:, 0], time, side="right") - 1
        found |= (thread == number) & (at >= 0) & (reach[np.maximum(at, 0)] > time)
    return found


def _let_go(graph: Graph, result: Altered, spans: Sequence[tuple[int, int, int]], kinds: Sequence[Kind]) -> None:
    """Waits that end inside ``spans`` wait for nothing."""
    points, links = graph.points, graph.links
    # A wait may end where the interval does, and one that ends where it starts is before it.
    inside = np.zeros(len(graph.dur), dtype=bool)
    inside[: len(points)] = _inside(points.thread, points.time - 1, spans)
    result.lag[inside[links.target] & np.isin(links.kind, list(kinds))] = _GONE


def _shorten_host(graph: Graph, result: Altered, hosts: _Hosts) -> None:
    """Take what ``hosts`` save from the stretches of each thread."""
    links, points = graph.links, graph.points
    on_host = np.isin(links.kind, [Kind.HOST, Kind.CALL, Kind.THREAD]) & (result.lag != _GONE)
    for thread in sorted({stretch[0] for stretch in hosts.stretches}):
        times, saved = result.saved[thread] = _saved(
            sorted(stretch[1:] for stretch in hosts.stretches if stretch[0] == thread)
        )
        # A thread that waits for another saves what it did itself until it waited, and after.
        mine = np.flatnonzero(on_host & (points.thread[np.minimum(links.target, len(points) - 1)] == thread))
        begin, end = points.time[links.source[mine]], points.time[links.target[mine]]
        less = np.interp(end, times, saved) - np.interp(begin, times, saved)
        share = np.where(end > begin, result.lag[mine] / np.maximum(1, end - begin), 0.0)
        result.lag[mine] -= np.round(less * share).astype(np.int64)


def _saved(stretches: Sequence[tuple[int, int, float]]) -> tuple[Int64s, Int64s]:
    """Times, and what was saved until each: of ``stretches`` that overlap the one that saves most counts."""
    cuts = sorted({moment for ts, end, _ in stretches for moment in (ts, end)})
    best = np.zeros(max(0, len(cuts) - 1))
    at = {moment: number for number, moment in enumerate(cuts)}
    for ts, end, factor in stretches:
        part = slice(at[ts], at[end])
        best[part] = np.maximum(best[part], 1.0 - factor) if factor <= 1.0 else best[part]
        if factor > 1.0:
            best[part] = np.where(best[part] == 0.0, 1.0 - factor, best[part])
    times = np.array(cuts, dtype=np.int64)
    return times, np.concatenate([[0.0], np.cumsum(best * np.diff(times))])
