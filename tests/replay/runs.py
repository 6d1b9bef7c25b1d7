"""Runs of many ranks that follow fixed rules, so that the answers are known. A rank works for a given time for each
cause, then arrives at a collective, which takes a given time once the whole group has arrived. The rank waits for the
collective or continues immediately. At the end of a step, it waits for all of its collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perftool.replay.ranks.meetings import CAUSES, NEVER, Meetings
from perftool.replay.ranks.reading import meetings_of

# If an event follows another sooner than this (in ns), the replay assumes that the first event caused the second.
PAUSE = 30_000
BEGIN = 1_000_000


@dataclass(frozen=True)
class Part:
    """The ``work`` of the ranks in ``group`` before their collective, in ns, by the rank's number in the run and by
    cause.

    The collective takes ``wire`` ns once all ranks have arrived. If ``waits`` is true, the ranks wait for it.
    """

    group: tuple[int, ...]
    work: tuple[tuple[int, ...], ...]
    wire: int
    waits: bool = True


class Ranks:
    """Simulates ranks and keeps what their recorders would show. ``skew`` is how far each clock is ahead, in ns."""

    def __init__(self, steps: int, parts: Sequence[Part], skew: Sequence[int]) -> None:
        self.now = [BEGIN] * len(skew)
        self.skew = skew
        self.stretches: list[tuple[int, ...]] = []
        self.arrivals: list[tuple[int, ...]] = []
        for step in range(steps):
            left = [0] * len(skew)
            for lane, part in enumerate(parts):
                for rank in part.group:
                    self._go_on(rank, step, PAUSE + sum(part.work[rank]), NEVER, part.work[rank])
                end = max(self.now[rank] for rank in part.group) + part.wire
                for rank in part.group:
                    ahead, ts = self.skew[rank], self.now[rank]
                    meeting = step * len(parts) + lane
                    self.arrivals.append((rank, ts + ahead, end + ahead, end - ts, lane, meeting, step))
                    left[rank] = max(left[rank], end)
                    if part.waits:
                        self._wait(rank, step, end)
            for rank, end in enumerate(left):
                self._wait(rank, step, end)

    def _wait(self, rank: int, step: int, end: int) -> None:
        self._go_on(rank, step, end - self.now[rank], end + self.skew[rank], (0,) * len(CAUSES))

    def _go_on(self, rank: int, step: int, ns: int, held_until: int, work: Sequence[int]) -> None:
        if ns > 0:
            ts = self.now[rank] + self.skew[rank]
            self.now[rank] += ns
            self.stretches.append((rank, step, ts, ts + ns, held_until, *work))


def step_ns(ranks: int, steps: int, parts: Sequence[Part]) -> int:
    """Return the length of a step, which ends when the last rank is done."""
    return (max(Ranks(steps, parts, [0] * ranks).now) - BEGIN) // steps


def meetings(steps: int, parts: Sequence[Part], skew: Sequence[int], host_share: float = 0.0) -> Meetings:
    """Return the meetings in the recordings of the ranks, whose clocks are ``skew`` ns ahead."""
    made, ahead = Ranks(steps, parts, skew), np.array(skew, dtype=np.int64)
    stretches = _columns(
        sorted(made.stretches), ["rank", "step", "ts", "end", "held_until", *(f"{cause}_ns" for cause in CAUSES)]
    )
    known = {
        "rank": np.arange(len(skew)), "ts": BEGIN + ahead, "end": np.array(made.now) + ahead,
        "offset_ns": -ahead, "host_share": np.full(len(skew), host_share),
    }  # fmt: skip
    found = _columns(made.arrivals, ["rank", "ts", "end", "dur", "lane", "meeting", "step"])
    found |= {"ready": found["ts"], "known": np.ones_like(found["ts"]), "track": found["lane"], "kind": found["lane"]}
    groups = {lane: str(lane) for lane in range(len(parts))}
    return meetings_of(known, np.arange(steps), found, stretches, groups, dict.fromkeys(groups))


def _columns(rows: Sequence[tuple[int, ...]], names: Sequence[str]) -> dict[str, np.ndarray]:
    return {name: np.array([row[at] for row in rows], dtype=np.int64) for at, name in enumerate(names)}
