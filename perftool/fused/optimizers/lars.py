"""LARS: g = (g + wd*w) * lr * eeta*norm(w)/(norm(g) + wd*norm(w) + eps); then the wrapped optimizer steps.

The wrapped optimizer is usually FusedResourceApplyMomentum: b = g in the first step and momentum*b - g in later ones;
w += b. Without momentum, w += g in every step.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from perftool.fused.dispatch import choose, native_op, register_everywhere
from perftool.fused.optimizers.optimizer import Batch, FusedOptimizer, Group, refuse_negative
from perftool.fused.optimizers.sgd import SGD
from perftool.fused.optimizers.tensors import alike, is_sharded, local_part, norms

register_everywhere("FusedLars")

_TWO_RATES = (
    "FusedLars scales gradients by the learning rate, as on a Gaudi, and {} multiplies by it again."
    " Wrap FusedResourceApplyMomentum, which adds gradients as they are."
)
_SPARSE = "Lars does not support sparse gradients"
_MASK_TOO_SHORT = (
    "params, grads and skip_masks vector inputs must have the same number of elements"
    " but they respectively have: {0}, {0} and {1}"
)
_ADDING = (
    "FusedResourceApplyMomentum without momentum adds the gradients in every step, as on a Gaudi: the loss grows."
    " Give it a momentum."
)


class FusedResourceApplyMomentum(FusedOptimizer):
    """Momentum that does not multiply gradients by lr, because FusedLars, which wraps it, has already done so. `lr`,
    `weight_decay` and `nesterov` are stored in the groups but not used. As on a Gaudi, the first step of a group adds
    the gradient and later steps subtract it; without momentum, every step adds it, and a warning reports this once.
    """

    op = "FusedResourceApplyMomentum"
    kernel = SGD
    sparse_error = "ResourceApplyMomentum does not support sparse gradients"
    _warned = False

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
    ) -> None:
        """Raise ValueError for a negative rate, and for Nesterov without momentum."""
        refuse_negative({"learning rate": lr, "momentum value": momentum, "weight_decay value": weight_decay})
        if nesterov and momentum == 0:
            raise ValueError("Nesterov momentum requires a momentum")
        super().__init__(params, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)

    def _update(self, group: Group, batch: Batch) -> None:
        momentum = group["momentum"]
        if not momentum and not self._warned:
            self._warned = True
            warnings.warn(_ADDING, stacklevel=2)
        # SGD: b = momentum*b + (1 - dampening)*g; w -= lr*b. A dampening of 2 subtracts g, and a rate of -1 adds b.
        dampening = 2.0 if momentum and group["step"] > 1 else 0.0
        self._run(batch, lr=-1.0, momentum=momentum, weight_decay=0.0, dampening=dampening, nesterov=False)

    def _states(self, group: Group) -> dict[str, torch.dtype | None]:
        return {"momentum_buffer": None} if group["momentum"] else {}

    def _continue_from(self, group: Group, count: int) -> None:
        # A state from Gaudi's class has no step count, but if it has a momentum buffer, the first step is done.
        has_started = any(self.state[param].get("momentum_buffer") is not None for param in group["params"])
        super()._continue_from(group, max(count, int(has_started)))


class FusedLars(Optimizer):
    """LARS (https://arxiv.org/abs/1708.03888) as a wrapper around another optimizer, whose groups and state it shares.

    `skip_mask` is 1 for parameters that are adapted and 0 for parameters whose gradients are only multiplied by lr; its
    positions start at 0 in every group. The ratio is 1 where norm(w) or norm(g) is 0. Gradients are overwritten, then
    the wrapped optimizer steps without weight decay. It must not multiply by a learning rate again, so wrap
    FusedResourceApplyMomentum. Gaudi's documentation calls `eeta` `a`.
    """

    def __init__(
        self, optimizer: Optimizer, skip_mask: Sequence[int] | Tensor, eeta: float = 0.001, eps: float = 1e-8
    ) -> None:
        """`eeta` is the trust coefficient; `eps` keeps the ratio finite."""
        self.optim, self.skip_mask, self.eeta, self.eps = optimizer, [int(each) for each in skip_mask], eeta, eps
        self._start()

    _warned = False

    def _start(self) -> None:
        self._native: Any = None
        super().__setstate__({})  # creates the hooks of an Optimizer

    @property
    def param_groups(self) -> list[Group]:  # type: ignore[override]
        """The groups of the wrapped optimizer."""
        return self.optim.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The state of the wrapped optimizer."""
        return self.optim.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """The defaults of the wrapped optimizer, and the arguments of FusedLars."""
        return {**self.optim.defaults, "skip_mask": self.skip_mask, "eeta": self.eeta, "eps": self.eps}

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("optim", "skip_mask", "eeta", "eps")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the wrapped optimizer."""
        return self.optim.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state into the wrapped optimizer."""
        self.optim.load_state_dict(state_dict)

    def add_param_group(self, param_group: Group) -> None:
        """Add a group to the wrapped optimizer."""
        self.optim.add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Fill the gradients with zeros, as Gaudi's class does by default, or set them to None."""
        self.optim.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Scale all gradients in place, then step the wrapped optimizer without weight decay."""
        params = [param for group in self.param_groups for param in group["params"]]
        if choose("FusedLars", params[0].device.type) == "habana":
            lars = native_op("FusedLars")
            self._native = self._native or lars(self.optim, self.skip_mask, self.eeta, self.eps)
            self._native.step()
            return
        self._warn_of_two_rates()
        with self._taking_over_decay() as decays:
            for group, decay in zip(self.param_groups, decays, strict=True):
                self._scale_group(group, decay)
            self.optim.step()

    def _warn_of_two_rates(self) -> None:
        if self._warned or isinstance(self.optim, FusedResourceApplyMomentum):
            return
        known = isinstance(self.optim, FusedOptimizer) or type(self.optim).__module__.startswith("torch.optim")
        if known and any(float(group["lr"]) != 1.0 for group in self.param_groups):
            self._warned = True
            warnings.warn(_TWO_RATES.format(type(self.optim).__name__), stacklevel=2)

    @contextmanager
    def _taking_over_decay(self) -> Iterator[list[float]]:
        kept = [group.get("weight_decay", 0.0) for group in self.param_groups]
        for group in self.param_groups:
            group["weight_decay"] = 0.0
        try:
            yield list(map(float, kept))
        finally:
            for group, decay in zip(self.param_groups, kept, strict=True):
                group["weight_decay"] = decay

    def _scale_group(self, group: Group, decay: float) -> None:
        params, lr = group["params"], float(group["lr"])
        if len(self.skip_mask) < len(params):
            raise RuntimeError(_MASK_TOO_SHORT.format(len(params), len(self.skip_mask)))
        adapted = []
        for param, adapts in zip(params, self.skip_mask, strict=False):
            if param.grad is None:
                continue
            if param.grad.is_sparse or param.grad.is_sparse_csr:
                raise RuntimeError(_SPARSE)
            if adapts:
                adapted.append(param)
            else:
                param.grad.mul_(lr)
        for weights, owners in alike(adapted):
            grads = [local_part(owner.grad, owner) for owner in owners]
            # A CPU scales each tensor while it is in the cache; on a device, scaling all tensors together takes fewer
            # launches.
            alone = weights[0].is_cpu and not any(map(is_sharded, owners))
            for part in [slice(i, i + 1) for i in range(len(owners))] if alone else [slice(None)]:
                self._scale(owners[part], weights[part], grads[part], lr, decay)

    def _scale(self, owners: list[Tensor], params: list[Tensor], grads: list[Tensor], lr: float, decay: float) -> None:
        found = norms(params + grads, owners + owners)
        if found.is_cpu:
            pairs = zip(*found.view(2, -1).tolist(), strict=True)
            factors: Any = [lr * (self._ratio(w, g, decay) if w > 0 and g > 0 else 1.0) for w, g in pairs]
        else:
            weights, sizes = found.view(2, -1)
            factors = torch.where((weights > 0) & (sizes > 0), self._ratio(weights, sizes, decay), 1.0) * lr
        for param, grad, factor in zip(params, grads, factors, strict=True):
            if decay:
                grad.add_(param, alpha=decay)
            grad.mul_(factor)

    def _ratio(self, weight: Any, size: Any, decay: float) -> Any:
        return self.eeta * weight / (size + decay * weight + self.eps)
