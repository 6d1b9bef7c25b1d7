"""Accounts for ops on device tensors: adds them to the graph, or runs them on the CPU if the device does not support
them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from perftool.sim.machine.graph import Node, Work
from perftool.sim.machine.machine import Machine
from perftool.sim.ops.fallbacks import argument_types, falls_back
from perftool.sim.ops.op_work import Call, names_of, parts_of, recorded_shapes, size, work_of
from perftool.sim.ops.placement import Placement

# Ops without a kernel: they allocate memory or create views.
_FREE = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh", "detach",
                   "alias", "_unsafe_view", "resize_", "set_", "_reshape_alias", "set_data"})  # fmt: skip


class DeviceOps:
    """Accounts for ops on device tensors, and marks their results as being on the device."""

    def __init__(self, machine: Machine, placement: Placement, device: str) -> None:
        self.quiet = False
        self._machine = machine
        self._placement = placement
        self._device = device

    def run(self, call: Call, *, recorded: bool = False) -> None:
        """Account for one op; ``recorded`` says whether its host op is already recorded."""
        if call.op.view or call.op.base in _FREE:
            self._free(call)
        elif falls_back(call, self._device):
            self._fall_back(call)
        else:
            self._bring_operands(call)
            if not recorded:
                self._host(call, self._machine.costs.host_op_us)
            self._note_types(call)
            key = (call.op.name, parts_of(call, self._origin), names_of(call))
            self.add(work_of(call), key, call.inputs, _on_device(call))

    @contextmanager
    def around(self, name: str, arguments: Iterable[Any]) -> Iterator[None]:
        """Record a host op around the block, during which the host may wait for the size of the result."""
        if self.quiet:
            yield
            return
        with self._machine.op(name, recorded_shapes(arguments), self._machine.costs.host_op_us):
            yield

    def add(
        self,
        work: Work,
        key: tuple[str, tuple[Hashable, ...], tuple[str, ...]],
        inputs: Iterable[torch.Tensor],
        outputs: Iterable[torch.Tensor],
    ) -> None:
        """Add a unit of work to the graph and put the storages of ``outputs`` on the device. ``key`` contains the name
        of the op, the parts of its arguments that belong to the recipe's key, and their names.
        """
        graph = self._machine.graph
        sources = []
        for each in inputs:
            entry = self._placement.find(each)
            if entry is None:
                continue
            graph.touched.add(entry.serial)
            if entry.node[0] == graph.serial:
                sources.append((entry.node[1], size(each)))
        name, parts, names = key
        index = self._machine.add(Node(work, name, parts, tuple(sources), names, self._machine.recorder.line))
        for each in outputs:
            self._placement.put(each).node = (graph.serial, index)

    def find_places(self, mask: torch.Tensor) -> None:
        """Add to the graph an op that finds the positions of the true elements of ``mask``."""
        work = Work("nonzero_fwd", "int8", "TPC", 0, mask.numel(), size(mask), 8 * mask.numel())
        self.add(work, ("aten::nonzero", (tuple(mask.shape), self._origin(mask)), ("self",)), (mask,), ())

    def shapes(self, arguments: Iterable[Any]) -> dict[str, object]:
        """Return the shapes and types of ``arguments`` for an event."""
        return recorded_shapes(arguments)

    def _free(self, call: Call) -> None:
        self._host(call, self._machine.costs.host_view_us)
        for each in call.outputs:
            self._placement.put(each)

    def _host(self, call: Call, microseconds: float) -> None:
        if not self.quiet:
            self._machine.host_op(f"aten::{call.op.base}", microseconds, recorded_shapes(call.args))

    def _note_types(self, call: Call) -> None:
        if any(each.dtype == torch.float64 for each in call.outputs):
            self._machine.log.computed_in_fp32 += 1

    def _bring_operands(self, call: Call) -> None:
        """Account for copying host operands with more than one element to the device."""
        for each in call.inputs:
            if self._placement.find(each) is None and each.numel() > 1:
                self._machine.copy_in(size(each), pinned=False, non_blocking=False)

    def _fall_back(self, call: Call) -> None:
        """Cut the graph, copy the arguments to the host, compute, and copy the results back."""
        machine, name = self._machine, call.op.name
        moved = sum(map(size, [*call.inputs, *call.outputs]))
        types = argument_types(call)
        machine.log.fallback(name, types, machine.now)
        machine.causes.fell_back(name, types)
        with machine.op(f"aten::{call.op.base}", recorded_shapes(call.args)):
            inner = machine.now
            machine.spend(1.0)
            for each in call.inputs:
                machine.copy_out(size(each), f"cpu fallback {name}")
            machine.plain_op(call.op.base, moved)
            for each in call.outputs:
                machine.copy_in(size(each), pinned=False, non_blocking=False)
                self._placement.put(each)
            machine.spend(1.0)
            machine.recorder.bridge("cpu_fallback", inner, machine.now)

    def _origin(self, tensor: torch.Tensor) -> Hashable:
        """Return where a tensor comes from: a node of the graph, an input (by number) or the host."""
        entry = self._placement.find(tensor)
        if entry is None:
            return "host"
        graph = self._machine.graph
        if entry.node[0] == graph.serial:
            return ("node", entry.node[1])
        return ("input", graph.inputs.setdefault(entry.serial, len(graph.inputs)))


def _on_device(call: Call) -> tuple[torch.Tensor, ...]:
    """Return the results that are on the device. The lengths of a packed sequence stay on the host."""
    return call.outputs[:1] if call.op.base == "_pack_padded_sequence" else call.outputs
