"""A small virtual Gaudi in lazy mode: host clocks, a launch thread and first-in-first-out engines.

It orders events so that a sample cannot contradict itself: a launch precedes its work, work starts when the
device is free, and a host that waits wakes up after the work has ended. It also collects the console
log and the metrics of the same run. Times are in microseconds after the base of the trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from builders.fallback_logs import LogRecord, per_call
from builders.gaudi import BASE_NS, GaudiTrace
from builders.gaudi_device import WORK_MONITORS
from builders.gaudi_event import Value
from builders.metrics_files import Snapshot
from builders.runtime_logs import step_marker

PAGEABLE_BYTES_PER_US = 6_000.0
PCIE_BYTES_PER_US = 25_000.0
LAUNCH_THREAD = 14_790
AUTOGRAD_THREAD = 14_802
# Synapse names its lanes after pthreads.
_LAUNCH_LANE, _MAIN_LANE = "140233817864768", "140235120715584"


@dataclass(frozen=True)
class Kernel:
    """Work on one engine. With ``beside`` it starts together with the previous kernel instead of after it."""

    engine: str
    name: str
    dur: float
    dtype: str = ""
    lanes: tuple[int, ...] = (0,)
    beside: bool = False


@dataclass(frozen=True)
class Graph:
    """An accumulated lazy graph. ``key`` represents its ops and shapes, which the recipe cache looks up."""

    key: str
    kernels: tuple[Kernel, ...]
    build_us: float = 600.0
    compile_us: float = 400_000.0


class Run:
    """The state of the run. ``out`` receives events while :attr:`recording` is on."""

    def __init__(self, trace: GaudiTrace, start: float) -> None:
        self.trace = trace
        self.now = start
        self.recording = False
        self.console: list[str] = []
        self.fallbacks: Counter[str] = Counter()
        self.compiled: list[tuple[str, int]] = []
        self.snapshots: list[Snapshot] = []
        self.device_free = self.copies_free = self.launch_free = start
        self._silent = GaudiTrace()
        self._recipes: dict[str, int] = {}
        self._spill: list[tuple[float, Kernel, int]] = []
        self._sequence = self._api_calls = 0
        self._ends: list[float] = []
        self._downloaded: set[int] = set()

    @property
    def out(self) -> GaudiTrace:
        return self.trace if self.recording else self._silent

    def start_recording(self) -> None:
        """Open the window. Work that was launched earlier but starts inside the window is recorded."""
        self.recording = True
        for begin, kernel, recipe in self._spill:
            if begin >= self.now:
                self._emit(begin, kernel, recipe)

    def clock(self) -> datetime:
        """The wall clock of the host (UTC)."""
        base = datetime.fromtimestamp(BASE_NS // 10**9, tz=timezone.utc)
        return base + timedelta(microseconds=round(self.now))

    def log(self, line: str) -> None:
        """Print a line on the console."""
        self.console.append(line if line.endswith("\n") else line + "\n")

    def snapshot(self, trigger: str) -> None:
        """Dump the metrics."""
        stamp = self.clock().replace(tzinfo=None).isoformat(timespec="microseconds")
        self.snapshots.append(Snapshot(trigger, stamp, tuple(self.compiled), dict(self.fallbacks)))

    # The host ----------------------------------------------------------------------------------------

    @contextmanager
    def op(self, name: str, *, cat: str = "cpu_op", tid: int | None = None, **shapes: list[object]) -> Iterator[None]:
        """A host op that contains everything in the block."""
        begin = self.now
        self.now += 2.0
        yield
        self.now += 1.0
        self.out.host(name, begin, self.now - begin, cat=cat, tid=tid, args=_shape_args(shapes))

    def leaf(self, name: str, dur: float, *, tid: int | None = None, **shapes: list[object]) -> None:
        """A host op without children; ``dims`` and ``types`` as ``record_shapes`` writes them."""
        self.out.host(name, self.now, dur, tid=tid, args=_shape_args(shapes))
        self.now += dur + 1.5

    @contextmanager
    def bridge(self, name: str) -> Iterator[None]:
        """A bridge function that contains everything in the block."""
        begin = self.now
        self.now += 1.0
        yield
        self.now += 1.0
        self.out.bridge(name, begin, self.now - begin)

    # Graphs ------------------------------------------------------------------------------------------

    def cut(self, graph: Graph, reason: str) -> None:
        """Cut the lazy graph: build it, look it up, and pass it to the launch thread."""
        self.log(step_marker(reason, self._log_clock()))
        with self.bridge("SyncTensorsGraphInternal"):
            self.now += graph.build_us
        self._launch(graph)

    def replay(self, graph: Graph) -> None:
        """Replay a captured HPU graph: no build, no lookup."""
        self.log(step_marker("HPUGraph::replayV2", self._log_clock()))
        with self.bridge("ExecuteCachedGraph"):
            self.now += 30.0
            self._recipes.setdefault(graph.key, len(self._recipes))
            self._submit(graph, self.now, None)
            self.now += 45.0

    def known(self, graph: Graph) -> None:
        """Compile outside the recorded window (warm-up)."""
        if graph.key not in self._recipes:
            self._recipes[graph.key] = len(self._recipes)
            self.compiled.append((_name(self._recipes[graph.key]), round(graph.compile_us)))

    def _launch(self, graph: Graph) -> None:
        begin = max(self.now, self.launch_free)
        at = begin + 12.0
        if graph.key not in self._recipes:
            self.known(graph)
            recipe = self._recipes[graph.key]
            self.out.bridge("CompileSynapse", at, graph.compile_us + 40, tid=LAUNCH_THREAD)
            more = {"thread": _LAUNCH_LANE, "recipe": recipe_id(recipe), "recipe_name": _name(recipe)}
            self.out.annotation("compileGraph", at + 20, graph.compile_us, **more)
            at += graph.compile_us + 52
        self.launch_free = self._submit(graph, at, LAUNCH_THREAD)
        self.out.bridge("LaunchSyncTensorsGraph", begin, self.launch_free - begin, tid=LAUNCH_THREAD)

    def _submit(self, graph: Graph, at: float, tid: int | None) -> float:
        recipe = self._recipes[graph.key]
        self._sequence += 1
        self.out.synapse("synLaunchWithExternalEvents", at, 38.0, tid=tid, args={"numberTensors": "24"})
        self._ends = [end for end in self._ends if end > at]
        handle = f"{0x55CE_83ED_6490 + 0x340 * recipe:#x}"
        name = f"enqueueWithExternalEvents recipeHandle {handle} recipeSeqNum {recipe + 1}"
        name = f"{name} seqId {self._sequence} inFlight {len(self._ends)}"
        lane = {
            "thread": _LAUNCH_LANE if tid else _MAIN_LANE,
            "recipe": recipe_id(recipe),
            "recipe_name": _name(recipe),
        }
        self.out.annotation("enqueueWithExternalEventsExt", at + 1, 35.0, **lane)
        self.out.annotation(name, at + 2, 33.0, **lane)
        self.out.synapse("synEventRecord", at + 39.0, 2.0, tid=tid)
        if recipe not in self._downloaded:
            self._downloaded.add(recipe)
            self._host_dma("pdma_tx_commands", at + 20, 4.0, 0)
        self._execute(graph, recipe, at + 35.0)
        return at + 43.0

    def _execute(self, graph: Graph, recipe: int, ready: float) -> None:
        cursor = begin = max(ready + 6.0, self.device_free + 1.5)
        for kernel in graph.kernels:
            begin = begin if kernel.beside else cursor
            self._emit(begin, kernel, recipe)
            cursor = max(cursor, begin + kernel.dur) + (0.0 if kernel.beside else 0.4)
        self.device_free = cursor
        self._ends.append(cursor)

    def _emit(self, begin: float, kernel: Kernel, recipe: int) -> None:
        if not self.recording:
            self._spill = [*self._spill[-600:], (begin, kernel, recipe)]
        more = {"recipe": recipe_id(recipe), "recipe_name": _name(recipe), "dtype": kernel.dtype}
        for lane in kernel.lanes:
            for monitor in WORK_MONITORS["GAUDI2"][kernel.engine]:
                self.out.device_op(kernel.engine, kernel.name, begin, kernel.dur, lane=lane, monitor=monitor, **more)

    # Waiting and copying -----------------------------------------------------------------------------

    def wait(self, until: float) -> None:
        """Block the host until the device has reached a point in time."""
        woken = max(until + 8.0, self.now + 4.0)
        self.out.synapse("synEventSynchronize", self.now, woken - self.now, args={"eventHandle": "0x7f30c40022a0"})
        self.now = woken

    def copy_in(self, size: int, shape: list[int], dtype: str, *, pinned: bool = False) -> None:
        """``Tensor.to("hpu")``: pageable and blocking, or pinned and returning immediately if ``pinned``."""
        copy = self.op("aten::copy_", dims=[shape, shape], types=[dtype, dtype])
        with self.op("aten::to"), self.op("aten::_to_copy"), copy:
            self._host_to_device(size, pinned)

    def _host_to_device(self, size: int, pinned: bool) -> None:
        with self.bridge("copy_hpu_lazy_H2D"):
            self.now += 6.0 if pinned else 20.0 + size / PAGEABLE_BYTES_PER_US
            end = self._transfer(size, "0", self.now)
            if not pinned:
                self.wait(end)

    def copy_out(self, size: int) -> None:
        """Copy a result to the host: join the launch thread, wait for the device, wait for the copy."""
        with self.bridge("copy_hpu_lazy_D2H"):
            if self.launch_free > self.now:
                with self.bridge("JoinPendingLaunchThread"):
                    self.now = max(self.now, self.launch_free)
            self.wait(self._transfer(size, "1", self.device_free))

    def _transfer(self, size: int, direction: str, ready: float) -> float:
        args = {"size": str(size), "direction": direction}
        self.out.synapse("synMemCopyAsync", self.now, 7.0, args=args)
        self.now += 8.0
        begin = max(self.now, ready + 2.0, self.copies_free)
        end = begin + 2.0 + size / PCIE_BYTES_PER_US
        self._host_dma("pdma_rx" if direction == "1" else "pdma_tx", begin, end - begin, int(direction))
        self.copies_free = end
        return end

    def _host_dma(self, stream: str, begin: float, dur: float, lane: int) -> None:
        # Synapse numbers the calls modulo 32.
        self.out.pdma(f"{stream} apiId={self._api_calls % 32} chunk=0", begin, dur, lanes=(lane,))
        self._api_calls += 1

    def item(self, graph: Graph) -> None:
        """``Tensor.item()``: cut the graph, run it, fetch one number."""
        with self.op("aten::item"), self.op("aten::_local_scalar_dense"):
            self.cut(graph, "local scalar")
            self.copy_out(4)

    def fallback(self, op: str, graph: Graph, size: int, cpu_us: float, dtype: str) -> None:
        """An op that runs on the CPU: fetch its input, compute, send its result back."""
        self.fallbacks[f"aten::{op}"] += 1
        text = per_call(op, self=dtype)
        self.log(LogRecord("PT_FALLBACK", "debug", text, self._log_clock()).line())
        with self.op(f"aten::{op}"), self.bridge("cpu_fallback"):
            self.cut(graph, f"cpu fallback aten::{op}")
            with self.op("aten::to"), self.op("aten::_to_copy"), self.op("aten::copy_"):
                self.copy_out(size)
            self.leaf(f"aten::{op}", cpu_us)
            with self.op("aten::to"), self.op("aten::_to_copy"), self.op("aten::copy_"):
                self._host_to_device(size, pinned=False)

    def _log_clock(self) -> str:
        return self.clock().strftime("%H:%M:%S.%f")


def recipe_id(recipe: int) -> int:
    """Synapse's id of a recipe: one of 8,190 values, in no particular order."""
    return 57_345 + (3_585 + 4_093 * recipe) % 8_190


def _name(recipe: int) -> str:
    return f".graph_dumps/HabanaFusedOpLazy_{recipe}"


def _shape_args(shapes: Mapping[str, list[object]]) -> dict[str, Value]:
    keys = {"dims": "Input Dims", "types": "Input type"}
    return {keys[name]: value for name, value in shapes.items()}
