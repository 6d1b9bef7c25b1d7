"""Stretches of a script that the device sees as one piece: a fused op, a replayed graph, a compiled region."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

import torch

from perftool.sim.graph import Work
from perftool.sim.op_work import Call, dtype_name, size, work_of
from perftool.sim.simulation import Simulation


class _Touched:
    """What the ops of a fused op do in all: arithmetic, and the device's memory they read and write."""

    def __init__(self, simulation: Simulation) -> None:
        self.flops = 0
        self.read: dict[int, torch.Tensor] = {}
        self.written: dict[int, torch.Tensor] = {}
        self._find = simulation.placement.find

    def __call__(self, call: Call) -> None:
        self.flops += work_of(call).flops
        for argument, value in zip(call.func._schema.arguments, call.args, strict=False):
            into = self.written if argument.alias_info is not None and argument.alias_info.is_write else self.read
            for each in Call(None, [value], {}, None).inputs:
                entry = self._find(each)
                if entry is not None:
                    known = into.get(entry.serial)
                    into[entry.serial] = each if known is None or known.numel() < each.numel() else known


@contextmanager
def fused_op(simulation: Simulation, name: str, key: Hashable = ()) -> Iterator[None]:
    """The ops inside count as one kernel called ``name``, which reads and writes each piece of memory once."""
    machine, touched = simulation.machine, _Touched(simulation)
    with simulation.plain_tensors(), simulation.dispatch.handing_to(touched):
        yield
    moved = [*touched.read.values(), *touched.written.values()]
    if not moved:
        return
    read, written = (sum(map(size, each.values())) for each in (touched.read, touched.written))
    dtype = dtype_name(moved[0].dtype)
    engine = "MME" if touched.flops else "TPC"
    work = Work(name, dtype, engine, touched.flops, read // moved[0].element_size(), read + written, written)
    shapes = tuple(sorted(tuple(each.shape) for each in touched.read.values()))
    begin = machine.now
    machine.spend(machine.costs.host_fused_op_us)
    machine.recorder.bridge(f"{name}_hpu_lazy", begin, machine.now)
    simulation.dispatch.device_ops.add(work, (name, dtype, key, shapes), moved, touched.written.values())


@contextmanager
def replayed(simulation: Simulation) -> Iterator[None]:
    """The ops inside are the replay of a captured HPU graph: the host submits them in one call."""
    simulation.machine.cut("HPUGraph::replay")
    with _quietly(simulation):
        yield
    simulation.machine.replay()


@contextmanager
def compiled(simulation: Simulation) -> Iterator[None]:
    """The ops inside are one graph of torch.compile; nested regions belong to the outer one."""
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
    ops = simulation.dispatch.device_ops
    before, ops.quiet = ops.quiet, True
    try:
        yield
    finally:
        ops.quiet = before
