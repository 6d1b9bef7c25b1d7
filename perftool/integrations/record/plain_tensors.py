"""Which tensors our own ops may read."""

from __future__ import annotations

from typing import Any

import torch


def is_plain(value: Any) -> bool:
    """Whether ``value`` is a tensor with memory of its own on the CPU.

    Tensors wrapped by a function transform, fake or sparse tensors, and instances of tensor subclasses are not plain.
    """
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
        return False
    return value.device.type == "cpu" and not torch._C._functorch.is_functorch_wrapped_tensor(value)
