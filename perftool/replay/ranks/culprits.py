"""Finds culprits (ranks, stages, links), and estimates their cost in two independent ways."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from perftool.replay.ranks.culprit_rows import CulpritRow, CulpritRowMaker, why_text
from perftool.replay.ranks.lateness import Late
from perftool.replay.ranks.meetings import Floats, Less
from perftool.replay.ranks.model import run_model_of
from perftool.replay.ranks.reading import LEAST
from perftool.store.trace_store import TraceStore
from perftool.units import format_ns, ranks_text

# If at most this many ranks are late together, the replay checks for each of them whether its lateness costs
# anything.
_MOST_TRIED = 32
# One of two ranks may be late in most steps by chance. So a culprit's excess must be at least this many times the
# median excess of the others.
_STEADY = 3.0
# On CPUs, other processes may use a core at any time, so even if two ranks do the same work, one or the other is late
# in each step. A rank is a culprit only if the probability of being late in that many steps by chance is at most this.
_CHANCE = 1 / 32
# A group's collectives are slow if they take more than this many times as long as those of similar groups. Differences
# in topology have a smaller effect.
_SLOW_LINK = 1.5


def culprit_rows(store: TraceStore) -> list[CulpritRow]:
    """Return the rows of the table ``culprits`` for the ranks of ``store``."""
    model = run_model_of(store)
    if isinstance(model, str):
        return []
    search = _Search(store, model)
    rows = [row for row in search.rows() if row is not None] or list(search.before_the_recording())
    return sorted(rows, key=lambda row: (-_worth(row), row.subject))


def _medians_of_others(values: Floats) -> Floats:
    """Return, for each of two or more ``values``, the median of the others."""
    count, order = len(values), np.argsort(values, kind="stable")
    ordered, place = values[order], np.empty_like(order)
    place[order] = np.arange(count)
    # If a value is left out, all larger values move down by one place.
    low, high = (ordered[at + (place <= at)] for at in ((count - 2) // 2, (count - 1) // 2))
    return np.asarray((low + high) / 2)


def _beyond_chance(steps: int) -> int:
    """Return the number of ``steps`` in which one of two ranks must be late for a sign test to show that they
    differ.
    """
    tail = 0.0
    for late in range(steps, -1, -1):
        ways = math.lgamma(steps + 1) - math.lgamma(late + 1) - math.lgamma(steps - late + 1)
        tail += math.exp(ways - steps * math.log(2))
        if tail > _CHANCE * (1 + 1e-9):
            return late + 1
    return steps + 1


def _worth(row: CulpritRow) -> int:
    return max(row.predicted_ns or 0, 0) or row.estimate_ns or row.replayed_ns or 0


class _Search(CulpritRowMaker):
    """Searches the replay of a run for culprits."""

    def rows(self) -> Iterator[CulpritRow | None]:
        """Yield a row for each culprit, in no particular order, and None for each kind that has no culprit."""
        late = self._persistent()
        yield self._of_ranks(late) if late else None
        yield self._stage() if late is None else None
        yield self._links()
        yield from self._occasional(late.ranks if late else ())

    def _persistent(self) -> Late | None:
        """Return the ranks that are late in more than half of the steps, except those whose lateness costs nothing.

        On CPUs, they must be late more often than chance explains.
        """
        found: list[int] = []
        saved = 0
        least = _beyond_chance(len(self.steps)) if self.cpu else len(self.steps) // 2 + 1
        for _ in range(3):
            often = self.late_at(found).sum(axis=1) >= least
            more = [rank for rank, late in zip(self.ranks, often.tolist(), strict=True) if late]
            more = self._steady(more, found)
            if not more or len(found) + len(more) > len(self.ranks) / 2:
                break
            both = self.saved(Late((*found, *more)))
            # The lateness of the new ranks costs nothing if that of the known ranks hides it.
            if found and both < max(1.25 * saved, saved + LEAST * self.step_ns):
                break
            found, saved = sorted([*found, *more]), both
        return self._needed(Late(tuple(found))) if found else None

    def _steady(self, late: Sequence[int], found: Sequence[int]) -> list[int]:
        """Return the ranks in ``late`` whose total excess is much larger than the median excess of the ranks that are
        in neither ``late`` nor ``found``.
        """
        wholes = dict(zip(self.ranks, np.maximum(self.excess, 0.0).sum(axis=1).tolist(), strict=True))
        rest = [whole for rank, whole in wholes.items() if rank not in late and rank not in found]
        usual = float(np.median(rest)) if rest else 0.0
        return [rank for rank in late if wholes[rank] >= _STEADY * usual]

    def _needed(self, late: Late) -> Late:
        """Remove from ``late`` the ranks whose lateness costs nothing."""
        if not 1 < len(late.ranks) <= _MOST_TRIED:
            return late
        less = [[change for change in late.changes if change.rank != rank] for rank in late.ranks]
        whole, *without = self.saved_each([late.changes, *less])
        kept = tuple(rank for rank, saved in zip(late.ranks, without, strict=True) if saved < 0.97 * whole)
        return Late(kept) if kept and self.saved(Late(kept)) >= 0.9 * whole else late

    def _of_ranks(self, late: Late) -> CulpritRow | None:
        kind, subject, label = self.named(late.ranks)
        return self.row(kind, subject, label, late)

    def _stage(self) -> CulpritRow | None:
        """Return a row for the stage whose ranks compute longest, or None if it hardly takes longer than the median
        stage.
        """
        work = self.causes["compute"][0].sum(axis=1)
        by_rank = dict(zip(self.ranks, work.tolist(), strict=True))
        means = {
            at: float(np.mean([by_rank.get(rank, 0.0) for rank in ranks])) for at, ranks in self.meetings.stages.items()
        }
        if len(means) < 2:
            return None
        slowest = max(means, key=lambda at: means[at])
        usual = float(np.median([ns for at, ns in means.items() if at != slowest]))
        factor = usual / max(1.0, means[slowest])
        ranks = tuple(sorted(self.meetings.stages[slowest]))
        changes = [Less(rank, "compute", factor) for rank in ranks]
        late = Late(ranks)
        each = len(self.steps)
        reason = ("compute", means[slowest] / each, usual / each)
        return (
            self.row("stage", *self.named(ranks)[1:], late, changes, reason, "the median stage")
            if factor < 1 - LEAST
            else None
        )

    def _links(self) -> CulpritRow | None:
        """Return a row for the groups whose transfers take longer than those of similar groups, or None if there are
        none.
        """
        whole, usual = self._wires()
        slow = [lane for lane in whole if whole[lane] > _SLOW_LINK * usual[lane] > 0]
        if not slow or len(slow) == len(whole):
            return None
        members = {lane: self._members(lane) for lane in slow}
        changes = [Less(members[lane][0], "link", usual[lane] / whole[lane], group=self._group(lane)) for lane in slow]
        saved = self.saved_each([changes])[0]
        if self.model.why_not or saved <= LEAST * self.step_ns:
            return None
        late = sorted({rank for lane in slow for rank in members[lane]})
        wire, other = (sum(times[lane] for lane in slow) / len(slow) / len(self.steps) for times in (whole, usual))
        groups = [ranks_text(members[lane]) for lane in slow[:3]]
        more = f" and {len(slow) - 3} more" if len(slow) > 3 else ""
        subject = "links of " + " and of ".join(f"group {ranks}" for ranks in groups) + more
        label = "links between " + " and between ".join(f"ranks {ranks}" for ranks in groups) + more
        hosts = sorted({self.hosts.get(rank, "") for rank in late})
        label += f" ({', '.join(hosts)})" if all(hosts) and len(hosts) < 3 else ""
        why = (
            f"the transfers of their collectives take {format_ns(wire)} a step, not counting waits for late ranks, "
            f"compared with {format_ns(other)} in similar groups"
        )
        waiting = [rank for rank in self.ranks if rank not in late]
        return CulpritRow(
            "links", subject, label, None, late, self.steps, len(self.steps), len(self.steps), None,
            len(waiting), saved, saved,
            "link", round(wire), round(other), why, [str(self._group(lane)) for lane in slow],
            sum(usual[lane] for lane in slow) / sum(whole[lane] for lane in slow),
            self.step_ns, None, saved, saved,
        )  # fmt: skip

    def _wires(self) -> tuple[dict[int, float], dict[int, float]]:
        """Return the transfer time of each group, and that of the median similar group, in ns."""
        meet = self.meetings
        whole: dict[int, float] = {}
        usual: dict[int, float] = {}
        for kind in np.unique(meet.kind).tolist():
            chosen = np.flatnonzero(meet.kind == kind)
            ordered = chosen[np.argsort(meet.lane[chosen], kind="stable")]
            lanes, starts, calls = np.unique(meet.lane[ordered], return_index=True, return_counts=True)
            if len(lanes) < 2:
                continue
            medians = np.array([np.median(part) for part in np.split(meet.wire[ordered], starts[1:])], dtype=float)
            totals = calls * medians, calls * _medians_of_others(medians)
            for lane, own, other in zip(lanes.tolist(), *(total.tolist() for total in totals), strict=True):
                whole[lane] = whole.get(lane, 0.0) + own
                usual[lane] = usual.get(lane, 0.0) + other
        return whole, usual

    def _members(self, lane: int) -> list[int]:
        meeting = int(np.flatnonzero(self.meetings.lane == lane)[0])
        arrivals = self.meetings.arrivals
        return sorted(set(arrivals.rank[arrivals.meeting == meeting].tolist()))

    def _group(self, lane: int) -> str | None:
        return self.meetings.group[int(np.flatnonzero(self.meetings.lane == lane)[0])]

    def _occasional(self, left_out: Sequence[int]) -> Iterator[CulpritRow | None]:
        """Yield rows for ranks that are late in some of the steps, except ranks in ``left_out``."""
        if len(self.steps) < 3:
            return
        at = self.late_at(left_out)
        events = {
            step: [rank for rank, late in zip(self.ranks, at[:, number].tolist(), strict=True) if late]
            for number, step in enumerate(self.steps)
            if 0 < at[:, number].sum() <= len(self.ranks) / 2
        }
        steps = sorted(events)
        if not steps:
            return
        sets = {tuple(ranks) for ranks in events.values()}
        if len(sets) == 1:
            ranks = next(iter(sets))
            late = Late(ranks, tuple(steps))
            _, subject, label = self.named(ranks)
            yield self.row("single", subject, label, late)
        elif 2 * len(steps) >= len(self.steps):
            yield self._changing(events)
        else:
            worst = max(steps, key=lambda step: (max(self._of(rank, step) for rank in events[step]), -step))
            _, subject, label = self.named(events[worst])
            yield self.row("single", subject, label, Late(tuple(events[worst]), (worst,)))

    def _of(self, rank: int, step: int) -> float:
        return float(self.excess[self.ranks.index(rank), self.steps.index(step)])

    def _changing(self, events: Mapping[int, Sequence[int]]) -> CulpritRow | None:
        # The steps are replayed together below: a replay of each step would take quadratic time.
        each = [Late(tuple(ranks), (step,)) for step, ranks in sorted(events.items())]
        rows = [self.row("single", "", "", late, whole=False) for late in each]
        known = [row for row in rows if row is not None]
        if len({tuple(row.late_ranks) for row in known}) < 2:
            return None
        steps = [row.late_steps[0] for row in known]
        ranks = sorted({rank for row in known for rank in row.late_ranks})
        changes = [Less(rank, "own", None, row.late_steps[0]) for row in known for rank in row.late_ranks]
        estimate = sum(row.estimate_ns or 0 for row in known)
        causes = {row.cause for row in known}
        first = known[0]
        cause = first.cause if len(causes) == 1 else None
        own, usual = (
            sum(values) // len(known)
            for values in ([row.own_ns or 0 for row in known], [row.median_ns or 0 for row in known])
        )
        why = why_text(cause, own, usual, "the median rank", cpu=self.cpu)
        names = ", ".join(self.named(row.late_ranks)[2] for row in known[:6]) + (" ..." if len(known) > 6 else "")
        replayed = self.saved_each([changes])[0]
        trusted = self.model.why_not is None and self.agree(replayed, estimate, estimate)
        return CulpritRow(
            "changing", "a rank that changes", names, None, ranks, steps, len(steps), len(self.steps), None,
            max(row.waiting for row in known), sum(row.late_ns for row in known) // len(known),
            max(row.longest_ns for row in known), cause, own if cause else None, usual if cause else None, why, [],
            None,
            self.step_ns, estimate, None if self.model.why_not else replayed, replayed if trusted else None,
        )  # fmt: skip

    def before_the_recording(self) -> Iterator[CulpritRow]:
        """Yield a row for the rank that the others wait for most, if only one step was recorded and does not show
        why.
        """
        if len(self.steps) > 1 or self._missing:
            return
        meet = self.meetings
        arrivals, count = meet.arrivals, int(np.searchsorted(meet.arrivals.meeting, len(meet.wire)))
        begins = np.searchsorted(arrivals.meeting[:count], np.arange(len(meet.wire)))
        spent = meet.spent.astype(np.float64)
        waits = spent - np.minimum.reduceat(spent, begins)[arrivals.meeting[:count]]
        order = np.lexsort((arrivals.rank[:count], spent, arrivals.meeting[:count]))
        last = arrivals.rank[:count][order][begins]
        mine = {rank: last == rank for rank in self.ranks}
        caused = {rank: float(waits[mine[rank][arrivals.meeting[:count]]].sum()) for rank in self.ranks}
        rank = max(caused, key=lambda rank: (caused[rank], -rank))
        whole = float(waits.sum())
        if caused[rank] <= 0.5 * whole or caused[rank] <= LEAST * self.step_ns * len(self.ranks):
            return
        chosen = mine[rank][arrivals.meeting[:count]]
        per_rank = {
            one: float(waits[chosen & (arrivals.rank[:count] == one)].sum()) for one in self.ranks if one != rank
        }
        most = max(per_rank, key=lambda one: (per_rank[one], -one))
        median = float(np.median(list(per_rank.values())))
        longest = float(waits[chosen & (arrivals.rank[:count] == most)].max())
        why = (
            f"it arrives last at {int(mine[rank].sum())} of {len(meet.wire)} collectives, and rank {most} then "
            f"waits up to {format_ns(longest)}. The recording does not show why. The ranks together spend "
            f"{format_ns(spent.sum())} in collectives, {format_ns(whole)} of it waiting"
        )
        _, subject, label = self.named([rank])
        yield CulpritRow(
            "unexplained", subject, label, rank, [rank], self.steps, 1, 1, None,
            sum(ns >= 0.5 * median for ns in per_rank.values()), round(median), round(longest), None, None, None, why,
            [], None,
            self.step_ns, round(median), None, None,
        )  # fmt: skip

    @cached_property
    def _missing(self) -> bool:
        return bool(self.store.select("SELECT 1 FROM ranks WHERE status <> 'ok' LIMIT 1"))
