"""One simulated run: the machine, and the PyTorch modes that pass the script's ops to the machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perftool.fused import dispatch
from perftool.fused.porting.bridge import ranks_of_launcher
from perftool.model.devices import DeviceFacts
from perftool.sim.machine.annotations import PROFILER_STEP, Annotations
from perftool.sim.machine.costs import default_costs
from perftool.sim.machine.machine import Machine
from perftool.sim.machine.steps import step_bounds, warm_up
from perftool.sim.machine.write import About, trace_bytes, write
from perftool.sim.ops.autocast import HpuAutocast, without_autocast
from perftool.sim.ops.dispatch_mode import DispatchMode
from perftool.sim.ops.function_mode import FunctionMode
from perftool.sim.ops.placement import Placement
from perftool.sim.patches import item


class Simulation:
    """The state of a run. Ops of the thread that enters :meth:`running` are simulated; ops of other threads are not."""

    def __init__(self, device: DeviceFacts, mode: str) -> None:
        self.device = device
        self.mode = mode
        self.machine = Machine(device, mode, default_costs())
        self.placement = Placement()
        self.annotations = Annotations(self.machine)
        self.dispatch = DispatchMode(self.machine, self.placement, self.annotations, device.name)
        self.functions = FunctionMode(self.dispatch)
        self.autocast = HpuAutocast(
            lambda tensor: self.placement.find(tensor) is not None, self.machine.log.remarks.append
        )
        self.owner = os.getpid()
        # Set by the launcher, or by a script that spawns its own ranks.
        self.ranks, self.rank, _ = ranks_of_launcher()
        # Whether the last forward pass was a captured or compiled graph; if so, its backward pass is a graph, too.
        self.graphed_backward = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Simulate the ops in the block."""
        with self.functions, self.dispatch:
            yield

    @contextmanager
    def plain_tensors(self) -> Iterator[None]:
        """Within the block, tensors report their real device, the CPU."""
        before, self.functions.active = self.functions.active, False
        try:
            with item(vars(dispatch), "wanted", "reference"), without_autocast():
                yield
        finally:
            self.functions.active = before

    def become_worker(self) -> None:
        """Count only host time from now on, because this process is a child of the script."""
        self.functions.active = False
        self.dispatch.hand_to(self.dispatch.host_op)

    def finish(self, skip_steps: int | None = None, steps_from: str | None = None) -> int:
        """Launch the pending ops, close open annotations, and mark the steps. Return how many initial steps the
        recording leaves out: ``skip_steps``, or the warm-up. ``steps_from`` says what marks a step.
        """
        begin = self.machine.recorder.events[0].ts_ns if self.machine.recorder.events else self.machine.now
        self.machine.cut("host step marker")
        self.annotations.close()
        bounds = step_bounds(self.annotations.marks, begin, self.machine.now, steps_from)
        if steps_from not in (None, "profiler"):
            self.machine.recorder.forget(PROFILER_STEP)
        if self.machine.used:
            self.machine.synchronize()
        skipped = warm_up(bounds, self.machine.compiled_at) if skip_steps is None else min(skip_steps, len(bounds))
        if skipped:
            self.machine.recorder.forget_before(bounds[skipped - 1][1])
        for number, (start, end) in list(enumerate(bounds))[skipped:]:
            self.machine.recorder.host(f"{PROFILER_STEP}{number}", start, end, "user_annotation", has_line=False)
        return skipped

    def write(self, trace: Path, log: Path, metrics: Path, interrupted: str | None) -> None:
        """Write the trace, the log and the metrics of the run."""
        recorder, end = self.machine.recorder, self.machine.end
        about = About(self.device, self.mode, interrupted, self.rank, self.ranks)
        write(trace, trace_bytes(about, recorder.metadata(), recorder.events))
        write(log, self.machine.log.text(end, self.machine.causes.all).encode())
        write(metrics, self.machine.log.metrics(end).encode())
