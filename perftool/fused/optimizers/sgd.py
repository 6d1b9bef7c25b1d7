"""g += wd*w; b = momentum*b + (1-dampening)*g; w -= lr*b, or lr*(g + momentum*b) with Nesterov."""

from __future__ import annotations

from typing import Any

from perftool.fused.dispatch import register_native
from perftool.fused.optimizers.batches import Batch, Group
from perftool.fused.optimizers.kernels import register_stages
from perftool.fused.optimizers.optimizer import NATIVE_MODULE, FusedOptimizer

register_native("FusedSGD", NATIVE_MODULE, "FusedSGD")
register_stages("FusedSGD", "sgd")


class FusedSGD(FusedOptimizer):
    """Stochastic gradient descent, with momentum as in torch.optim.SGD except for its start.

    The momentum buffer starts at zero, so the first step takes (1-dampening)*g, where torch takes g. The
    order of the arguments is that of Gaudi's code; its documentation puts `dampening` before `weight_decay`.
    """

    op = "FusedSGD"
    kernel_name = "sgd"
    state_names = ("momentum_buffer",)
    counter = None
    sparse_error = "SGD does not support sparse gradients, please consider SparseSGD"

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0,
        weight_decay: float = 0,
        dampening: float = 0,
        nesterov: bool = False,
        *,
        backend: str | None = None,
    ) -> None:
        """ValueError for negative rates, and for Nesterov without momentum or with dampening."""
        for name, value in (
            ("learning rate", lr),
            ("momentum value", momentum),
            ("weight_decay value", weight_decay),
            ("dampening value", dampening),
        ):
            if value < 0:
                raise ValueError(f"Invalid {name}: {value}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "dampening": dampening,
            "nesterov": nesterov,
        }
        super().__init__(params, defaults, backend=backend)

    def _state_names(self, group: Group) -> tuple[str, ...]:
        return self.state_names if group["momentum"] else ()

    def _update(self, group: Group, batch: Batch) -> None:
        self._kernel(batch)(
            batch.params,
            batch.grads,
            batch.states.get("momentum_buffer", []),
            lr=float(group["lr"]),
            momentum=group["momentum"],
            weight_decay=group["weight_decay"],
            dampening=group["dampening"],
            nesterov=group["nesterov"],
            grad_scale=self._divisor_on(batch),
        )
