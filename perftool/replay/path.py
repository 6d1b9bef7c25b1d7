"""Finds the critical path of a replay: the chain of work and delays that determines its length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from perftool.replay.graph import Graph
from perftool.replay.links import Kind
from perftool.replay.recording import NONE, Int64s
from perftool.replay.run import Replay, reach

Side = Literal["host", "device", "delay"]
_SIDES: dict[Kind, Side] = {Kind.HOST: "host", Kind.CALL: "host"}


@dataclass(frozen=True)
class Stretch:
    """A part of the path: work of a host thread, a unit of device work, or the delay of ``link``.

    ``thread`` is the host thread on which the stretch ends; NONE if it ends on the device. ``task`` is the index of the
    unit of device work; NONE unless ``side`` is ``device``. The stretch lasts from ``ts`` to ``end`` in the recording,
    and contributes ``bound_ns`` to the length of the replay.
    """

    side: Side
    link: Kind
    thread: int
    task: int
    ts: int
    end: int
    bound_ns: int


def critical_path(graph: Graph, replay: Replay) -> tuple[Stretch, ...]:
    """Return the path from the start of the measured pass to the last node of ``replay``, in time order."""
    return tuple(
        _work(graph, node, bound) if link is None else _between(graph, link, bound)
        for node, link, bound in walk(graph, replay)
    )


def walk(graph: Graph, replay: Replay) -> list[tuple[int, int | None, int]]:
    """Return the path as triples: a node, the link that delays it (None for the node's own time), and the time in ns
    that the delay or the node's own time adds to the length of the replay.
    """
    # Individual elements are read faster from lists than from arrays.
    done, source, lag = replay.done.tolist(), graph.links.source.tolist(), replay.lag.tolist()
    begun = (replay.done - replay.dur).tolist()
    by_target, bounds = graph.by_target.tolist(), graph.bounds.tolist()
    found: list[tuple[int, int | None, int]] = []
    node, cursor = _last(graph, replay.done), reach(graph, replay.done)
    while cursor > replay.since:
        until, cursor = cursor, max(min(cursor, begun[node]), replay.since)
        if until > cursor:
            found.append((node, None, until - cursor))
        # If several links determine the start, choose the one with the shortest delay.
        binds = [
            (abs(lag[link]), link)
            for link in by_target[bounds[node] : bounds[node + 1]]
            if done[source[link]] + lag[link] == begun[node]
        ]
        if not binds:
            break
        link = min(binds)[1]
        until, cursor = cursor, max(min(cursor, done[source[link]]), replay.since)
        if until > cursor:
            found.append((node, link, until - cursor))
        node = source[link]
    return found[::-1]


def _last(graph: Graph, done: Int64s) -> int:
    """Return the last node to finish among the ends of steps and the tasks that steps launched."""
    launched = graph.first_task + np.flatnonzero(graph.step_of != NONE)
    nodes = np.concatenate([graph.step_end, launched])
    return int(nodes[np.argmax(done[nodes])])


def _work(graph: Graph, node: int, bound_ns: int) -> Stretch:
    tasks, task = graph.recording.tasks, node - graph.first_task
    return Stretch("device", Kind.STREAM, NONE, task, int(tasks.ts[task]), int(tasks.end[task]), bound_ns)


def _between(graph: Graph, link: int, bound_ns: int) -> Stretch:
    source, target = int(graph.links.source[link]), int(graph.links.target[link])
    kind = Kind(int(graph.links.kind[link]))
    ts, end = _moment(graph, source, at_end=True), _moment(graph, target, at_end=False)
    thread = int(graph.points.thread[target]) if target < len(graph.points) else NONE
    return Stretch(_SIDES.get(kind, "delay"), kind, thread, NONE, min(ts, end), end, bound_ns)


def _moment(graph: Graph, node: int, *, at_end: bool) -> int:
    """Return the recorded time of ``node``; for a task, the time of its start or end."""
    tasks, task = graph.recording.tasks, node - graph.first_task
    if task < 0:
        return int(graph.points.time[node])
    if task == len(tasks):
        return graph.recording.begin
    return int(tasks.end[task] if at_end else tasks.ts[task])
