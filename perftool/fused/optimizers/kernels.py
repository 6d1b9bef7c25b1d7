"""An optimizer's arithmetic in two forms: PyTorch's fused kernel, and the plain loop that checks it.

All tensors of a call share device and dtype, and those of one parameter share their memory layout: the private
`torch._fused_*_` read memory in order and check nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from perftool.fused.dispatch import ANY_DEVICE, Implementation, always, choose, register

PROBED = 67
"""Elements of a probe: some full vectors for any processor, and a remainder."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """`fused` and `plain` take params, grads and a list per state, then the same options; both write in place.

    `states` counts the lists of states, `probe` holds the options with which `fused` is tried.
    """

    fused: Callable[..., None]
    plain: Callable[..., None]
    states: int
    probe: dict[str, Any]
    _obstacles: dict[Any, str | None] = field(default_factory=dict)

    def obstacle(self, device_type: str, dtype: torch.dtype = torch.float32) -> str | None:
        """None if the fused kernel agrees with the plain loop on a few elements, else the problem. Checked once per
        device and dtype: the SGD kernel of torch 2.13 for CPUs is wrong in bfloat16 and float16.
        """
        if (device_type, dtype) not in self._obstacles:
            self._obstacles[device_type, dtype] = self._tried(device_type, dtype)
        return self._obstacles[device_type, dtype]

    def _tried(self, device_type: str, dtype: torch.dtype) -> str | None:
        try:
            result, expected = (self._result(form, device_type, dtype) for form in (self.fused, self.plain))
        except (AttributeError, TypeError, RuntimeError) as error:
            return f"the kernel does not run: {str(error).splitlines()[0]}"
        tolerance = 8 * torch.finfo(dtype).eps
        if not torch.allclose(result, expected, rtol=tolerance, atol=tolerance):
            return f"the kernel computes something else than the plain loop in {dtype}"
        return None

    @torch.no_grad()
    def _result(self, form: Callable[..., None], device_type: str, dtype: torch.dtype) -> Tensor:
        values = torch.linspace(0.25, 1.0, PROBED, dtype=torch.float64).to(device_type, dtype)
        operands = [values * (1 + i) for i in range(2 + self.states)]
        form(*([operand] for operand in operands), **self.probe)
        return torch.stack([operands[0], *operands[2:]]).double()

    def form(self, op: str, like: Tensor, backend: str | None = None) -> Callable[..., None]:
        """The form that runs for an optimizer on ordinary tensors such as `like`."""
        fast = choose(op, like.device.type, backend).name == "fast"
        return self.fused if fast and self.obstacle(like.device.type, like.dtype) is None else self.plain


def register_kernel(op: str, kernel: Kernel) -> None:
    """Register both forms of a kernel as implementations of an optimizer."""
    for device_type in ("cpu", "cuda"):
        register(Implementation(op, "fast", (device_type,), functools.partial(kernel.obstacle, device_type)))
    register(Implementation(op, "reference", ANY_DEVICE, always))
