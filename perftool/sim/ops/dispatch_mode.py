"""Intercepts every op of the script, runs it on the CPU, and accounts for it on the simulated machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from perftool.sim.machine.annotations import Annotations
from perftool.sim.machine.machine import Machine
from perftool.sim.ops.collectives import collective_of, finish, group_of, last_arrival
from perftool.sim.ops.computing import compute
from perftool.sim.ops.device_ops import DeviceOps
from perftool.sim.ops.op_work import COUNTING, Call, facts_of, leaves, masks_of, size, tensors
from perftool.sim.ops.placement import Placement

_ENTER = frozenset({"_record_function_enter_new", "_record_function_enter"})
_READS = frozenset({"_local_scalar_dense", "is_nonzero", "equal"})
# Ops whose output shape depends on the data, and the reason that the bridge logs for the cut.
_DATA_DEPENDENT = {"nonzero": "non zero", "masked_select": "non zero", "_unique2": "unique", "unique_dim": "unique",
                   "unique_consecutive": "unique", "unique_dim_consecutive": "unique", "nms": "nms"}  # fmt: skip
_COLLECTIVES = dict.fromkeys(("allreduce", "allreduce_coalesced"), "HbLazyTensorViews::StepMarkerAllReduce")


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs each op and accounts for it according to its kind: annotation, read of a value, copy, collective, host or
    device op."""

    def __init__(self, machine: Machine, placement: Placement, annotations: Annotations, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.machine = machine
        self.placement = placement
        self.annotations = annotations
        self.device_ops = DeviceOps(machine, placement, device)
        self._handlers: list[Callable[[Call], None]] = []
        self._on_device = False
        # Whether the script itself is creating a tensor on the host.
        self.making = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: the simulator never compiles, but PyTorch would import its compiler and wrap every op."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the op, then account for it."""
        kwargs = kwargs or {}
        if func.namespace == "profiler":
            return self._annotate(func, args, kwargs)
        arguments = tuple(leaves((args, kwargs)))
        inputs = tensors(arguments)
        # Determine this before running the op, because it may resize or free its arguments.
        before = any(self.placement.find(each) is not None for each in inputs)
        forms = [_form(each) for each in inputs] if facts_of(func).resizes else []
        result = compute(func, args, kwargs)
        call = Call(func, args, kwargs, result, arguments, inputs, tensors(result))
        if self._handlers:
            self._handlers[-1](call)
        elif not any(each.is_meta for each in call.outputs):
            if before:
                self._resize(zip(inputs, forms, strict=False))
            self._account(call, before)
        return result

    @contextmanager
    def handing_to(self, handler: Callable[[Call], None]) -> Iterator[None]:
        """Within the block, pass ops to ``handler`` instead of the machine."""
        self._handlers.append(handler)
        try:
            yield
        finally:
            self._handlers.pop()

    def hand_to(self, handler: Callable[[Call], None]) -> None:
        """From now on, pass all ops to ``handler``."""
        self._handlers.append(handler)

    @contextmanager
    def creating_on_device(self) -> Iterator[None]:
        """Within the block, factory ops create their tensors on the device."""
        before, self._on_device = self._on_device, True
        try:
            yield
        finally:
            self._on_device = before

    def _annotate(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        if not self._handlers:
            if func.overloadpacket.__name__ in _ENTER:
                self.annotations.enter(args[0])
            else:
                self.annotations.leave()
        return result

    def _account(self, call: Call, on_device: bool) -> None:
        base = call.op.base
        if base == "copy_":
            self._copy(call)
        elif call.func.namespace == "c10d":
            self._collect(call, on_device)
        elif not on_device and not (self._on_device and not call.inputs):
            self.host_op(call)
            if not call.inputs and not self.making:
                for each in call.outputs:
                    self.placement.leave_open(each)
        elif base in _READS:
            self.read_value(base, 4 if base == "_local_scalar_dense" else 1)
        elif base in _DATA_DEPENDENT or base == COUNTING or masks_of(call):
            with self.device_ops.around(f"aten::{base}", call.args):
                for mask in masks_of(call):
                    self._find_places(call, mask)
                if base == COUNTING:
                    self._read_length("local scalar")
                self.device_ops.run(call, recorded=True)
                if base in _DATA_DEPENDENT:
                    self._read_length(_DATA_DEPENDENT[base])
        else:
            self.device_ops.run(call)

    def _find_places(self, call: Call, mask: torch.Tensor) -> None:
        """Account for indexing by a mask, which becomes a list of positions; the host waits for the list's length."""
        if call.op.kind != "index":
            self.machine.cut("index_put_frontend_impl_hpu_lazy")
        # The bridge does not call aten::nonzero for the search, so no such op is recorded.
        self.device_ops.find_places(mask)
        self._read_length("non zero")

    def _read_length(self, reason: str) -> None:
        """Account for reading the length of a result, which is like reading a value."""
        with self.machine.op("aten::item"), self.machine.op("aten::_local_scalar_dense"):
            self.machine.copy_out(8, reason)

    def read_value(self, base: str, size: int) -> None:
        """Account for a call in which the host waits for a value, such as ``tensor.item()``."""
        outer = "aten::item" if base == "_local_scalar_dense" else f"aten::{base}"
        with self.machine.op(outer), self.machine.op("aten::_local_scalar_dense"):
            self.machine.copy_out(size, "local scalar")

    def host_op(self, call: Call) -> None:
        """Account for an op on host tensors."""
        if not call.outputs:
            return
        moved = 0 if call.op.view else sum(map(size, [*call.inputs, *call.outputs]))
        self.machine.plain_op(call.op.base, moved)

    def _copy(self, call: Call) -> None:
        target, source = call.args[0], call.args[1]
        to_device, from_device = (self.placement.find(each) is not None for each in (target, source))
        non_blocking = bool(call.args[2]) if len(call.args) > 2 else False
        if to_device and from_device:
            self.device_ops.run(call)
        elif to_device:
            if self._pending(target):
                self.machine.cut("H2D copy")
            self.copy_in(source, non_blocking)
        elif from_device and self.placement.is_open(target):
            # PyTorch created the target on the host, because to PyTorch the device's tensors are host tensors.
            self.placement.put(target)
            self.device_ops.run(call)
        elif from_device:
            self.copy_out(source)
        else:
            self.host_op(call)

    def copy_in(self, tensor: torch.Tensor, non_blocking: bool) -> None:
        """Account for copying ``tensor`` from the host to the device."""
        with self._copying(tensor):
            pinned = self.placement.is_pinned(tensor)
            self.machine.copy_in(size(tensor), pinned=pinned, non_blocking=non_blocking)

    def copy_out(self, tensor: torch.Tensor) -> None:
        """Account for copying ``tensor`` from the device to the host."""
        with self._copying(tensor):
            self.machine.copy_out(size(tensor), "d2h_maybe_eval" if self._pending(tensor) else None)

    def _pending(self, tensor: torch.Tensor) -> bool:
        """Whether an op of the pending graph computes ``tensor``."""
        entry = self.placement.find(tensor)
        return entry is not None and entry.node[0] == self.machine.graph.serial

    def _resize(self, inputs: Iterable[tuple[torch.Tensor, tuple[torch.Size, bool]]]) -> None:
        """End the graph if an op changed the shape of an argument, as the bridge does."""
        for each, (shape, was_view) in inputs:
            if each.shape != shape:
                self.machine.cut("view tensor resize" if was_view else "out shape changed")

    def _collect(self, call: Call, on_device: bool) -> None:
        """Account for a collective, which ends the graph. On a single card, it moves no data."""
        if on_device:
            self.machine.cut(_COLLECTIVES.get(call.op.kind, "ProcessGroupHCCL::collective"))
            for each in call.outputs:
                self.placement.put(each)
        self.machine.host_op(f"c10d::{call.op.base}", self.machine.costs.host_call_us)
        group = group_of(call)
        if group is None or group.size() == 1:
            return
        entries = [self.placement.find(each) for each in call.outputs] if on_device else []
        if on_device:
            finish(call)
        results = [entry.serial for entry in entries if entry is not None]
        last = partial(last_arrival, group)
        self.machine.collective(collective_of(call, group), last, results, waits=not on_device)

    @contextmanager
    def _copying(self, tensor: torch.Tensor) -> Iterator[None]:
        shapes = self.device_ops.shapes((tensor, tensor))
        with self.machine.op("aten::to"), self.machine.op("aten::_to_copy"), self.machine.op("aten::copy_", shapes):
            yield


def _form(tensor: torch.Tensor) -> tuple[torch.Size, bool]:
    """Return the shape of ``tensor``, and whether its storage is larger than the tensor."""
    return tensor.shape, tensor.untyped_storage().nbytes() > size(tensor)
