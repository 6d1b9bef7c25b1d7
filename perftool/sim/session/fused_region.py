"""Simulates parts of a script that run as one unit: a fused op, a replayed graph or a compiled region."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager

import torch

from perftool.sim.machine.graph import Work
from perftool.sim.machine.keys import TensorPart
from perftool.sim.ops.op_work import Call, dtype_name, size, tensors, work_of
from perftool.sim.own_stack import own_line
from perftool.sim.session.simulation import Simulation


class Touched:
    """The total work of the ops in a fused op: their arithmetic, and the device memory that they read and write."""

    def __init__(self, simulation: Simulation) -> None:
        self.flops = 0
        self._read: dict[int, torch.Tensor] = {}
        self._written: dict[int, torch.Tensor] = {}
        self._find = simulation.placement.find

    def __call__(self, call: Call) -> None:
        """Add one op."""
        self.flops += work_of(call).flops
        for written, value in zip(call.op.written, call.args, strict=False):
            self.include(tensors(value), written=written)

    def include(self, touched: Iterable[torch.Tensor], *, written: bool) -> None:
        """Add device tensors; only the largest of several views of a storage counts."""
        into = self._written if written else self._read
        for each in touched:
            entry = self._find(each)
            if entry is not None:
                known = into.get(entry.serial)
                into[entry.serial] = each if known is None or known.numel() < each.numel() else known

    @property
    def all(self) -> tuple[torch.Tensor, ...]:
        """The device tensors that are read or written, each once."""
        return tuple({**self._read, **self._written}.values())

    @property
    def written(self) -> tuple[torch.Tensor, ...]:
        """The device tensors that are written."""
        return tuple(self._written.values())


@contextmanager
def fused_op(simulation: Simulation, name: str, key: Hashable) -> Iterator[Touched]:
    """Simulate the ops in the block as one kernel called ``name``, which reads and writes each piece of memory once.
    ``key`` contains the shapes and options that distinguish the kernel from others.
    """
    machine, touched = simulation.machine, Touched(simulation)
    with simulation.plain_tensors(), simulation.dispatch.handing_to(touched):
        yield touched
    if not touched.all:
        return
    first = touched.all[0]
    read, written = sum(map(size, touched.all)), sum(map(size, touched.written))
    engine = "MME" if touched.flops else "TPC"
    work = Work(name, dtype_name(first.dtype), engine, touched.flops, read // first.element_size(), read, written)
    begin = machine.now
    machine.spend(machine.costs.host_fused_op_us)
    machine.recorder.bridge(f"{name}_hpu_lazy", begin, machine.now)
    described = (name, (key,), ("arguments",))
    simulation.dispatch.device_ops.add(work, described, touched.all, touched.written)


def shapes(touched: Iterable[torch.Tensor]) -> Hashable:
    """Return the shapes and types of tensors as part of a key."""
    return tuple(TensorPart(tuple(each.shape), (), 0, each.dtype, None) for each in touched)


@contextmanager
def replayed(simulation: Simulation, call: str = "HPUGraph::replay") -> Iterator[None]:
    """Simulate the ops in the block as the replay of a captured HPU graph, which the host submits with ``call``."""
    simulation.machine.cut(call)
    with _quietly(simulation):
        yield
    simulation.machine.replay(call)


@contextmanager
def compiled(simulation: Simulation) -> Iterator[None]:
    """Simulate the ops in the block as one graph of torch.compile; nested regions are part of the outer region."""
    machine = simulation.machine
    machine.regions += 1
    try:
        with _quietly(simulation):
            yield
    finally:
        machine.regions -= 1
    if not machine.regions:
        machine.cut("compiled region")


@contextmanager
def _quietly(simulation: Simulation) -> Iterator[None]:
    simulation.machine.recorder.line = own_line()
    ops = simulation.dispatch.device_ops
    before, ops.quiet = ops.quiet, True
    try:
        yield
    finally:
        ops.quiet = before
