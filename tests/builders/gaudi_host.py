"""The host side of the trace builder: Kineto's CPU part, the bridge's logs and Synapse's lanes."""

from __future__ import annotations

from collections.abc import Mapping

from builders.gaudi_base import EventSink, recipe_args
from builders.gaudi_event import Event, Value, call_category, nanoseconds
from builders.gaudi_lanes import (
    BRIDGE_LOGS_OFFSET,
    MEMORY_LOGS_OFFSET,
    SYNAPSE_FIRST_INDEX,
    SYNAPSE_LOGGER_OFFSET,
    SYNAPSE_PID,
    synapse_tid,
)

_NONE: Mapping[str, Value] = {}


class CpuPart(EventSink):
    """Adds what Kineto records about the Python program."""

    def host(
        self,
        name: str,
        at: float,
        dur: float,
        *,
        cat: str = "cpu_op",
        tid: int | str | None = None,
        pid: int | str | None = None,
        args: Mapping[str, Value] = _NONE,
    ) -> Event:
        """Add a framework op, annotation or Python function on a host thread, by default the main thread."""
        index = self._evidence
        self._evidence += 1
        numbers: dict[str, Value] = {"External id": index + 1, "Record function id": 0}
        return self._add(
            Event(
                "X",
                name,
                self.pid if pid is None else pid,
                self.pid if tid is None else tid,
                nanoseconds(at),
                nanoseconds(at + dur) - nanoseconds(at),
                cat,
                {**numbers, **args, "Ev Idx": index},
            )
        )

    def step(self, number: int, at: float, dur: float) -> Event:
        return self.host(f"ProfilerStep#{number}", at, dur, cat="user_annotation")

    def dataloader(self, at: float, dur: float, iterator: str = "_MultiProcessingDataLoaderIter") -> Event:
        """Add a call in which the data loader returns the next batch."""
        return self.host(f"enumerate(DataLoader)#{iterator}.__next__", at, dur, cat="user_annotation")

    def optimizer(self, cls: str, at: float, dur: float) -> Event:
        """Add a step of an optimizer whose class is ``cls``."""
        return self.host(f"Optimizer.step#{cls}.step", at, dur, cat="user_annotation")

    def backward(self, node: str, at: float, dur: float, *, tid: int | None = None) -> Event:
        """Add a node of the autograd graph, for example ``AddmmBackward0``."""
        return self.host(f"autograd::engine::evaluate_function: {node}", at, dur, tid=tid)


class BridgePart(EventSink):
    """Adds the bridge's planes and Synapse's annotations."""

    def bridge(self, name: str, at: float, dur: float, *, tid: int | None = None, half: str = "") -> None:
        """Add a call of a bridge function. If ``half`` is "B" or "E", write only its begin or end event, as at the
        edges of the window.
        """
        self._call(BRIDGE_LOGS_OFFSET, "Bridge Logs", name, at, dur, tid, half, _NONE)

    def synapse(
        self,
        name: str,
        at: float,
        dur: float,
        *,
        tid: int | None = None,
        half: str = "",
        args: Mapping[str, Value] = _NONE,
    ) -> None:
        """Add a Synapse API call. Its arguments are strings, and its end event has a status."""
        self._call(SYNAPSE_LOGGER_OFFSET, "Synapse Logger", name, at, dur, tid, half, args)

    def annotation(
        self,
        name: str,
        at: float,
        dur: float,
        *,
        thread: str = "python3",
        recipe: int = 0,
        recipe_name: str | None = None,
    ) -> Event:
        """Add a host annotation of Synapse, such as ``compileGraph``, on the lane of ``thread``."""
        if thread not in self._synapse_threads:
            self._synapse_threads.append(thread)
        tid = synapse_tid(SYNAPSE_FIRST_INDEX + self._synapse_threads.index(thread), self.generation)
        self._lanes[(SYNAPSE_PID, tid)] = f"Synapse/{thread}"
        args = recipe_args(recipe, recipe_name, "")
        start, end = nanoseconds(at), nanoseconds(at + dur)
        category = call_category(self.generation)
        return self._add(Event("X", name, SYNAPSE_PID, tid, start, end - start, category, args, "host"))

    def memory(self, at: float, size: int, allocated: int, *, address: int = 1_152_957_300_000) -> Event:
        """Add an allocation, or a free if ``size`` is negative. ``allocated`` is the number of bytes allocated
        afterwards.
        """
        self._allocations += 1
        pid = self._plane(MEMORY_LOGS_OFFSET, "Memory Logs")
        args: dict[str, Value] = {
            "Addr": address,
            "Bytes": size,
            "Device Id": 0,
            "Device Type": 1,
            "Profiler Event Index": self._allocations,
            "Total Allocated": allocated,
            "Total Reserved": 96_636_764_160,
        }
        where = ("[memory]", pid, self.pid, nanoseconds(at), None, "cpu_instant_event", args, "host")
        return self._add(Event("i", *where, extra={"s": "t"}))

    def flow(self, number: int, source: Event, target: Event) -> None:
        """Add a flow from a host call to device work, as ``PT_TB_ENABLE_FLOW_EVENTS=1`` does."""
        category = "enqueue" if self.generation == "B" else "ac2g"
        extra: dict[str, Value] = {"id": number, "bp": "e"}
        for ph, end in (("s", source), ("f", target)):
            edge = Event(ph, target.name, end.pid, end.tid, end.ts_ns, None, category, None, "host", extra=extra)
            self._add(edge)

    def _call(
        self,
        offset: int,
        plane: str,
        name: str,
        at: float,
        dur: float,
        tid: int | None,
        half: str,
        args: Mapping[str, Value],
    ) -> None:
        pid, thread = self._plane(offset, plane), self.pid if tid is None else tid
        start, end = nanoseconds(at), nanoseconds(at + dur)
        category = call_category(self.generation)
        if self.generation != "B":
            numbered = {"External id": len(self.events) + 1, **args}
            self._add(Event("X", name, pid, thread, start, end - start, category, numbered, "host"))
            return
        synapse = plane == "Synapse Logger"
        if half in ("", "B"):
            self._add(Event("B", name, pid, thread, start, None, category, args or None, "host"))
        if half in ("", "E"):
            status = {"status": "0"} if synapse else None
            self._add(Event("E", name, pid, thread, end, None, category, status, "host"))
