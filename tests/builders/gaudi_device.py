"""The device plane of the trace builder: engine lanes and the work on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from builders.gaudi_base import EventSink, recipe_args
from builders.gaudi_event import Event, Value, device_category, nanoseconds
from builders.gaudi_lanes import DEVICE_PROCESS, LANES
from builders.intervals import Interval

WORK_MONITORS = {
    "GAUDI": {},
    "GAUDI2": {
        "TPC": ("TPC_SPU_START_TO_SPU_HALT",),
        "MME": ("MMEH_WB0_MON_TS_BIT1", "MMEH_WB1_MON_TS_BIT1"),
        "DMA": ("DBG_DMA_TRC_WR_DATA_LAST",),
    },
    "GAUDI3": {"TPC": ("TPC_SPU_START_TO_SPU_HALT",), "MME": ("WB0_END",)},
}
"""For each device, the monitors that end the work of each engine. Each monitor writes a record of its own."""
_POINT_MONITORS = {"TPC": "TPC_QMAN_CMD_EXE", "MME": "SB0_START_EVT"}


class DevicePart(EventSink):
    """Adds device work, with one event for each lane it ran on."""

    def mme(self, name: str, at: float, dur: float, *, lanes: int | Iterable[int] = 1, **more: Any) -> None:
        """Add a matrix operation on one or several MME lanes; ``more`` is passed to :meth:`device_op`."""
        self._on_lanes("MME", name, at, dur, lanes, more)

    def tpc(self, name: str, at: float, dur: float, *, lanes: int | Iterable[int] = 1, **more: Any) -> None:
        """Add a TPC kernel on one or several TPC lanes; ``more`` is passed to :meth:`device_op`."""
        self._on_lanes("TPC", name, at, dur, lanes, more)

    def dma(self, name: str, at: float, dur: float, *, lanes: int | Iterable[int] = 1, **more: Any) -> None:
        """Add a device-to-device copy; ``more`` is passed to :meth:`device_op`."""
        self._on_lanes("DMA", name, at, dur, lanes, more)

    def pdma(self, name: str, at: float, dur: float, *, lanes: int | Iterable[int] = 1, **more: Any) -> None:
        """Add a transfer between host and device; ``more`` is passed to :meth:`device_op`."""
        self._on_lanes("PDMA", name, at, dur, lanes, more)

    def nic(self, name: str, at: float, dur: float, *, lanes: int | Iterable[int] = 1, **more: Any) -> None:
        """Add a collective's network work; ``more`` is passed to :meth:`device_op`."""
        self._on_lanes("NIC", name, at, dur, lanes, more)

    def device_op(
        self,
        engine: str,
        name: str,
        at: float,
        dur: float,
        *,
        lane: int = 0,
        recipe: int = 0,
        recipe_name: str | None = None,
        dtype: str = "",
        monitor: str = "",
        work: bool = True,
        named: bool = True,
        **args: Value,
    ) -> Event:
        """Add an event on one lane. ``recipe`` 0 means no recipe; the lane gets no name unless ``named`` is set."""
        tid = LANES[self.device][engine].tid(lane)
        if named:
            self.lane(engine, lane)
        fields = recipe_args(recipe, recipe_name, dtype)
        category = device_category(self.generation, engine, name)
        if category.lower() == "kernel":
            fields["device"] = self._device_pid
        if monitor:
            fields["HW event name"] = monitor
        fields.update({key: str(value) for key, value in args.items()})
        start, end = nanoseconds(at), nanoseconds(at + dur)
        event = Event("X", name, self._device_pid, tid, start, end - start, category, fields, "device", engine, work)
        return self._add(event)

    def monitored(self, engine: str, name: str, at: float, dur: float, **more: Any) -> None:
        """Add a kernel as full hardware tracing records it: once as work, and once as a longer duplicate that is not
        work.
        """
        self.device_op(engine, name, at, dur, monitor=WORK_MONITORS[self.device][engine][0], **more)
        point = _POINT_MONITORS[engine]
        self.device_op(engine, name, at - 3, dur + 6, monitor=point, work=False, **more)

    def lane(self, engine: str, lane: int) -> None:
        """Name a lane in the metadata, even if nothing runs on it."""
        kind = LANES[self.device][engine]
        self._planes.setdefault(self._device_pid, DEVICE_PROCESS)
        self._lanes[(self._device_pid, kind.tid(lane))] = kind.name(lane)

    def _on_lanes(
        self, engine: str, name: str, at: float, dur: float, lanes: int | Iterable[int], more: dict[str, Any]
    ) -> None:
        for lane in range(lanes) if isinstance(lanes, int) else lanes:
            self.device_op(engine, name, at, dur, lane=lane, **more)

    def busy(self, *engines: str) -> list[Interval]:
        """Return the intervals of real work on the lanes of ``engines``, or of all engines if none are given."""
        return [
            (event.ts_ns, event.end_ns)
            for event in self.events
            if event.part == "device" and event.work and (not engines or event.engine in engines)
        ]
