"""Adagrad: g += wd*w; sum += g*g; w -= lr/(1 + (t-1)*lr_decay) * g/(sqrt(sum) + eps)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from perftool.fused.optimizers.optimizer import Batch, FusedOptimizer, Group, Kernel, refuse_negative


def fused_adagrad_(
    params: list[Tensor],
    grads: list[Tensor],
    sums: list[Tensor],
    *,
    step: int,
    lr: float,
    lr_decay: float,
    **options: Any,
) -> None:
    """Call PyTorch's kernel once. The learning rate of `step` is computed here, so the kernel always gets step 1."""
    steps = [torch.ones((), device=params[0].device)] * len(params)
    rate = lr / (1 + (step - 1) * lr_decay)
    torch._fused_adagrad_(params, grads, sums, steps, lr=rate, lr_decay=0.0, maximize=False, **options)


@torch.no_grad()
def adagrad_(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    sums: Sequence[Tensor],
    *,
    step: int,
    lr: float,
    lr_decay: float = 0.0,
    weight_decay: float = 0.0,
    eps: float = 1e-10,
) -> None:
    """Apply one step of Adagrad in place, one parameter after the other."""
    rate = lr / (1 + (step - 1) * lr_decay)
    for param, grad, total in zip(params, grads, sums, strict=True):
        grad = grad.add(param, alpha=weight_decay) if weight_decay else grad
        total.addcmul_(grad, grad)
        param.addcdiv_(grad, total.sqrt().add_(eps), value=-rate)


_PROBE = {"step": 3, "lr": 0.5, "lr_decay": 0.5, "weight_decay": 0.5, "eps": 0.5}
ADAGRAD = Kernel(fused_adagrad_, adagrad_, states=1, probe=_PROBE)

_FROZEN = (
    "FusedAdagrad keeps the learning rate that a group was added with, as on a Gaudi: a scheduler has no effect,"
    " but `lr_decay` still applies."
)
_RATES = (
    "A Gaudi updates all groups of FusedAdagrad with the constructor's learning rate; here each group keeps its own."
    " To get the same results on both devices, use one rate, or one optimizer per rate."
)


class FusedAdagrad(FusedOptimizer):
    """torch.optim.Adagrad, with the learning rate frozen when a group is added.

    Changing `group["lr"]` later, for example with a scheduler, has no effect, as on a Gaudi: the rate in use is
    `group["lr_t"]`, of shape [1], and a warning reports this once. `step()` returns None, even with a closure.
    """

    op = "FusedAdagrad"
    kernel = ADAGRAD
    state_names = ("sum",)
    counter = "step_t"
    _warned = False
    sparse_error = "Adagrad does not support sparse gradients, please consider SparseAdagrad"

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
    ) -> None:
        """Raise ValueError for a negative argument."""
        rates = {"learning rate": lr, "lr_decay value": lr_decay, "weight_decay value": weight_decay}
        start = {"initial_accumulator_value value": initial_accumulator_value}
        refuse_negative({**rates, **start, "epsilon value": eps})
        super().__init__(
            params,
            lr=lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
        )

    def add_param_group(self, param_group: Group) -> None:
        """Add a group, fill its accumulators and freeze its learning rate."""
        super().add_param_group(param_group)
        if float(self.param_groups[-1]["lr"]) != float(self.defaults["lr"]):
            warnings.warn(_RATES, stacklevel=2)
        self._freeze(self.param_groups[-1], 0)
        for param in self.param_groups[-1]["params"]:
            self.state[param]["sum"] = self._new_state("sum", param, self.param_groups[-1])

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        super().step(closure)

    def _freeze(self, group: Group, count: int) -> None:
        group.setdefault("lr_t", torch.tensor([float(group["lr"])], dtype=torch.float64))
        group.setdefault("step_t", torch.tensor([count], dtype=torch.int32))

    def _new_state(self, name: str, param: Tensor, group: Group) -> Tensor:
        return torch.full_like(param, group["initial_accumulator_value"])

    def _continue_from(self, group: Group, count: int) -> None:
        self._freeze(group, count)

    def _update(self, group: Group, batch: Batch) -> None:
        if not self._warned and float(group["lr"]) != float(group["lr_t"]):
            self._warned = True
            warnings.warn(_FROZEN, stacklevel=2)
        options = {name: group[name] for name in ("lr_decay", "weight_decay", "eps")}
        self._run(batch, step=int(group["step_t"]), lr=float(group["lr_t"]), **options)
