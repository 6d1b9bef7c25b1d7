"""A readable builder of Gaudi traces of the generations A, B, C and C2.

    trace = GaudiTrace(generation="B", device="GAUDI2", pid=14734)
    trace.step(4, at=0, dur=500)
    trace.host("aten::add", at=100, dur=5)
    trace.mme("GEMM", at=150, dur=119, recipe=7, dtype="bf16")
    trace.to_bytes()

All times are microseconds after the base of the trace. The same calls in the same order give the same bytes.

The generations are the formats of different versions of the bridge. B (release 1.19) appends the bridge's events to a
finished Kineto file, as one line with sorted keys; the others write them before Kineto's closing records. A has
absolute times and no base time. C and C2 differ in category names and in Synapse's tids.
"""

from __future__ import annotations

import gzip
from pathlib import Path

from builders.gaudi_device import DevicePart
from builders.gaudi_encode import Document, kineto_layout, sorted_line
from builders.gaudi_event import Event
from builders.gaudi_host import BridgePart, CpuPart
from builders.gaudi_lanes import DEVICE_MEMORY_BYTES
from builders.gaudi_metadata import kineto_records, kineto_tail, lane_records, process_records
from builders.intervals import Interval

BASE_NS = 1_727_743_122_000_000_000
"""Start of a three-month interval (a multiple of 7,889,238 seconds): the zero of relative times."""


class GaudiTrace(CpuPart, BridgePart, DevicePart):
    """Collects events and writes them in the format of a generation.

    ``note`` is a top-level string that marks the trace as hand-made. ``unescaped`` reproduces a bug of generation C,
    which quotes the strings of the bridge but does not escape them.
    """

    def __init__(
        self,
        generation: str = "B",
        device: str = "GAUDI2",
        pid: int = 14734,
        *,
        rank: int | None = None,
        world_size: int = 1,
        note: str | None = None,
        unescaped: bool = False,
        base_ns: int = BASE_NS,
    ) -> None:
        super().__init__(generation, device, pid)
        self._rank, self._world_size, self._note = rank, world_size, note
        self._unescaped, self._base_ns = unescaped, base_ns

    def document(self) -> Document:
        """Return the top-level fields, metadata and events in the order of the generation's writer."""
        kineto = [event for event in self.events if event.part == "kineto"]
        others = [event for event in self.events if event.part != "kineto"]
        begin, end = self._window()
        meta_ts = begin if self.generation in ("C", "C2") else 0
        threads = sorted({e.tid for e in kineto if isinstance(e.tid, int) and e.pid == self.pid} | {self.pid})
        head = [*kineto_records(self.pid, "python3", threads, begin), *kineto]
        hpu = [*self._bridge_metadata(meta_ts), *others]
        tail = kineto_tail(begin, end)
        # Generation B appends to a finished Kineto file, so its events follow the closing record.
        ordered = [*head, *tail, *hpu] if self.generation == "B" else [*head, *hpu, *tail]
        absolute_us = self._base_ns // 1000 if self.generation == "A" else 0
        return Document(self._top(), tuple(ordered), not self._unescaped, absolute_us)

    def to_bytes(self) -> bytes:
        document = self.document()
        return sorted_line(document) if self.generation == "B" else kineto_layout(document)

    def write(self, path: Path) -> Path:
        """Write the file, compressed without a time stamp if its name ends in ``.gz``."""
        data = self.to_bytes()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data, 9, mtime=0) if path.suffix == ".gz" else data)
        return path

    def _window(self) -> Interval:
        if not self.events:
            return 0, 0
        return min(event.ts_ns for event in self.events), max(event.end_ns for event in self.events)

    def _bridge_metadata(self, ts_ns: int) -> list[Event]:
        records: list[Event] = []
        for pid, name in sorted(self._planes.items()):
            records += process_records(pid, name, ts_ns)
        for (pid, tid), name in sorted(self._lanes.items()):
            records += lane_records(pid, tid, name, ts_ns)
        return records

    def _top(self) -> dict[str, object]:
        memory = DEVICE_MEMORY_BYTES[self.device]
        top: dict[str, object] = {"schemaVersion": 1}
        top["deviceProperties"] = [{"name": self.device, "totalGlobalMem": memory}]
        if self._rank is not None:
            distributed = {"backend": "hccl", "rank": self._rank, "world_size": self._world_size}
            top["distributedInfo"] = distributed
        if self._note is not None:
            top.update({"handMade": True, "handMadeNote": self._note})
        top.update({"with_stack": 0, "displayTimeUnit": "ms"})
        if self.generation != "A":
            top["baseTimeNanoseconds"] = self._base_ns
        return {**top, "traceName": f"hpu_{self.pid}.pt.trace.json"}
