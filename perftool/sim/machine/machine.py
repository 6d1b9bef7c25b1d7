"""The simulated host and device, which spend the cost of each call in virtual time."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from perftool.model.devices import DeviceFacts
from perftool.sim.machine.causes import Causes
from perftool.sim.machine.costs import Costs, Roofline, ms, us
from perftool.sim.machine.device import DeviceQueue
from perftool.sim.machine.graph import Graph, Kernel, Node
from perftool.sim.machine.network import Collective
from perftool.sim.machine.recorder import LAUNCH_THREAD, MAIN, Args, Recorder, Submitted
from perftool.sim.machine.run_log import RunLog

# The settings that limit the number of ops in a lazy graph, and the log's names for the resulting cuts.
_LIMITS = {
    "PT_HPU_MAX_ACCUM_SIZE": "max accumulated graph size",
    "PT_HPU_MAX_COMPOUND_OP_SIZE": "reaching max accumulated compound op size",
}
# Synapse assigns recipe ids in a shuffled order, and starts again once all of them are used.
_FIRST_ID, _IDS, _STRIDE = 0xE001, 8_190, 4_093
# The start of a run's clock, relative to the base of the trace.
_START_NS = 1_000_000_000


@dataclass(frozen=True)
class Recipe:
    """A compiled graph. ``number`` counts from 0."""

    number: int
    name: str
    kernels: tuple[Kernel, ...]

    @property
    def id(self) -> int:
        """Synapse's id, which other recipes may share."""
        return _FIRST_ID + (3_585 + self.number * _STRIDE) % _IDS


class Machine:
    """Virtual clocks of the host, the launch thread and the device, and the recipe cache."""

    def __init__(self, device: DeviceFacts, mode: str, costs: Costs) -> None:
        self.mode = mode
        self.costs = costs
        self.recorder = Recorder(device.name)
        self.log = RunLog(device.name, mode)
        self.now = _START_NS
        self.graph = Graph(0)
        self.regions = 0
        self.compiled_at: list[int] = []
        self._speed = Roofline(device, costs)
        self._queue = DeviceQueue(self.recorder, self._speed)
        self._recipes: dict[Hashable, Recipe] = {}
        self.causes = Causes()
        self._launch_free = _START_NS
        self._launches = 0
        self._downloaded: set[int] = set()
        self._limits: dict[str, int] | None = None
        # The end of the last collective that writes a storage, by the storage's serial number.
        self._arriving: dict[int, int] = {}

    @property
    def end(self) -> int:
        """The end of all submitted work."""
        return max(self.now, self._launch_free, self._queue.done, self._queue.copies_free)

    @property
    def length(self) -> int:
        """The length of the run up to now, in ns."""
        return self.end - _START_NS

    @property
    def used(self) -> bool:
        """Whether any work was submitted to the device."""
        return bool(self._launches or self.graph or self._queue.copies_free)

    def is_idle(self) -> bool:
        """Whether the device has finished all submitted work."""
        return self.now >= self.end

    def spend(self, microseconds: float) -> None:
        """Advance the host's clock."""
        self.now += us(microseconds)

    def sleep(self, microseconds: float) -> None:
        """Simulate ``time.sleep`` in the script."""
        begin = self.now
        self.spend(microseconds)
        self.recorder.python_call("<built-in function sleep>", begin, self.now)

    def host_op(self, name: str, microseconds: float, args: Args | None = None) -> None:
        """Simulate a host op without children."""
        begin = self.now
        self.spend(microseconds)
        self.recorder.host(name, begin, self.now, args=args)

    def plain_op(self, name: str, moved: int) -> None:
        """Simulate an op on host tensors that reads and writes ``moved`` bytes."""
        self.host_op(f"aten::{name}", self.costs.host_plain_op_us + moved / self.costs.host_bytes_per_us)

    @contextmanager
    def op(self, name: str, args: Args | None = None, microseconds: float | None = None) -> Iterator[None]:
        """Simulate a host op that contains the block and spends ``microseconds`` before it."""
        begin = self.now
        self.spend(self.costs.host_plain_op_us if microseconds is None else microseconds)
        yield
        self.spend(1.0)
        self.recorder.host(name, begin, self.now, args=args)

    def add(self, node: Node) -> int:
        """Add an op to the graph; outside lazy mode and compiled regions, launch it immediately."""
        index = self.graph.add(node)
        if self.mode != "lazy" and not self.regions:
            self._submit_graph("eager")
        elif self.mode == "lazy":
            self._keep_limits()
        return index

    def _keep_limits(self) -> None:
        # Read the limits only at the first op, because the script may set the variables before it.
        if self._limits is None:
            limits = {reason: os.environ.get(name, "") for name, reason in _LIMITS.items()}
            self._limits = {reason: int(value) for reason, value in limits.items() if value.isdecimal()}
        for reason, most in self._limits.items():
            if len(self.graph) >= most:
                self.cut(reason)

    def cut(self, reason: str) -> None:
        """End the graph and launch it, unless it is empty."""
        if not self.graph:
            return
        self.log.cut(reason, self.now)
        self.causes.ended(reason)
        # Only one launch is pending at a time, so wait until the previous graph is compiled and launched.
        self._join()
        begin = self.now
        self.spend(self.costs.graph_build_us + self.costs.graph_build_per_op_us * len(self.graph))
        if self.mode == "lazy":
            self.recorder.bridge("SyncTensorsGraphInternal", begin, self.now + us(1))
            self.spend(1.0)
        self._submit_graph("lazy" if self.mode == "lazy" else "compile")

    def replay(self, call: str) -> None:
        """Launch the graph as a captured HPU graph that ``call`` replays, without building the graph or looking it
        up."""
        if not self.graph:
            return
        self.log.cut(call, self.now)
        self._join()
        begin = self.now
        self.spend(self.costs.graph_replay_us)
        self._submit_graph("lazy")
        self.spend(1.0)
        self.recorder.bridge("ExecuteCachedGraph", begin, self.now)

    def mark_step(self) -> None:
        """Simulate ``htcore.mark_step()``."""
        self.spend(self.costs.host_call_us)
        if self.mode == "lazy":
            self.cut("host step marker")

    def _submit_graph(self, form: str) -> None:
        graph, self.graph = self.graph, Graph(self.graph.serial + 1)
        begin = at = max(self.now, self._launch_free)
        recipe = self._recipes.get(graph.key())
        if recipe is None:
            if form != "eager":
                # In eager mode, an op is compiled once for each shape; that does not count as a recompilation.
                self.causes.compiled(graph.nodes)
            recipe = self._make_recipe(graph, form)
            at = self._compile(recipe, graph, form, at)
            if form == "eager":
                # In eager mode, the host waits until the op is compiled.
                self.now = at
        else:
            self.log.hits[recipe.number + 1] += 1
        arriving = [self._arriving.pop(each, 0) for each in graph.touched] if self._arriving else []
        self._launch_free = self._launch(recipe, at, max(arriving, default=0))
        name = "LaunchSyncTensorsGraph" if form == "lazy" else "LaunchRecipeTask"
        self.recorder.bridge(name, begin, self._launch_free, LAUNCH_THREAD)

    def _make_recipe(self, graph: Graph, form: str) -> Recipe:
        number = len(self._recipes)
        shapes = {"lazy": f".graph_dumps/HabanaFusedOpLazy_{number}", "compile": f"graph_recipe_{number}"}
        recipe = Recipe(number, shapes.get(form, str(number)), graph.kernels(self._speed))
        self._recipes[graph.key()] = recipe
        self.log.misses[recipe.number + 1] += 1
        return recipe

    def _compile(self, recipe: Recipe, graph: Graph, form: str, at: int) -> int:
        """Compile on the launch thread, and return the time when that thread is free again."""
        whole = ms(self.costs.graph_compile_ms + self.costs.graph_compile_per_op_ms * len(graph))
        length = ms(self.costs.graph_eager_compile_ms) if form == "eager" else whole
        begin, end = at + us(2), at + us(2) + length
        self.recorder.bridge("CompileSynapse", begin, end + us(2), LAUNCH_THREAD)
        self.recorder.annotation("compileGraph", begin + us(1), end, recipe.id, recipe.name)
        self.compiled_at.append(begin)
        self.log.compiled.append((recipe.name, length // 1000))
        return end + us(4)

    def _launch(self, recipe: Recipe, at: int, after: int) -> int:
        """Enqueue a recipe that cannot run before ``after``, and return the time when the launch thread is free
        again."""
        begin, end = at + us(1), at + us(1 + self.costs.graph_launch_us)
        self._launches += 1
        self.recorder.synapse("synLaunchWithExternalEvents", begin, end, LAUNCH_THREAD)
        launch = Submitted(recipe.id, recipe.number, recipe.name, self._launches, self._queue.in_flight(begin))
        self.recorder.launch(launch, begin + us(1), end - us(1))
        if recipe.number not in self._downloaded:
            self._downloaded.add(recipe.number)
            self._queue.download(end - us(1))
        self.recorder.synapse("synEventRecord", end + us(0.5), end + us(1.5), LAUNCH_THREAD)
        self._queue.run(recipe.kernels, recipe.id, recipe.name, end - us(1), after)
        return end + us(2)

    def synchronize(self, reason: str = "bindings-synchronize_device") -> None:
        """Launch pending ops and wait for the device."""
        self.cut(reason)
        self.wait()

    def wait(self) -> None:
        """Wait until the device has finished all launched work."""
        self._join()
        self._wait(self._queue.done)

    def copy_in(self, size: int, *, pinned: bool, non_blocking: bool) -> None:
        """Copy from host to device; the host waits unless the memory is ``pinned`` and the copy ``non_blocking``."""
        begin = self.now
        self.spend(self.costs.copies_call_us)
        if not pinned:
            self.spend(size / self.costs.copies_pageable_bytes_per_us)
        end = self._transfer(size, "0", self.now)
        if not (pinned and non_blocking):
            self._wait(end)
        self.spend(1.0)
        self.recorder.bridge("copy_hpu_lazy_H2D", begin, self.now)

    def copy_out(self, size: int, reason: str | None) -> None:
        """Copy from device to host: wait for the launched work and for the copy. With a ``reason``, pending ops are
        launched first.
        """
        self.causes.copied(reason)
        if reason is not None:
            self.cut(reason)
        begin = self.now
        self.spend(1.0)
        self._join()
        self._wait(self._transfer(size, "1", self._queue.done))
        self.spend(1.0)
        self.recorder.bridge("copy_hpu_lazy_D2H", begin, self.now)

    def collective(
        self, collective: Collective, last_arrival: Callable[[int], int], results: Iterable[int], *, waits: bool
    ) -> None:
        """Simulate a collective of several cards after the launched work. ``last_arrival`` takes the time when this
        card is ready, and returns the time when the last card is. ``results`` are the serial numbers of the storages
        that the collective writes; later work on these storages waits for the collective. With ``waits``, the host also
        waits.
        """
        ready = max(self.now, self._launch_free, self._queue.done)
        end = self._queue.collective(collective, ready, last_arrival(ready))
        self._arriving.update(dict.fromkeys(results, end))
        if waits:
            self._wait(end)

    def _join(self) -> None:
        if self._launch_free > self.now:
            self.recorder.bridge("JoinPendingLaunchThread", self.now, self._launch_free)
            self.now = self._launch_free

    def _transfer(self, size: int, direction: str, ready: int) -> int:
        args = {"direction": direction, "size": str(size)}
        begin = self.now + us(0.5)
        self.recorder.synapse("synMemCopyAsync", begin, begin + us(self.costs.copies_call_us - 1), args=args)
        self.spend(self.costs.copies_call_us)
        return self._queue.transfer(size, direction, max(self.now, ready))

    def _wait(self, until: int) -> None:
        begin = self.now
        self.now = max(until, begin) + us(self.costs.copies_wake_us)
        args = {"eventHandle": "0x7f30c40022a0"}
        self.recorder.synapse("synEventSynchronize", begin, self.now, MAIN, args)
