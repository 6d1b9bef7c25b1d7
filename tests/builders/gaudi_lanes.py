"""The lanes of each Gaudi engine (tid bases, first engine indices and names), and other constants of its traces."""

from __future__ import annotations

from dataclasses import dataclass

DEVICE_PROCESS = "/device:HPU:0"
SYNAPSE_PID = 22_101
SYNAPSE_FIRST_INDEX = 3
SYNAPSE_LOGGER_OFFSET = 10_000
BRIDGE_LOGS_OFFSET = 20_000
MEMORY_LOGS_OFFSET = 30_000
SORT_INDEX_OFFSET = 16_777_216

DEVICE_MEMORY_BYTES = {"GAUDI": 34_359_738_368, "GAUDI2": 101_200_691_200, "GAUDI3": 137_438_953_472}
"""``totalGlobalMem`` of the HPU entry; the figures are invented, but plausible."""


@dataclass(frozen=True)
class LaneKind:
    """The lanes of one engine. A lane's tid is ``base + first + n``; its name is ``label`` with n filled in."""

    base: int
    first: int
    label: str

    def tid(self, lane: int) -> int:
        """Return the lane's thread id: 1000 x engine kind plus a global engine index, which starts above 0."""
        return self.base + self.first + lane

    def name(self, lane: int) -> str:
        """Return the lane's display name. A half-die of Gaudi 3 ("HD") has eight TPCs, and a die ("D") has two SPDMA
        engines.
        """
        return self.label.format(n=lane, half=lane // 8, within=lane % 8, die=lane // 2, pair=lane % 2)


_GAUDI1 = {
    "DMA": LaneKind(0, 0, "DMA {n}"),
    "PDMA": LaneKind(0, 6, "DMA {n} PCIe"),
    "MME": LaneKind(1000, 8, "MME {n}"),
    "TPC": LaneKind(2000, 12, "TPC {n}"),
    "NIC": LaneKind(17000, 20, "NIC {n}"),
}
_GAUDI2 = {
    "PDMA": LaneKind(3000, 1, "PDMA {n}"),
    "MME": LaneKind(6000, 3, "MME {n}"),
    "DMA": LaneKind(4000, 7, "EDMA {n}"),
    "ROT": LaneKind(11000, 16, "ROTATOR {n}"),
    "TPC": LaneKind(7000, 24, "TPC {n}"),
    "NIC": LaneKind(14000, 49, "NIC {n}"),
}
_GAUDI3 = {
    "PDMA": LaneKind(3000, 1, "[D{die}] SPDMA {pair}"),
    "MME": LaneKind(6000, 11, "[HD{n}] MME"),
    "DMA": LaneKind(4000, 5, "EDMA {n}"),
    "ROT": LaneKind(11000, 83, "[HD{n}] ROT"),
    "TPC": LaneKind(7000, 19, "[HD{half}] TPC {within}"),
    "NIC": LaneKind(14000, 96, "NIC {n}"),
}
LANES = {"GAUDI": _GAUDI1, "GAUDI2": _GAUDI2, "GAUDI3": _GAUDI3}
"""device name -> engine -> its lanes.

The bases come from the bridge. The names on Gaudi 3 and the tid of its first TPC (7019) come from a recording. The rest
is invented.
"""


def synapse_tid(index: int, generation: str) -> int:
    """Return the unusual tid of a Synapse host lane.

    The engine kind is -1, so 1000 times it wraps around in unsigned 32-bit arithmetic. Generation C2 reads the result
    as a signed number and takes its absolute value.
    """
    return 1000 - index if generation == "C2" else 2**32 - 1000 + index
