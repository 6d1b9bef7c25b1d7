"""Records the events of a simulated run as Gaudi's bridge does in release 1.19.

All times are nanoseconds after the base of the trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perftool.sim.own_stack import innermost_line, own_stack

# Arbitrary pids and tids; real pids and tids would differ from run to run.
MAIN = 14_734
LAUNCH_THREAD = 14_790
_SYNAPSE_LOGGER = MAIN + 10_000
_BRIDGE_LOGS = MAIN + 20_000
DEVICE_PROCESS = 0
# For Synapse's host threads, the bridge writes the engine type as pid, and the pthread id as part of the lane's name.
SYNAPSE_HOST = 22_101
_SYNAPSE_LANE = "Synapse/140233817864768"
# The tid is 1000 times the engine kind (-1) plus 3, in unsigned 32-bit arithmetic.
_SYNAPSE_TID = 2**32 - 1000 + 3

Args = Mapping[str, object]


@dataclass(frozen=True)
class Event:
    """One record of the trace. ``dur_ns`` is None except for complete events."""

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
    """The lane of one engine: its ``tid`` and its displayed name."""

    tid: int
    name: str


# As in Gaudi's PyTorch bridge, tid // 1000 identifies the kind of engine. The Gaudi 3 names and the tid 7019 come from
# a recording; all other values are made up. Each engine has one lane.
_GAUDI2 = {
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
    "GAUDI2": _GAUDI2,
    "GAUDI3": {
        "PDMA": LaneKind(3001, "[D0] SPDMA 0"),
        "MME": LaneKind(6011, "[HD0] MME"),
        "TPC": LaneKind(7019, "[HD0] TPC 0"),
        "NIC": LaneKind(14_096, "NIC 0"),
    },
}
# The hardware monitor that reports the end of an engine's work; its name on the first Gaudi is unknown.
_MONITORS: Mapping[str, Mapping[str, str]] = {
    "GAUDI": {},
    "GAUDI2": {"MME": "MMEH_WB0_MON_TS_BIT1", "TPC": "TPC_SPU_START_TO_SPU_HALT"},
    "GAUDI3": {"MME": "WB0_END", "TPC": "TPC_SPU_START_TO_SPU_HALT"},
}
# Copies between host and device are named after their host DMA stream. The first Gaudi has no such streams, so its
# names are made up.
_STREAMS = {"0": "pdma_tx", "1": "pdma_rx"}
_FIRST_GAUDI_COPIES = {"0": "memcpy HtoD", "1": "memcpy DtoH"}
_COMMANDS = "pdma_tx_commands"
_API_IDS = 32


@dataclass(frozen=True)
class Submitted:
    """A launch: the recipe's ``id``, ``number`` and ``name``, the launch's ``sequence``, and the number of launches in
    flight."""

    id: int
    number: int
    name: str
    sequence: int
    in_flight: int


def recipe_args(recipe: int, name: str, dtype: str = "") -> dict[str, object]:
    """Return the arguments of device work and of Synapse's annotations; ``recipe`` is 0 for work without a recipe."""
    stream = "0x7f30c4001b20" if recipe else "0x7f30c4001b40"
    return {"dataType": dtype, "eventHandle": "0x0", "recipeId": recipe, "recipeName": name, "streamHandle": stream}


class Recorder:
    """Collects events in the order in which its methods are called."""

    def __init__(self, device: str) -> None:
        self.events: list[Event] = []
        self.device = device
        # The script line of the last host event that has a line.
        self.line = ""
        self._lanes = LANES[device]
        self._monitors = _MONITORS[device]
        self._has_streams = device != "GAUDI"
        self._number = 0
        self._calls = 0

    def host(
        self, name: str, begin: int, end: int, cat: str = "cpu_op", args: Args | None = None, *, has_line: bool = True
    ) -> None:
        """Record a framework op or annotation of the main thread; ``has_line`` says whether a script line called it."""
        numbers = {"Ev Idx": self._number, "External id": self._number + 1, "Record function id": 0}
        self._number += 1
        stack = own_stack() if has_line else ""
        if has_line:
            self.line = innermost_line(stack)
        lines = {"Call stack": stack} if stack else {}
        self._add(Event("X", name, MAIN, MAIN, begin, end - begin, cat, {**numbers, **(args or {}), **lines}))

    def python_call(self, name: str, begin: int, end: int) -> None:
        """Record a function that the script calls, and its callers, as a profiler with stacks does."""
        callers = [caller for caller in reversed(own_stack().split(";")) if caller]
        for number, function in enumerate((*callers, name), 1):
            parent = number - 1 or None
            args = {"Python id": number, "Python parent id": parent, "Ev Idx": self._number}
            self._add(Event("X", function, MAIN, MAIN, begin, end - begin, "python_function", args))
            self._number += 1

    def bridge(self, name: str, begin: int, end: int, tid: int = MAIN) -> None:
        """Record a function of the bridge."""
        self._add(Event("B", name, _BRIDGE_LOGS, tid, begin, None, "Runtime"))
        self._add(Event("E", name, _BRIDGE_LOGS, tid, end, None, "Runtime"))

    def synapse(self, name: str, begin: int, end: int, tid: int = MAIN, args: Args | None = None) -> None:
        """Record a Synapse call."""
        self._add(Event("B", name, _SYNAPSE_LOGGER, tid, begin, None, "Runtime", args))
        self._add(Event("E", name, _SYNAPSE_LOGGER, tid, end, None, "Runtime", {"status": "0"}))

    def annotation(self, name: str, begin: int, end: int, recipe: int, recipe_name: str) -> None:
        """Record Synapse's annotation of work on its host threads."""
        args = recipe_args(recipe, recipe_name)
        self._add(Event("X", name, SYNAPSE_HOST, _SYNAPSE_TID, begin, end - begin, "Runtime", args))

    def launch(self, launch: Submitted, begin: int, end: int) -> None:
        """Record Synapse's method for ``launch`` and the annotation inside it; the first Gaudi shows only the
        annotation."""
        recipe = launch.id, launch.name
        if not self._has_streams:
            # The first Gaudi writes a recipe counter instead of recipe ids.
            name = f"enqueueWithExternalEvents seqId:{launch.sequence} recipeId:{launch.number + 1}"
            self.annotation(name, begin, end, *recipe)
            return
        handle = f"{0x55CE_83ED_6490 + 0x340 * launch.number:#x}"
        self.annotation("enqueueWithExternalEventsExt", begin, end, *recipe)
        name = f"enqueueWithExternalEvents recipeHandle {handle} recipeSeqNum {launch.number + 1}"
        inside = f"{name} seqId {launch.sequence} inFlight {launch.in_flight}"
        self.annotation(inside, begin + 1000, end - 1000, *recipe)

    def kernel(self, engine: str, name: str, begin: int, end: int, recipe: int, recipe_name: str, dtype: str) -> None:
        """Record the work of a recipe on an engine."""
        args = {**recipe_args(recipe, recipe_name, dtype), "device": DEVICE_PROCESS}
        if engine in self._monitors:
            args["HW event name"] = self._monitors[engine]
        self._add(Event("X", name, DEVICE_PROCESS, self._lanes[engine].tid, begin, end - begin, "Kernel", args))

    def transfer(self, direction: str, begin: int, end: int) -> None:
        """Record a transfer of the user's data; ``direction`` is 0 to the device and 1 from it."""
        if self._has_streams:
            self._host_dma(_STREAMS[direction], begin, end)
        else:
            row = recipe_args(0, "")
            name = _FIRST_GAUDI_COPIES[direction]
            self._add(Event("X", name, DEVICE_PROCESS, self._lanes["PDMA"].tid, begin, end - begin, "Memcpy", row))

    def commands(self, begin: int, end: int) -> None:
        """Record Synapse's download of a new recipe's commands to the device."""
        if self._has_streams:
            self._host_dma(_COMMANDS, begin, end)

    def _host_dma(self, stream: str, begin: int, end: int) -> None:
        name = f"{stream} apiId={self._calls % _API_IDS} chunk=0"
        self._calls += 1
        tid = self._lanes["PDMA"].tid
        self._add(Event("X", name, DEVICE_PROCESS, tid, begin, end - begin, "Runtime", recipe_args(0, "")))

    def collective(self, kind: str, begin: int, end: int, args: Args) -> None:
        """Record a collective on the links to other cards, starting when this card is ready."""
        name = f"hccl_{kind}"
        tid = self._lanes["NIC"].tid
        row = {**recipe_args(0, ""), **args, "device": DEVICE_PROCESS}
        self._add(Event("X", name, DEVICE_PROCESS, tid, begin, end - begin, "Runtime", row))

    def forget_before(self, ns: int) -> None:
        """Drop events that started before ``ns``, as if the profiler had started at that time."""
        kept: list[Event] = []
        for event in self.events:
            # An end event directly follows its begin event.
            if kept and kept[-1].ph == "B" if event.ph == "E" else event.ts_ns >= ns:
                kept.append(event)
        self.events = kept

    def forget(self, prefix: str) -> None:
        """Drop the host's annotations whose names start with ``prefix``."""
        self.events = [event for event in self.events if not (event.pid == MAIN and event.name.startswith(prefix))]

    def metadata(self) -> list[Event]:
        """Return the names of all processes and lanes."""
        records = _process(MAIN, "python3", "CPU")
        for pid, name in ((_SYNAPSE_LOGGER, "Synapse Logger"), (_BRIDGE_LOGS, "Bridge Logs")):
            records += _process(pid, name, name)
        records += _process(DEVICE_PROCESS, "/device:HPU:0", "/device:HPU:0")
        records += _thread(MAIN, MAIN, f"thread {MAIN} (python3)")
        records += _thread(SYNAPSE_HOST, _SYNAPSE_TID, _SYNAPSE_LANE)
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
