"""Makes rows of the table ``culprits``, which describe ranks that keep others waiting."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from perftool.replay.ranks.kernels import Slowdown, slowdown_of
from perftool.replay.ranks.lateness import Late, Lateness
from perftool.replay.ranks.meetings import Less
from perftool.replay.ranks.reading import LEAST
from perftool.units import format_ns, ranks_text

# The replay and the estimate from exposed collectives agree if they differ by at most 10 %, or 1 % of the step.
_AGREE, _AGREE_STEP = 0.1, 0.01
# If more than this share of the ranks is late, moving work from them would slow down the other ranks noticeably.
_FEW = 0.2
# A rank's additional work must account for at least this share of the time that the others wait for it.
_EXPLAINS = 0.5
# If more than this share of a rank's additional work comes before a single collective, the rank paused there.
_AT_ONCE = 0.5
# Up to this many ranks with different causes are explained one by one.
_MOST_WORDED = 4
_WORDS = {
    "compute": "its kernels take {own} in such a step, compared with {usual} on {others}",
    "dataloader": "its device waits {own} for the data loader in such a step, compared with {usual} on {others}",
    "copy": "its copies take {own} in such a step, compared with {usual} on {others}",
    "compile": "compiling takes {own} in such a step, compared with {usual} on {others}",
    "host": "its device waits {own} for its host in such a step, compared with {usual} on {others}",
}
# Wording for runs on the CPU.
_CPU_WORDS = {
    "compute": "its ops compute for {own} in such a step, compared with {usual} on {others}",
    "host": "no op computes on it for {own} in such a step, compared with {usual} on {others}",
}
_UNKNOWN = "the traces do not show why it takes longer than {others}"


class CulpritRow(NamedTuple):
    """A row of the table ``culprits``, whose SQL file documents the columns."""

    kind: str
    subject: str
    label: str
    rank: int | None
    late_ranks: list[int]
    late_steps: list[int]
    times: int
    steps: int
    every: int | None
    waiting: int
    late_ns: int
    longest_ns: int
    cause: str | None
    own_ns: int | None
    median_ns: int | None
    why: str
    group_names: list[str]
    factor: float | None
    step_ns: int
    estimate_ns: int | None
    replayed_ns: int | None
    predicted_ns: int | None
    kernels: str | None = None
    peer: int | None = None


class CulpritRowMaker(Lateness):
    """Turns late ranks into rows of the table ``culprits``."""

    def named(self, ranks: Sequence[int]) -> tuple[str, str, str]:
        """Return the kind, subject and label that describe ``ranks``."""
        hosts = sorted({self.hosts.get(rank, "") for rank in ranks})
        place = f" ({', '.join(hosts)})" if all(hosts) and len(hosts) < 3 else ""
        if len(ranks) == 1:
            return "rank", f"rank {ranks[0]}", f"rank {ranks[0]}{place}"
        stage = next((at for at, members in self.meetings.stages.items() if sorted(members) == list(ranks)), None)
        if stage is not None:
            return (
                "stage",
                f"stage {stage}",
                f"stage {stage} ({_ranks(ranks)}{'; ' + ', '.join(hosts) if place else ''})",
            )
        on_host = [rank for rank in self.ranks if self.hosts.get(rank) == hosts[0]]
        if hosts[0] and len(hosts) == 1 and on_host == list(ranks) and len(set(self.hosts.values())) > 1:
            return "host", f"host {hosts[0]}", f"host {hosts[0]} (ranks {ranks_text(ranks)})"
        return "ranks", _ranks(ranks), f"{_ranks(ranks)}{place}"

    def row(
        self, kind: str, subject: str, label: str, late: Late, changes: Sequence[Less] = (),
        reason: tuple[str, float, float] | None = None, others: str = "", *, whole: bool = True,
    ) -> CulpritRow | None:  # fmt: skip
        """Return the row of ``late``, or None if its work does not explain why others wait. Without ``whole``, leave
        out the slow parts: the replay, and the comparison of its kernels with those of other ranks."""
        least, estimate = self.estimate(late)
        if estimate <= LEAST * self.step_ns * (len(late.steps or self.steps) / len(self.steps)):
            # The other ranks hardly wait for ``late``.
            return None
        chosen = np.isin(self.steps, late.steps or self.steps)
        own = self.excess[np.isin(self.meetings.ranks, late.ranks)][:, chosen].sum(axis=1).max() / len(self.steps)
        if reason is None and own < _EXPLAINS * estimate:
            # The additional work of ``late`` does not explain why the others wait.
            return None
        replayed = None if self.model.why_not or not whole else self.saved_each([changes or late.changes])[0]
        steps = self._steps_of(late)
        cause, own, usual = reason or self._cause(late, steps)
        # A slow host launches collectives too late to be hidden by compute, so the gain may include the exposed
        # collectives of this rank.
        mine = np.isin(self.meetings.ranks, late.ranks)
        own_exposed = float(self.exposed[mine].mean(axis=1).max()) if cause == "host" else 0.0
        trusted = replayed is not None and self.agree(replayed, least, estimate + own_exposed)
        waiting = self.waiting_for(late)
        chosen = np.isin(self.steps, steps)
        per_rank = waiting[:, chosen].mean(axis=1)
        late_ns = float(np.median(per_rank[self.compared(late)]))
        others = others or self._others(late.ranks)
        slowdown = self._slowdown(late, cause) if whole else None
        if slowdown and slowdown.kind in ("more", "larger") and len(late.ranks) > _FEW * len(self.ranks):
            # The replay removes the additional work. Moving it to the other ranks saves much less.
            trusted = False
        why = self._why(late, steps, (cause, own, usual), others, slowdown) if whole else ""
        return CulpritRow(
            kind, subject, label, late.ranks[0] if len(late.ranks) == 1 else None, list(late.ranks), steps, len(steps),
            len(self.steps), _period(steps, self.steps), int((per_rank >= 0.5 * late_ns).sum()), round(late_ns),
            round(float(np.median(waiting[self.compared(late)], axis=0).max())), cause,
            round(own) if cause else None, round(usual) if cause else None, why, [], None, self.step_ns,
            round(estimate + (own_exposed if self._everywhere(late) else 0.0)), replayed,
            max(0, replayed) if trusted and replayed is not None else None, slowdown.kind if slowdown else None,
            self._peer(late),
        )  # fmt: skip

    def _peer(self, late: Late) -> int | None:
        """Return the rank to compare with ``late``: the nearest rank with the same role, preferably on the same
        host.
        """
        first = late.ranks[0]
        alike = [rank for rank, same in zip(self.ranks, self.compared(late).tolist(), strict=True) if same]
        elsewhere = {rank: self.hosts.get(rank) != self.hosts.get(first) for rank in alike}
        return min(alike, key=lambda rank: (elsewhere[rank], abs(rank - first), -rank), default=None)

    def _everywhere(self, late: Late) -> bool:
        """Whether the additional work of ``late`` is spread over several collectives of a step."""
        arrivals = self.meetings.arrivals
        excess = np.maximum(arrivals.excess[np.isin(arrivals.rank, late.ranks)], 0.0)
        return bool(excess.max(initial=0.0) <= _AT_ONCE * excess.sum() / len(self.steps))

    def agree(self, replayed: float, least: float, median: float) -> bool:
        room = max(_AGREE * max(replayed, median), _AGREE_STEP * self.step_ns)
        return least - room <= replayed <= median + room and replayed > 0

    def _steps_of(self, late: Late) -> list[int]:
        """Return the steps in which any of ``late`` are late, or all steps if there are none."""
        if late.steps:
            return list(late.steps)
        at = self.late_at([rank for rank in self.ranks if rank not in late.ranks])
        return [step for number, step in enumerate(self.steps) if at[:, number].any()] or self.steps

    def _cause(self, late: Late, steps: Sequence[int]) -> tuple[str | None, float, float]:
        """Return the cause that accounts for at least half of the lateness, and its time (ns) per late step on ``late``
        and on the median rank. Return None and zeros if there is no such cause."""
        rows, columns = np.isin(self.meetings.ranks, late.ranks), np.isin(self.steps, steps)
        count = max(1, int(rows.sum()) * int(columns.sum()))
        more = {name: float(excess[rows][:, columns].sum()) / count for name, (_, excess) in self.causes.items()}
        whole = float(self.excess[rows][:, columns].sum()) / count
        most = max(more, key=lambda name: (more[name], name))
        if more[most] < 0.5 * whole:
            return None, 0.0, 0.0
        own = float(self.causes[most][0][rows][:, columns].sum()) / count
        return most, own, own - more[most]

    def _slowdown(self, late: Late, cause: str | None) -> Slowdown | None:
        """Return how the kernels of ``late`` differ from those of the other ranks, or None unless compute is the
        ``cause``.
        """
        return slowdown_of(self.store, late.ranks, self.ranks) if cause == "compute" else None

    def _why(
        self, late: Late, steps: Sequence[int], reason: tuple[str | None, float, float], others: str,
        slowdown: Slowdown | None,
    ) -> str:  # fmt: skip
        """Say what takes longer on ``late``, in one clause for all ranks, or one per rank if their causes differ."""
        each = [Late((rank,), late.steps) for rank in late.ranks]
        causes = [self._cause(one, steps) for one in each]
        if 1 < len(each) <= _MOST_WORDED and len({cause for cause, _, _ in causes}) > 1:
            words = [
                self._why(one, steps, cause, others, self._slowdown(one, cause[0]))
                for one, cause in zip(each, causes, strict=True)
            ]
            return "; ".join(f"on rank {one.ranks[0]} {text}" for one, text in zip(each, words, strict=True))
        text = why_text(*reason, others, cpu=self.cpu)
        if slowdown:
            text += f" ({slowdown.words.replace('kernels', 'ops') if self.cpu else slowdown.words})"
        return text.replace("its ", "their ") if len(late.ranks) > 1 else text

    def _others(self, ranks: Sequence[int]) -> str:
        return "the other rank" if len(self.ranks) == 2 and len(ranks) == 1 else "the median rank"


def why_text(cause: str | None, own: float, usual: float, others: str, *, cpu: bool) -> str:
    """Return a clause that says that ``cause`` takes ``own`` instead of ``usual`` (ns). ``cpu``: whether the CPU is the
    device."""
    words = _UNKNOWN if cause is None else ({**_WORDS, **_CPU_WORDS} if cpu else _WORDS)[cause]
    return words.format(own=format_ns(own), usual=format_ns(usual), others=others)


def _period(steps: Sequence[int], every: Sequence[int]) -> int | None:
    """Return the number of steps from one late step to the next if it is constant and above one; otherwise, return
    None.
    """
    places = [every.index(step) for step in steps]
    gaps = {later - earlier for earlier, later in pairwise(places)}
    return gaps.pop() if len(gaps) == 1 and gaps != {1} and len(steps) > 1 else None


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 2:
        return f"ranks {ranks[0]} and {ranks[1]}"
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranks_text(ranks)}"
