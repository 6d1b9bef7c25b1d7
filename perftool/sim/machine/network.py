"""Computes how long collectives between the cards in one box take on the links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perftool.model.devices import DeviceFacts
from perftool.sim.machine.costs import Costs, us
from perftool.units import NS_PER_S

# Every card in a box has the same number of links to each of the other cards.
_CARDS_OF_A_BOX = 8


@dataclass(frozen=True)
class Collective:
    """A collective as one rank sees it. ``size`` is the rank's contribution in bytes, and ``elements`` is the
    contribution in elements.

    ``kind`` is all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather, scatter or barrier;
    ``ranks`` are the members of the group.
    """

    kind: str
    size: int
    elements: int
    dtype: str
    group: str
    ranks: tuple[int, ...]

    @property
    def sent(self) -> float:
        """Bytes that one card sends with the best algorithm."""
        n = len(self.ranks)
        shares = {
            "all_reduce": 2 * (n - 1) / n,
            "all_gather": n - 1.0,
            "gather": n - 1.0,
            "broadcast": 1.0,
            "reduce": 1.0,
        }
        return self.size * shares.get(self.kind, (n - 1) / n)

    @property
    def args(self) -> Mapping[str, object]:
        """The arguments of the collective's event in a trace."""
        return {
            "Collective name": self.kind,
            "Group size": len(self.ranks),
            "In msg nelems": self.elements,
            "Process Group Name": self.group,
            "Process Group Ranks": str(list(self.ranks)),
            "dtype": self.dtype,
        }

    def length(self, facts: DeviceFacts, costs: Costs) -> int:
        """Return the nanoseconds from the arrival of the last card until all cards are done."""
        others = min(len(self.ranks), _CARDS_OF_A_BOX) - 1
        rate = (facts.link_bandwidth or 0.0) * others / (_CARDS_OF_A_BOX - 1) * costs.links_share
        return us(costs.links_setup_us) + (round(self.sent / rate * NS_PER_S) if rate else 0)
