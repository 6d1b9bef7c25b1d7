"""b = g in the first step, else momentum*b - g; w += b."""

from __future__ import annotations

from typing import Any

from perftool.fused.dispatch import register_native
from perftool.fused.optimizers.batches import Batch, Group
from perftool.fused.optimizers.kernels import register_stages
from perftool.fused.optimizers.optimizer import NATIVE_MODULE, FusedOptimizer

register_native("FusedResourceApplyMomentum", NATIVE_MODULE, "FusedResourceApplyMomentum")
register_stages("FusedResourceApplyMomentum", "sgd")


class FusedResourceApplyMomentum(FusedOptimizer):
    """Momentum that adds gradients as they are: the optimizer for FusedLars, which scales them by lr.

    `lr`, `weight_decay` and `nesterov` are kept in the groups and have no part in the arithmetic. As on
    Gaudi, the first step of a group adds the gradient, all later ones subtract it.
    """

    op = "FusedResourceApplyMomentum"
    kernel_name = "sgd"
    state_names = ("momentum_buffer",)
    takes_divisor = False
    sparse_error = "ResourceApplyMomentum does not support sparse gradients"

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        backend: str | None = None,
    ) -> None:
        """ValueError for a negative momentum."""
        if momentum < 0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
        super().__init__(params, defaults, backend=backend)

    def _update(self, group: Group, batch: Batch) -> None:
        buffers, momentum = batch.states["momentum_buffer"], group["momentum"]
        if not momentum:
            # The kernel ignores buffers without momentum; a kept buffer of zeros is the same as none.
            for buffer in buffers:
                buffer.zero_()
            momentum = 1.0
        # b = momentum*b + (1 - dampening)*g; w -= lr*b: a dampening of 2 subtracts g, a rate of -1 adds b.
        self._kernel(batch)(
            batch.params,
            batch.grads,
            buffers,
            lr=-1.0,
            momentum=momentum,
            weight_decay=0.0,
            dampening=0.0 if group["step"] == 1 else 2.0,
            nesterov=False,
        )
