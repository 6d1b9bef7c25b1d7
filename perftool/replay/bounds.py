"""Divides the critical path of a step by kind of work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from perftool.model.replayed import BoundShare
from perftool.replay.links import Kind
from perftool.replay.model import Model
from perftool.replay.path import walk
from perftool.replay.recording import NONE, Int64s
from perftool.store.trace_store import TraceStore

_FETCHES = 'SELECT track, ts, "end" FROM dataloader WHERE rank = $rank AND ts < $end AND "end" > $begin ORDER BY ts'
_FILLS = "SELECT id FROM device_ops WHERE rank = $rank AND kind = 'memset' AND ts < $end AND \"end\" > $begin"


def bounds_of(store: TraceStore, model: Model) -> tuple[BoundShare, ...]:
    """Return the share of each kind of work in the critical path of ``model``'s unchanged replay, largest first."""
    store.build(["dataloader"])
    graph, path = model.graph, walk(model.graph, model.unchanged)
    nodes, bound = np.array([p[0] for p in path], dtype=np.int64), np.array([p[2] for p in path], dtype=np.int64)
    links = np.array([NONE if p[1] is None else p[1] for p in path], dtype=np.int64)
    totals: Counter[str] = Counter()
    work = links == NONE
    for kind, chosen in _by_kind(store, model, nodes[work] - graph.first_task).items():
        totals[kind] = int(bound[work][chosen].sum())
    on_host = ~work & np.isin(graph.links.kind[links], [Kind.HOST, Kind.CALL])
    totals["delay"] = int(bound[~work & ~on_host].sum())
    fetching = _fetching(store, model, links[on_host], bound[on_host])
    totals["dataloader"] = fetching
    totals["host"] = int(bound[on_host].sum()) - fetching
    return shares(totals)


def shares(totals: Mapping[str, int]) -> tuple[BoundShare, ...]:
    """Convert ``totals`` (in ns) to shares of their sum, largest first."""
    whole = max(1, sum(totals.values()))
    kinds = sorted((kind for kind in totals if totals[kind]), key=lambda kind: (-totals[kind], kind))
    return tuple(BoundShare(kind, totals[kind] / whole) for kind in kinds)


def _by_kind(store: TraceStore, model: Model, tasks: Int64s) -> dict[str, np.ndarray]:
    """Return, for each kind, a mask of its ``tasks``."""
    known = model.graph.recording.tasks
    begin, end = model.window
    filled = store.arrays(_FILLS, {"rank": model.rank, "begin": begin, "end": end})["id"]
    fills = np.isin(known.id[tasks], filled)
    collective, copy = known.collective[tasks], known.copy[tasks]
    return {
        "collective": collective, "memset": copy & fills, "memcpy": copy & ~fills, "kernel": ~collective & ~copy,
    }  # fmt: skip


def _fetching(store: TraceStore, model: Model, links: Int64s, bound: Int64s) -> int:
    """Return how much of ``bound`` (the time that ``links`` add to the critical path) threads spend fetching data, in
    ns.
    """
    graph, total = model.graph, 0
    begin, end = model.window
    rows = store.select(_FETCHES, {"rank": model.rank, "begin": begin, "end": end})
    threads = graph.points.thread[graph.links.target[links]]
    for thread in sorted(
        {graph.recording.tracks[row["track"]] for row in rows if row["track"] in graph.recording.tracks}
    ):
        fetches = [row for row in rows if graph.recording.tracks.get(row["track"]) == thread]
        times, covered = _time_inside([(row["ts"], row["end"]) for row in fetches])
        mine = links[threads == thread]
        ts, until = graph.points.time[graph.links.source[mine]], graph.points.time[graph.links.target[mine]]
        inside = np.interp(until, times, covered) - np.interp(ts, times, covered)
        total += int((bound[threads == thread] * inside / np.maximum(1, until - ts)).sum())
    return total


def _time_inside(spans: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return the times at which ``spans`` begin and end, and how much time ``spans`` cover before each of these times.
    ``spans`` must be sorted by start."""
    times, covered = [spans[0][0]], [0]
    for ts, end in spans:
        begin = max(ts, times[-1])
        if end > begin:
            times += [begin, end]
            covered += [covered[-1], covered[-1] + end - begin]
    return times, covered
