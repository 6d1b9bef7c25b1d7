"""Makes the rows of the table ``critical_path``: each stretch of the path with its slice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from perftool.model.replayed import BoundShare
from perftool.replay.bounds import shares
from perftool.replay.limits import MOST_RANKS
from perftool.replay.links import Kind
from perftool.replay.model import Model, Prediction, models_of
from perftool.replay.path import Stretch, critical_path
from perftool.replay.recording import Int64s
from perftool.store.trace_store import TraceStore

_BETWEEN = {
    Kind.LAUNCH: "launch to start", Kind.STREAM: "between work on a stream", Kind.ACROSS: "between streams",
    Kind.DONE: "end of work to end of wait", Kind.THREAD: "between threads", Kind.QUEUE: "space in the queue",
    Kind.ORIGIN: "before the recording",
}  # fmt: skip
_DEVICE = 'SELECT id, track, name, kind FROM device_ops WHERE rank = $rank AND valid AND ts < $end AND "end" > $begin'
_FETCHES = "SELECT id, track, ts, \"end\", name, 'dataloader' AS kind FROM dataloader"
_HOST = f"""
SELECT id, track, ts, "end", name, kind FROM (
    SELECT id, track, ts, "end", name, 'host' AS kind FROM slices
    WHERE rank = $rank AND side = 'host' AND outermost AND cat IN ('cpu_op', 'runtime') AND NOT is_step(name)
        AND id NOT IN (SELECT id FROM dataloader)
    UNION ALL {_FETCHES} WHERE rank = $rank
) WHERE ts < $end AND "end" > $begin ORDER BY ts, "end" DESC, id
"""


class PathRow(NamedTuple):
    """A row of the table ``critical_path``."""

    rank: int
    step: int | None
    place: int
    kind: str
    task: int | None
    name: str | None
    track: int | None
    ts: int
    dur: int
    end: int
    bound_ns: int


@dataclass(frozen=True)
class _Slices:
    """The outermost slices of a thread, in order."""

    ts: Int64s
    end: Int64s
    facts: Sequence[tuple[int, int, str, str]]


def critical_path_rows(store: TraceStore) -> list[PathRow]:
    """Return the rows of each rank whose replay can be trusted, or none if the run has more than MOST_RANKS ranks."""
    if len(store.metadata) > MOST_RANKS:
        return []
    models = [model for model in models_of(store).values() if not isinstance(model, str) and model.predicts]
    return [row for model in models for row in path_rows(store, model)]


def path_rows(store: TraceStore, model: Model, prediction: Prediction | None = None) -> list[PathRow]:
    """Return the path of ``prediction`` or, if that is None, of ``model``'s unchanged replay, in order."""
    stretches = critical_path(model.graph, prediction.replay if prediction else model.unchanged)
    if not stretches:
        return []
    numbers = store.select("SELECT ts, step FROM steps WHERE rank = $rank ORDER BY ts", {"rank": model.rank})
    begins = np.array([row["ts"] for row in numbers], dtype=np.int64)
    names = _names_of(store, model, stretches)
    rows: list[PathRow] = []
    for stretch in stretches:
        parts = names.parts(stretch)
        for part, bound in zip(parts, _distributed(stretch, parts, prediction), strict=True):
            at = max(int(np.searchsorted(begins, part.ts, side="right")) - 1, 0)
            rows.append(PathRow(
                model.rank, numbers[at]["step"], len(rows) + 1, part.kind, part.task, part.name, part.track,
                part.ts, part.end - part.ts, part.end, bound,
            ))  # fmt: skip
    return rows


class _Part(NamedTuple):
    """A part of a stretch of the critical path: one slice, a delay, or host time outside slices."""

    kind: str
    task: int | None
    name: str | None
    track: int | None
    ts: int
    end: int


@dataclass(frozen=True)
class _Names:
    """The device work by slice id, the slices of each host thread, and the track of each thread."""

    ids: Int64s
    device: Mapping[int, Mapping[str, Any]]
    host: Mapping[int, _Slices]
    tracks: Mapping[int, int]

    def parts(self, stretch: Stretch) -> list[_Part]:
        """Divide ``stretch`` into parts: one per slice on the host, and a single part otherwise."""
        if stretch.side == "device":
            found = self.device[int(self.ids[stretch.task])]
            return [_Part(found["kind"], found["id"], found["name"], found["track"], stretch.ts, stretch.end)]
        if stretch.side == "delay":
            return [_Part("delay", None, _BETWEEN[stretch.link], None, stretch.ts, stretch.end)]
        return list(_host_parts(stretch, self.host.get(stretch.thread), self.tracks.get(stretch.thread)))


def _names_of(store: TraceStore, model: Model, stretches: Sequence[Stretch]) -> _Names:
    store.build(["dataloader"])
    recording = model.graph.recording
    begin, end = min(part.ts for part in stretches), max(part.end for part in stretches) + 1
    window = {"rank": model.rank, "begin": begin, "end": end}
    return _Names(
        ids=recording.tasks.id,
        device={row["id"]: row for row in store.select(_DEVICE, window)},
        host=_by_thread(store.select(_HOST, window), recording.tracks),
        # Reversed, because the last entry wins: a thread gets its first track, which has the most steps or slices.
        tracks={thread: track for track, thread in reversed(list(recording.tracks.items()))},
    )


def _by_thread(rows: Sequence[Mapping[str, Any]], threads: Mapping[int, int]) -> dict[int, _Slices]:
    """Return the outermost slices of each thread among ``rows``, which must be sorted by start."""
    chosen: dict[int, list[tuple[int, int, tuple[int, int, str, str]]]] = {}
    for row in rows:
        if row["track"] not in threads:
            continue
        mine = chosen.setdefault(threads[row["track"]], [])
        if not mine or row["ts"] >= mine[-1][1]:
            mine.append((row["ts"], row["end"], (row["id"], row["track"], row["name"], row["kind"])))
    return {
        thread: _Slices(
            np.array([ts for ts, _, _ in mine], dtype=np.int64), np.array([end for _, end, _ in mine], dtype=np.int64),
            [facts for _, _, facts in mine],
        )
        for thread, mine in chosen.items()
    }  # fmt: skip


def _host_parts(stretch: Stretch, slices: _Slices | None, track: int | None) -> Iterator[_Part]:
    """Divide ``stretch`` wherever a slice begins or ends. Parts outside slices have no task."""
    at = stretch.ts
    if slices is not None:
        first = int(np.searchsorted(slices.end, stretch.ts, side="right"))
        last = int(np.searchsorted(slices.ts, stretch.end, side="left"))
        for number in range(first, last):
            ts, end = max(int(slices.ts[number]), stretch.ts), min(int(slices.end[number]), stretch.end)
            if ts > at:
                yield _Part("host", None, None, track, at, ts)
            task, own, name, kind = slices.facts[number]
            if end > ts:
                yield _Part(kind, task, name, own, ts, end)
            at = max(at, end)
    if at < stretch.end or stretch.ts == stretch.end:
        yield _Part("host", None, None, track, at, stretch.end)


def _distributed(stretch: Stretch, parts: Sequence[_Part], prediction: Prediction | None) -> list[int]:
    """Distribute ``stretch.bound_ns`` over ``parts`` in proportion to their remaining time, in ns."""
    if len(parts) == 1:
        return [stretch.bound_ns]
    left = [part.end - part.ts for part in parts]
    if prediction is not None:
        left = [prediction.altered.left_ns(stretch.thread, part.ts, part.end) for part in parts]
    length = max(1, sum(left))
    until = [stretch.bound_ns * partial // length for partial in accumulate(left[:-1])]
    return [end - begin for begin, end in pairwise([0, *until, stretch.bound_ns])]


def bound_shares(rows: Iterable[PathRow]) -> tuple[BoundShare, ...]:
    """Return the share of the path of each kind in ``rows``, largest first."""
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row.kind] += row.bound_ns
    return shares(totals)
