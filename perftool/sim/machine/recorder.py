"""The events of a simulated run as the bridge of a Gaudi in release 1.19 would record them (generation B).

All times are nanoseconds after the base of the trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perftool.sim.own_stack import innermost_line, own_stack

# A pid and tids that look like any others: real ones would differ from run to run.
MAIN = 14_734
LAUNCH_THREAD = 14_790
_SYNAPSE_LOGGER = MAIN + 10_000
_BRIDGE_LOGS = MAIN + 20_000
DEVICE_PROCESS = 0
SYNAPSE_HOST = 2
# An engine kind of -1 times 1000 wraps in unsigned 32-bit arithmetic.
_SYNAPSE_TID = 2**32 - 1000 + 3

Args = Mapping[str, object]


@dataclass(frozen=True)
class Event:
    """One record of the trace. ``dur_ns`` is None for all but complete events."""

    ph: str
    name: str
    pid: int | str
    tid: int | str
    ts_ns: int
    dur_ns: int | None = None
    cat: str = ""
    args: Args | None = None


@dataclass(frozen=True)
class LaneKind:
    """The lane of one engine: tid 1000 x kind plus an engine index, and its display name."""

    tid: int
    name: str


# The thousands are the bridge's; the remainders and names are invented. One lane stands for all of its engine.
_LATER = {
    "PDMA": LaneKind(3001, "PDMA 0"),
    "MME": LaneKind(6003, "MME 0"),
    "TPC": LaneKind(7024, "TPC 0"),
    "NIC": LaneKind(14_049, "NIC 0"),
}
LANES: Mapping[str, Mapping[str, LaneKind]] = {
    "GAUDI": {
        "PDMA": LaneKind(6, "DMA 0 PCIe"),
        "MME": LaneKind(1008, "MME 0"),
        "TPC": LaneKind(2012, "TPC 0"),
        "NIC": LaneKind(17_020, "NIC 0"),
    },
    "GAUDI2": _LATER,
    "GAUDI3": {**_LATER, "MME": LaneKind(6016, "[HD0] MME"), "TPC": LaneKind(7032, "[HD0] TPC 0")},
}


def recipe_args(recipe: int, name: str, dtype: str = "") -> dict[str, object]:
    """The arguments that device work and Synapse's annotations carry; recipe 0 means none."""
    stream = "0x7f30c4001b20" if recipe else "0x7f30c4001b40"
    return {"dataType": dtype, "eventHandle": "0x0", "recipeId": recipe, "recipeName": name, "streamHandle": stream}


class Recorder:
    """Collects events in the order in which they are told of."""

    def __init__(self, device: str) -> None:
        self.events: list[Event] = []
        self.device = device
        # The line of the script that the last event came from.
        self.line = ""
        self._lanes = LANES[device]
        self._number = 0

    def host(
        self, name: str, begin: int, end: int, cat: str = "cpu_op", args: Args | None = None, *, has_line: bool = True
    ) -> None:
        """A framework op or annotation of the main thread; ``has_line`` for what a line of the script called."""
        numbers = {"Ev Idx": self._number, "External id": self._number + 1, "Record function id": 0}
        self._number += 1
        stack = own_stack() if has_line else ""
        if has_line:
            self.line = innermost_line(stack)
        lines = {"Call stack": stack} if stack else {}
        self._add(Event("X", name, MAIN, MAIN, begin, end - begin, cat, {**numbers, **(args or {}), **lines}))

    def bridge(self, name: str, begin: int, end: int, tid: int = MAIN) -> None:
        """A function of the bridge."""
        self._add(Event("B", name, _BRIDGE_LOGS, tid, begin, None, "Runtime"))
        self._add(Event("E", name, _BRIDGE_LOGS, tid, end, None, "Runtime"))

    def synapse(self, name: str, begin: int, end: int, tid: int = MAIN, args: Args | None = None) -> None:
        """A call of Synapse."""
        self._add(Event("B", name, _SYNAPSE_LOGGER, tid, begin, None, "Runtime", args))
        self._add(Event("E", name, _SYNAPSE_LOGGER, tid, end, None, "Runtime", {"status": "0"}))

    def annotation(self, name: str, begin: int, end: int, recipe: int, recipe_name: str) -> None:
        """What Synapse notes of the work of its host threads."""
        args = recipe_args(recipe, recipe_name)
        self._add(Event("X", name, SYNAPSE_HOST, _SYNAPSE_TID, begin, end - begin, "Runtime", args))

    def kernel(self, engine: str, name: str, begin: int, end: int, recipe: int, recipe_name: str, dtype: str) -> None:
        """Work of a recipe on an engine."""
        args = {**recipe_args(recipe, recipe_name, dtype), "device": DEVICE_PROCESS}
        self._add(Event("X", name, DEVICE_PROCESS, self._lanes[engine].tid, begin, end - begin, "Kernel", args))

    def transfer(self, number: int, begin: int, end: int) -> None:
        """A transfer between host and device."""
        name = f"pdma_tx_commands apiId={number} chunk=0"
        tid = self._lanes["PDMA"].tid
        self._add(Event("X", name, DEVICE_PROCESS, tid, begin, end - begin, "Runtime", recipe_args(0, "")))

    def collective(self, kind: str, begin: int, end: int, args: Args) -> None:
        """A collective on the links to other cards, from when this card is ready for it; ``args`` say what it moves."""
        name = f"hccl_{kind}"
        tid = self._lanes["NIC"].tid
        row = {**recipe_args(0, ""), **args, "device": DEVICE_PROCESS}
        self._add(Event("X", name, DEVICE_PROCESS, tid, begin, end - begin, "Runtime", row))

    def forget_before(self, ns: int) -> None:
        """Drop what began before ``ns``, as a profiler does that was switched on only then."""
        kept: list[Event] = []
        for event in self.events:
            # An end is told right after its beginning.
            if kept and kept[-1].ph == "B" if event.ph == "E" else event.ts_ns >= ns:
                kept.append(event)
        self.events = kept

    def forget(self, prefix: str) -> None:
        """Drop the host's annotations whose names begin with ``prefix``."""
        self.events = [event for event in self.events if not (event.pid == MAIN and event.name.startswith(prefix))]

    def metadata(self) -> list[Event]:
        """The names of all processes and lanes."""
        records = _process(MAIN, "python3", "CPU")
        for pid, name in ((_SYNAPSE_LOGGER, "Synapse Logger"), (_BRIDGE_LOGS, "Bridge Logs")):
            records += _process(pid, name, name)
        records += _process(DEVICE_PROCESS, "/device:HPU:0", "/device:HPU:0")
        records += _thread(MAIN, MAIN, f"thread {MAIN} (python3)")
        records += _thread(SYNAPSE_HOST, _SYNAPSE_TID, "Synapse/launch")
        for lane in self._lanes.values():
            records += _thread(DEVICE_PROCESS, lane.tid, lane.name)
        return records

    def _add(self, event: Event) -> None:
        self.events.append(event)


def _process(pid: int, name: str, label: str) -> list[Event]:
    index = pid + 16_777_216 if pid < 8 else pid
    return [
        Event("M", "process_name", pid, 0, 0, args={"name": name}),
        Event("M", "process_labels", pid, 0, 0, args={"labels": label}),
        Event("M", "process_sort_index", pid, 0, 0, args={"sort_index": index}),
    ]


def _thread(pid: int, tid: int, name: str) -> list[Event]:
    return [
        Event("M", "thread_name", pid, tid, 0, args={"name": name}),
        Event("M", "thread_sort_index", pid, tid, 0, args={"sort_index": -1}),
    ]
