"""Builds the dependency graph of a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from perftool.replay.device import Anchors, across_links, anchors, lane_order, stream_links
from perftool.replay.links import Kind, Links
from perftool.replay.points import Points
from perftool.replay.recording import NONE, Bools, Int64s, Recording
from perftool.replay.threads import MAIN, Handovers, Runs, hand_overs
from perftool.replay.waits import wait_links


@dataclass(frozen=True)
class Graph:
    """The dependency graph of a recording. Its nodes are the host's points, then the tasks, then the origin.

    ``order`` is a topological order. ``dur`` is the length of each node in ns (0 for points). ``step_begin`` and
    ``step_end`` are the points at which the steps begin and end. ``step_of`` is the step that launched each task, or
    NONE if the launch is not in the window. ``by_target`` sorts the links by target; the links to node n are
    ``by_target[bounds[n]:bounds[n + 1]]``.
    """

    recording: Recording
    points: Points
    links: Links
    handovers: Handovers
    dur: Int64s
    order: Int64s
    step_begin: Int64s
    step_end: Int64s
    step_of: Int64s
    by_target: Int64s
    bounds: Int64s

    @property
    def first_task(self) -> int:
        """The node of the first task."""
        return len(self.points)


def build_graph(recording: Recording) -> Graph:
    """Build the graph of ``recording``, without dependencies that the recording itself violates."""
    tasks, steps = recording.tasks, recording.steps
    order = lane_order(recording)
    submitted = anchors(recording, order)
    handovers = hand_overs(recording)
    points = _points(recording, submitted, handovers)
    first = len(points)
    waits = wait_links(recording, points, handovers, first)
    position, ordered = _time_order(recording, points, submitted, handovers)
    waiting = _in_order(waits.links, position)
    # Treat a wait as work if all its links were dropped.
    ended = np.zeros(len(points), dtype=bool)
    ended[waiting.target] = True
    least = np.where(ended | waits.unexplained, waits.least_ns, NONE)
    links = _in_order(
        [
            waiting,
            *_host_links(recording, points, least, first + len(tasks)),
            *_launch_links(recording, points, submitted, first),
            *stream_links(tasks, order, first),
            *across_links(recording, order, submitted, first),
        ],
        position,
    )
    by_target: Int64s = np.argsort(links.target, kind="stable")
    return Graph(
        recording=recording,
        points=points,
        links=links,
        handovers=handovers,
        dur=np.concatenate([np.zeros(first, np.int64), tasks.end - tasks.ts, np.zeros(1, np.int64)]),
        order=ordered,
        step_begin=points.at(MAIN, steps.host_ts),
        step_end=points.at(MAIN, steps.host_end),
        step_of=_steps_of(recording),
        by_target=by_target,
        bounds=np.searchsorted(links.target[by_target], np.arange(len(ordered) + 1)),
    )


def _in_order(links: Sequence[Links], position: Int64s) -> Links:
    """Keep the ``links`` whose target comes after their source."""
    found = Links.together(links)
    return found.where(position[found.source] < position[found.target])


def _points(recording: Recording, submitted: Anchors, handovers: Handovers) -> Points:
    calls, waits, steps = recording.launches, recording.waits, recording.steps
    on_host = submitted.thread != NONE
    ends = [(thread, Runs.of(recording, thread).end) for thread in range(recording.threads)]
    moments: list[tuple[Int64s | int, Int64s]] = [
        (MAIN, steps.host_ts), (MAIN, steps.host_end),
        (calls.thread, calls.ts), (calls.thread, calls.end),
        (waits.thread, waits.ts), (waits.thread, waits.end),
        (submitted.thread[on_host], submitted.time[on_host]),
        (handovers.to, handovers.resumed), (handovers.cause, handovers.caused),
        *(ends if recording.threads > 1 else []),
    ]  # fmt: skip
    return Points.of(moments)


def _host_links(recording: Recording, points: Points, least: Int64s, origin: int) -> list[Links]:
    """Build the links along each thread. A lag is the time of the thread's work or, for a call that waits, the least
    time of the call."""
    first = points.first_of_thread
    begins, goes_on = np.flatnonzero(first), np.flatnonzero(~first)
    lasted = points.time[goes_on] - points.time[goes_on - 1]
    works = least[goes_on] == NONE
    at_once = begins[least[begins] == NONE]
    return [
        Links.of(Kind.ORIGIN, np.full(len(at_once), origin), at_once, points.time[at_once] - recording.begin),
        Links.of(Kind.HOST, goes_on[works] - 1, goes_on[works], lasted[works]),
        Links.of(Kind.CALL, goes_on[~works] - 1, goes_on[~works], np.minimum(least[goes_on], lasted)[~works]),
    ]


def _launch_links(recording: Recording, points: Points, submitted: Anchors, first: int) -> list[Links]:
    tasks = recording.tasks
    at = np.flatnonzero(submitted.thread != NONE)
    source = points.at(submitted.thread[at], submitted.time[at])
    queued = np.flatnonzero(submitted.thread == NONE)
    origin = np.full(len(queued), first + len(tasks))
    return [
        Links.of(Kind.LAUNCH, source, first + at, submitted.lag[at]),
        Links.of(Kind.ORIGIN, origin, first + queued, np.minimum(0, tasks.ts[queued] - recording.begin)),
    ]


def _time_order(
    recording: Recording, points: Points, submitted: Anchors, handovers: Handovers
) -> tuple[Int64s, Int64s]:
    """Return the position of each node in time order, and the nodes in that order. If times are equal, points at which
    threads resume come after other points, and tasks come last."""
    tasks = recording.tasks
    keys = np.where(submitted.thread != NONE, np.maximum(tasks.ts, submitted.time), tasks.ts)
    by_lane = np.lexsort((np.arange(len(tasks)), tasks.lane))
    for begin, end in _groups(tasks.lane[by_lane]):
        keys[by_lane[begin:end]] = np.maximum.accumulate(keys[by_lane[begin:end]])
    time = np.concatenate([points.time, keys, [np.iinfo(np.int64).min]])
    late = np.zeros(len(time), dtype=np.int64)
    late[points.at(handovers.to, handovers.resumed)] = 1
    late[len(points) : -1] = 2
    ordered: Int64s = np.lexsort((np.arange(len(time)), late, time))
    position = np.empty_like(ordered)
    position[ordered] = np.arange(len(ordered))
    return position, ordered


def _groups(values: Int64s) -> list[tuple[int, int]]:
    """Return the start and end positions of each run of equal ``values``."""
    if not len(values):
        return []
    cuts: list[int] = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return list(pairwise(cuts))


def _steps_of(recording: Recording) -> Int64s:
    tasks, calls, steps = recording.tasks, recording.launches, recording.steps
    known: Bools = tasks.launch != NONE
    found = np.full(len(tasks), NONE, dtype=np.int64)
    found[known] = np.searchsorted(steps.host_ts, calls.ts[tasks.launch[known]], side="right") - 1
    return found
