"""Plain gradient averaging: one all-reduce for each parameter."""

from __future__ import annotations

import torch
import torch.distributed as dist


def all_reduce_gradients(model: torch.nn.Module, dtype: torch.dtype | None = None) -> None:
    """Average every gradient over the ranks; through `dtype` if given, else in the gradient's own."""
    scale = 1.0 / dist.get_world_size()
    for parameter in model.parameters():
        if parameter.grad is None:
            continue
        reduced = parameter.grad.to(dtype or parameter.grad.dtype) * scale
        dist.all_reduce(reduced)
        parameter.grad.copy_(reduced)
