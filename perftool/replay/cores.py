"""Limits predictions by the cores of the host, because work that moves to other processes still needs cores."""

from __future__ import annotations

from dataclasses import dataclass

from perftool.store.trace_store import TraceStore
from perftool.units import format_ratio

_LOADS = "SELECT * FROM machine_loads WHERE rank = $rank"
# The system counts the busy time of each core in ticks of 10 ms, so the difference between two readings may be one tick
# too large.
_TICK_NS = 10_000_000


@dataclass(frozen=True)
class Cores:
    """How many cores of the recording machine the run could use, and how many the run itself and other programs kept
    busy on average. If this is unknown, ``usable`` and ``own`` are None, and ``others`` is 0.
    """

    usable: float | None = None
    own: float | None = None
    others: float = 0.0

    def least_step(self, measured_ns: int, predicted_ns: int, on_device: bool) -> tuple[int, str | None]:
        """Return the minimum time, in ns, of a step of ``measured_ns`` if its work used all cores that other programs
        leave free, and a clause for the message (None if there is nothing to say).

        If the time exceeds ``predicted_ns``, the clause says that the cores are too busy. Otherwise, the time is
        returned as 0. It is also 0 if the number of cores is unknown; the clause then says so, unless the work runs
        ``on_device``, an accelerator. The minimum assumes that the total work stays the same. Busy waiting counts as
        work, so the true minimum may be lower.
        """
        if self.usable is None or self.own is None:
            lacks = "the trace does not say how many cores the machine has for workers"
            return 0, None if on_device else lacks
        left = self.usable - self.others
        least_ns = measured_ns if left <= self.own else round(measured_ns * self.own / left)
        if least_ns <= predicted_ns:
            return 0, None
        busy = min(1.0, (self.own + self.others) / self.usable)
        usable = "only core" if self.usable == 1 else f"{self.usable:g} cores"
        are = "was" if self.usable == 1 else "were"
        return least_ns, f"workers need cores, but the {usable} that the run may use {are} {format_ratio(busy)} busy"


def cores_of(store: TraceStore, rank: int) -> Cores:
    """Read the cores of the machine that ``rank`` was recorded on."""
    store.build(["machine_loads"])
    row = next(iter(store.select(_LOADS, {"rank": rank})), None)
    if row is None or row["own_ns"] is None or row["cores"] is None:
        return Cores()
    wall, own, others = row["wall_ns"], row["own_ns"], 0.0
    if row["busy_ns"] is not None:
        others = max(0.0, row["busy_ns"] - own - _TICK_NS * row["cores"]) / wall
    return Cores(row["cores"], own / wall, others)
