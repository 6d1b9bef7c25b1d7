"""Computes the facts that an analysis must find in a trap from the builder's events, with naive sums of intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from builders.gaudi import GaudiTrace
from builders.intervals import Interval, clipped, overlap_ns, union_ns

DMA_ENGINES = ("DMA", "PDMA")


@dataclass(frozen=True)
class Facts:
    """Times are nanoseconds inside the steps, each a union over lanes. None means that the signal is absent.

    ``host_ns`` is the total length of bridge and Synapse calls by name, ``fallbacks`` the number of calls per op,
    ``dropped_events`` the number of records that a reader has to set aside, and ``lanes`` the number of lanes with work
    per engine.
    """

    steps: int
    window_ns: int
    busy_ns: int | None = None
    mme_union_ns: int | None = None
    tpc_union_ns: int | None = None
    dma_union_ns: int | None = None
    nic_union_ns: int | None = None
    mme_tpc_overlap_ns: int | None = None
    lanes: Mapping[str, int] = field(default_factory=dict)
    host_ns: Mapping[str, int] = field(default_factory=dict)
    compilations: int = 0
    replays: int = 0
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    dropped_events: int = 0
    bad_offset: int | None = None


Trap = tuple[bytes, Facts]


def facts_of(trace: GaudiTrace, **known: Any) -> Facts:
    """The facts that follow from the events, and those in ``known``, which the trap states itself."""
    steps = [(e.ts_ns, e.end_ns) for e in trace.events if e.name.startswith("ProfilerStep#")]
    found = Facts(len(steps), union_ns(steps))
    if trace.busy():
        found = _with_device(trace, found, steps)
    return replace(found, **known)


def _with_device(trace: GaudiTrace, found: Facts, steps: list[Interval]) -> Facts:
    def inside(*engines: str) -> list[Interval]:
        return [part for step in steps for part in clipped(trace.busy(*engines), step)]

    mme, tpc = inside("MME"), inside("TPC")
    return replace(
        found,
        busy_ns=union_ns(inside()),
        mme_union_ns=union_ns(mme),
        tpc_union_ns=union_ns(tpc),
        dma_union_ns=union_ns(inside(*DMA_ENGINES)),
        nic_union_ns=union_ns(inside("NIC")),
        mme_tpc_overlap_ns=overlap_ns(mme, tpc),
        lanes=_active_lanes(trace),
    )


def _active_lanes(trace: GaudiTrace) -> dict[str, int]:
    lanes = {(e.engine, e.tid) for e in trace.events if e.part == "device" and e.work}
    return {engine: sum(1 for name, _ in lanes if name == engine) for engine in sorted({n for n, _ in lanes})}
