"""The critical path of a replay: the chain of work and delays that makes it as long as it is."""

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
    """A part of the path: work of a host thread, a unit of device work, or the delay that ``link`` stands for.

    ``bound_ns`` is how much of the replay it takes. ``ts`` and ``end`` are where it lies in the recording, on
    ``thread`` (NONE on the device) or as the unit ``task`` of device work (an index, NONE on the host).
    """

    side: Side
    link: Kind
    thread: int
    task: int
    ts: int
    end: int
    bound_ns: int


def critical_path(graph: Graph, replay: Replay) -> tuple[Stretch, ...]:
    """The path to the last thing done in ``replay``, in order of time; from where the replay counts."""
    found: list[Stretch] = []
    begun = replay.done - replay.dur
    node, cursor = _last(graph, replay.done), reach(graph, replay.done)
    while cursor > replay.since:
        until, cursor = cursor, max(min(cursor, int(begun[node])), replay.since)
        if until > cursor and replay.dur[node]:
            found.append(_work(graph, node, until - cursor))
        link = _binding(graph, replay, node, int(begun[node]))
        if link is None:
            break
        node = int(graph.links.source[link])
        until, cursor = cursor, max(min(cursor, int(replay.done[node])), replay.since)
        if until > cursor:
            found.append(_between(graph, link, until - cursor))
    return tuple(reversed(found))


def _last(graph: Graph, done: Int64s) -> int:
    """The node that is done last of the steps and of what they launched."""
    launched = graph.first_task + np.flatnonzero(graph.step_of != NONE)
    nodes = np.concatenate([graph.step_end, launched])
    return int(nodes[np.argmax(done[nodes])])


def _binding(graph: Graph, replay: Replay, node: int, begun: int) -> int | None:
    """The link that lets ``node`` begin no earlier, of several the one with the least delay; None without one."""
    into = graph.by_target[graph.bounds[node] : graph.bounds[node + 1]]
    arrived = replay.done[graph.links.source[into]] + replay.lag[into]
    binds = into[arrived == begun]
    return int(binds[np.argmin(np.abs(replay.lag[binds]))]) if len(binds) else None


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
    """Where the recording has ``node``."""
    tasks, task = graph.recording.tasks, node - graph.first_task
    if task < 0:
        return int(graph.points.time[node])
    if task == len(tasks):
        return graph.recording.begin
    return int(tasks.end[task] if at_end else tasks.ts[task])
