"""`all_reduce_gradients`: average all gradients of a model over the ranks in one collective.

A lightweight replacement for DistributedDataParallel, called after the backward pass. Gradients are copied into one
flat buffer, reduced there, and copied back. The buffer may have a narrower dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from perftool.fused.dispatch import choose, native_obstacle, register_everywhere
from perftool.fused.graphs.capture import HPUGraph, graph

OP = "all_reduce_gradients"
STATE = "_perftool_gradient_buffer"
CHANGED_SET = "`all_reduce_gradients()` does not support changing the set of active gradients after first invocation."

# On a Gaudi, the op needs native graphs to record the copies.
register_everywhere(OP, lambda: native_obstacle("hpu", "HPUGraph"))


class GradientBuffer:
    """A flat tensor, a view of it for each gradient, and the native graphs that copy the gradients in and out."""

    def __init__(self, parameters: list[torch.nn.Parameter], dtype: torch.dtype) -> None:
        devices = {parameter.device for parameter in parameters}
        if len(devices) != 1:
            raise ValueError(f"all gradients must be on one device, not on {len(devices)}")
        sizes = [parameter.numel() for parameter in parameters]
        self.parameters = parameters
        self.flat = torch.zeros(sum(sizes), dtype=dtype, device=devices.pop())
        parts = torch.split(self.flat, sizes)
        self.views = [part.view(each.shape) for part, each in zip(parts, parameters, strict=True)]
        self.graphs: dict[str, Any] = {}

    def _gradients(self) -> list[Any]:
        return [parameter.grad for parameter in self.parameters]

    def pack(self) -> None:
        """Cast the gradients into the buffer, then scale them. A Gaudi uses the same order, which affects rounding."""
        torch._foreach_copy_(self.views, self._gradients())
        self.flat.mul_(1.0 / dist.get_world_size())

    def unpack(self) -> None:
        """Copy the buffer back into the gradients, which keep their dtypes."""
        torch._foreach_copy_(self._gradients(), self.views)


def all_reduce_gradients(
    model: torch.nn.Module,
    fusion_buffer_dtype: torch.dtype = torch.bfloat16,
    use_hpu_graphs: bool = True,
) -> None:
    """Replace every gradient of `model` with its mean over the ranks of the default process group.

    Call it between backward and the optimizer's step, on all ranks. It does nothing if there are no gradients. The
    first call determines which parameters take part; later calls raise NotImplementedError if other parameters have
    gradients. Raise ValueError for gradients on several devices. The buffer is stored on the model, outside its
    state_dict. `use_hpu_graphs` records the copies on a Gaudi and has no effect elsewhere.
    """
    active = [parameter for parameter in model.parameters() if parameter.grad is not None]
    buffer: GradientBuffer | None = model.__dict__.get(STATE)
    if buffer is None and not active:
        return
    if buffer is not None and list(map(id, active)) != list(map(id, buffer.parameters)):
        raise NotImplementedError(CHANGED_SET)
    if buffer is None or buffer.flat.dtype != fusion_buffer_dtype:
        buffer = GradientBuffer(active, fusion_buffer_dtype)
        model.__dict__[STATE] = buffer
    device_type = buffer.flat.device.type
    recorded = use_hpu_graphs and choose(OP, device_type) == "habana"
    with torch.no_grad():
        _run(buffer, "pack", buffer.pack, recorded)
        pending = dist.all_reduce(buffer.flat, async_op=True)
        # A Gaudi orders the copies after the collective; other backends need a wait.
        if device_type != "hpu" and pending is not None:
            pending.wait()
        _run(buffer, "unpack", buffer.unpack, recorded)


def _run(buffer: GradientBuffer, name: str, copies: Callable[[], None], recorded: bool) -> None:
    """Run the copies. If `recorded` is set, run them as a native graph that the first call records."""
    if not recorded:
        copies()
        return
    if name not in buffer.graphs:
        buffer.graphs[name] = HPUGraph("hpu")
        with graph(buffer.graphs[name]):
            copies()
    buffer.graphs[name].replay()
