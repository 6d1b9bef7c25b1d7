"""Computes the time of each node of a graph, in one or more passes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perftool.replay.graph import Graph
from perftool.replay.recording import NONE, Int64s

# A time so early that nothing waits for it.
_NEVER = -(1 << 60)
# The first pass begins without queued work, and each later pass begins in the final state of the previous pass. The
# last pass is measured.
_PASSES = 3


@dataclass(frozen=True)
class Replay:
    """The end of each node (``done``) in the last pass, which begins at ``since``, and the mean length of a step in
    that pass. ``lag`` and ``dur`` are the delays of links and the lengths of nodes that were used. All times are ns on
    the clock of the replay, which starts at 0.
    """

    done: Int64s
    step_ns: int
    since: int
    lag: Int64s
    dur: Int64s


@dataclass(frozen=True)
class Before:
    """The initial state of a pass: its start, the ends of queued tasks, and the earliest starts of some nodes."""

    origin: int
    queued_done: Int64s | None
    not_before: dict[int, int]


def replay_once(graph: Graph, lag: Int64s | None = None, dur: Int64s | None = None) -> Replay:
    """Replay the steps once, from the state of the device at the start of the recording."""
    lags, durs = _with_defaults(graph, lag, dur)
    done = _pass(graph, lags, durs, Before(0, None, {}))
    queued = graph.recording.tasks.queued
    before = int(_tasks(graph, done)[queued].max(initial=0))
    return Replay(done, _mean_step(graph, done, before), before, lags, durs)


def replay_steady(graph: Graph, lag: Int64s | None = None, dur: Int64s | None = None) -> Replay:
    """Replay the steps repeatedly, each time from the final state of the previous pass. A host that runs ahead of the
    device hides its own time only until its lead is used up, so the step time is measured between the ends of two
    passes.
    """
    lags, durs = _with_defaults(graph, lag, dur)
    never = np.full(int(graph.recording.tasks.queued.sum()), _NEVER, dtype=np.int64)
    before, since, reached = Before(0, never, {}), 0, 0
    for _ in range(_PASSES):
        done = _pass(graph, lags, durs, before)
        since, reached = reached, reach(graph, done)
        before = _final_state(graph, done)
    return Replay(done, (reached - since) // len(graph.step_begin), since, lags, durs)


def _with_defaults(graph: Graph, lag: Int64s | None, dur: Int64s | None) -> tuple[Int64s, Int64s]:
    return graph.links.lag if lag is None else lag, graph.dur if dur is None else dur


def _tasks(graph: Graph, done: Int64s) -> Int64s:
    return done[graph.first_task : -1]


def _pass(graph: Graph, lag: Int64s, dur: Int64s, before: Before) -> Int64s:
    by_target, bounds = graph.by_target, graph.bounds
    first, source = bounds.tolist(), graph.links.source[by_target].tolist()
    lags, durs = lag[by_target].tolist(), dur.tolist()
    done = [0] * len(durs)
    earliest = dict(before.not_before)
    earliest[len(durs) - 1] = before.origin
    fixed: dict[int, int] = {}
    if before.queued_done is not None:
        nodes = graph.first_task + np.flatnonzero(graph.recording.tasks.queued)
        fixed = dict(zip(nodes.tolist(), before.queued_done.tolist(), strict=True))
    for node in graph.order.tolist():
        if node in fixed:
            done[node] = fixed[node]
            continue
        start = earliest.get(node, _NEVER)
        for link in range(first[node], first[node + 1]):
            at = done[source[link]] + lags[link]
            if at > start:
                start = at
        done[node] = start + durs[node]
    return np.array(done, dtype=np.int64)


def reach(graph: Graph, done: Int64s) -> int:
    """Return the time at which the last step, and all work that the steps launched, have ended."""
    launched = _tasks(graph, done)[graph.step_of != NONE]
    return max(int(done[graph.step_end].max()), int(launched.max(initial=0)))


def _mean_step(graph: Graph, done: Int64s, before: int) -> int:
    """Return the mean length of a step. As in the table ``steps``, a step lasts from the end of the previous step's
    work to the end of its own work."""
    tasks = _tasks(graph, done)
    reach, total = before, 0
    bounds = zip(done[graph.step_begin].tolist(), done[graph.step_end].tolist(), strict=True)
    for number, (begin, end) in enumerate(bounds):
        ts = max(begin, reach)
        reach = max(reach, end, int(tasks[graph.step_of == number].max(initial=0)))
        total += max(reach, ts) - ts
    return total // len(graph.step_begin)


def _final_state(graph: Graph, done: Int64s) -> Before:
    """Return the state after a pass: the first tasks of the next pass queue behind the last ones on their lanes."""
    tasks = graph.recording.tasks
    ends = _tasks(graph, done)
    not_before: dict[int, int] = {}
    queued_done = np.full(len(tasks), _NEVER, dtype=np.int64)
    for lane in np.unique(tasks.lane).tolist():
        mine = tasks.lane == lane
        queued, launched = np.flatnonzero(mine & tasks.queued), np.flatnonzero(mine & ~tasks.queued)
        count = min(len(queued), len(launched))
        if count:
            queued_done[queued[-count:]] = ends[launched[-count:]]
        if len(launched):
            not_before[graph.first_task + int(launched[0])] = int(ends[launched].max())
    origin = int(done[graph.step_end[-1]])
    last = np.append(np.flatnonzero(graph.points.first_of_thread)[1:] - 1, len(graph.points) - 1)
    for point, end in zip(np.flatnonzero(graph.points.first_of_thread).tolist(), last.tolist(), strict=True):
        not_before[point] = min(int(done[end]), origin) if graph.points.thread[point] == 0 else int(done[end])
    return Before(origin, queued_done[tasks.queued], not_before)
