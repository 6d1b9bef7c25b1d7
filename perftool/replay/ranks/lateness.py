"""Measures how late each rank is compared with the median rank, and how long the others wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from perftool.replay.ranks.meetings import Floats, Less, Meetings
from perftool.replay.ranks.model import RunModel
from perftool.replay.ranks.reading import LEAST
from perftool.store.trace_store import TraceStore

# A rank counts as late if it is at least this late, as a share of the latest rank's lateness.
_TOGETHER = 0.5


@dataclass(frozen=True)
class Late:
    """Ranks that are late in ``steps``; None means all steps."""

    ranks: tuple[int, ...]
    steps: tuple[int, ...] | None = None

    @property
    def changes(self) -> list[Less]:
        """The changes that would make the late ranks as fast as the median rank."""
        return [Less(rank, "own", None, step) for rank in self.ranks for step in self.steps or (None,)]


class Lateness:
    """Compares the ranks of a run step by step."""

    def __init__(self, store: TraceStore, model: RunModel) -> None:
        self.store, self.model = store, model
        self.meetings: Meetings = model.meetings
        self.ranks = self.meetings.ranks.tolist()
        self.steps = self.meetings.steps.tolist()
        self.step_ns = max(1, model.measured_ns)
        self.hosts: dict[int, str] = {
            row["rank"]: row["host"] for row in store.select("SELECT rank, host FROM ranks WHERE host IS NOT NULL")
        }

    @cached_property
    def cpu(self) -> bool:
        """Whether the CPU is the device."""
        return bool(self.store.select("SELECT 1 FROM _cpu_runs LIMIT 1"))

    @cached_property
    def excess(self) -> Floats:
        """How much more each rank (row) works in each step (column) than the median rank, in ns."""
        return self.by_step(self.meetings.arrivals.excess)

    @cached_property
    def causes(self) -> dict[str, tuple[Floats, Floats]]:
        """For each of CAUSES, its time on each rank (row) in each step (column), and how much more that is than on the
        median rank, in ns."""
        causes = self.meetings.arrivals.causes
        return {name: (self.by_step(work), self.by_step(excess)) for name, (work, excess) in causes.items()}

    def by_step(self, values: Floats) -> Floats:
        arrivals = self.meetings.arrivals
        found = np.zeros((len(self.ranks), len(self.steps)))
        at = np.searchsorted(self.meetings.ranks, arrivals.rank), np.searchsorted(self.meetings.steps, arrivals.step)
        np.add.at(found, at, values)
        return found

    @cached_property
    def exposed(self) -> Floats:
        """How long the device of each rank (row) runs only collectives in each step (column), in ns."""
        rows = self.store.select(
            "SELECT rank, step, sum(exposed_ns)::BIGINT AS ns FROM _rank_stretches WHERE step IS NOT NULL "
            "GROUP BY rank, step"
        )
        known = {(row["rank"], row["step"]): float(row["ns"]) for row in rows}
        return np.array([[known.get((rank, step), 0.0) for step in self.steps] for rank in self.ranks])

    def waiting_for(self, late: Late) -> Floats:
        """Return how much longer each rank (row) spends in exposed collectives than ``late`` in each step (column), in
        ns. The rows of ``late`` are NaN.
        """
        mine = np.isin(self.meetings.ranks, late.ranks)
        least = self.exposed[mine].min(axis=0)
        return np.where(mine[:, None], np.nan, self.exposed - least)

    def estimate(self, late: Late) -> tuple[float, float]:
        """Return a lower and a middle estimate of the cost of ``late`` in ns per step, from the waits of the compared
        ranks: the shortest wait minus the pipeline bubble, and the median wait."""
        waiting = self.waiting_for(late)
        if np.isnan(waiting).all():
            return 0.0, 0.0
        chosen = np.isin(self.steps, late.steps) if late.steps else np.ones(len(self.steps), dtype=bool)
        per_rank = np.nansum(np.where(chosen, waiting, 0.0), axis=1) / len(self.steps)
        others = per_rank[self.compared(late)]
        return float(others.min()) - self.bubble(late), float(np.median(others))

    def compared(self, late: Late) -> npt.NDArray[np.bool_]:
        """Return a mask of the ranks to compare with ``late``: those with the same role or, if there are none, all
        others.
        """
        mine = np.isin(self.meetings.ranks, late.ranks)
        roles = {self.meetings.roles[rank] for rank in late.ranks}
        alike = np.array([self.meetings.roles[rank] in roles for rank in self.ranks]) & ~mine
        return alike if alike.any() else ~mine

    def bubble(self, late: Late) -> float:
        """Return how much of a stage's lateness its own pipeline bubble can absorb, in ns per step. With n equal stages
        and m microbatches, a stage waits for (n - 1) / m of its compute time.
        """
        stages = self.meetings.stages
        if not stages:
            return 0.0
        arrivals = self.meetings.arrivals
        mine = arrivals.rank[: len(self.meetings.spent)] == late.ranks[0]
        is_pass = np.array([self.meetings.passes[n] for n in arrivals.meeting[: len(mine)][mine].tolist()])
        micro = max(
            1.0, is_pass.sum() / len(self.steps) / (2 if late.ranks[0] in (*stages[0], *stages[max(stages)]) else 4)
        )
        computed = self.causes["compute"][0][self.ranks.index(late.ranks[0])].mean()
        return float((len(stages) - 1) / micro * computed)

    def late_at(self, left_out: Sequence[int]) -> Floats:
        """Return a mask of the ranks (rows) that are late in each step (columns): at least half as late as the latest.
        Ranks in ``left_out`` are ignored."""
        excess = np.where(np.isin(self.meetings.ranks, left_out)[:, None], 0.0, self.excess)
        most = excess.max(axis=0)
        found: Floats = (excess >= _TOGETHER * most) & (excess > LEAST * self.step_ns)
        return found

    def saved(self, late: Late) -> int:
        return self.saved_each([late.changes])[0]

    def saved_each(self, many: Sequence[Sequence[Less]]) -> list[int]:
        return [self.meetings.unchanged_ns - ns for ns in self.meetings.predict_each(many)]
