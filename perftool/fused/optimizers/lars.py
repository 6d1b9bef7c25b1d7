"""LARS: g = (g + wd*w) * lr * eeta*norm(w)/(norm(g) + wd*norm(w) + eps); then the wrapped optimizer steps."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from perftool.fused.dispatch import choose, native_op, register_everywhere
from perftool.fused.optimizers.optimizer import FusedOptimizer, Group
from perftool.fused.optimizers.resource_momentum import FusedResourceApplyMomentum
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


@torch.no_grad()
def lars_scale_(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    mask: Sequence[int],
    *,
    lr: float,
    weight_decay: float = 0.0,
    eeta: float = 1e-3,
    eps: float = 1e-8,
) -> None:
    """The plain loop: g = lr*g where the mask is 0; a ratio of 1 where norm(w) or norm(g) is 0."""
    for param, grad, adapt in zip(params, grads, mask, strict=True):
        if not adapt:
            grad.mul_(lr)
            continue
        w, g = param.norm(), grad.norm()
        ratio = eeta * w / (g + weight_decay * w + eps)
        ratio = torch.where((w > 0) & (g > 0), ratio, torch.ones_like(ratio))
        grad.add_(param, alpha=weight_decay).mul_(ratio * lr)


class FusedLars(Optimizer):
    """LARS (https://arxiv.org/abs/1708.03888) around another optimizer, whose groups and state it shares.

    `skip_mask` holds 1 for parameters that are adapted and 0 for those whose gradients are only multiplied by
    lr; positions restart in every group. Gradients are overwritten, then the wrapped optimizer steps
    without weight decay and with its own learning rate: wrap one that adds gradients without it, such as
    FusedResourceApplyMomentum. Gaudi's documentation calls `eeta` `a`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        skip_mask: Sequence[int] | Tensor,
        eeta: float = 0.001,
        eps: float = 1e-8,
        *,
        backend: str | None = None,
    ) -> None:
        """`eeta`: the trust coefficient; `eps` keeps the ratio finite."""
        self.optim = optimizer
        self.skip_mask = [int(each) for each in skip_mask]
        self.eeta, self.eps, self.backend = eeta, eps, backend
        self._start()

    _warned = False

    def _start(self) -> None:
        self._native: Any = None
        super().__setstate__({})  # creates the hooks of an Optimizer without groups of its own

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
        """The defaults of the wrapped optimizer, and the arguments of this one."""
        return {**self.optim.defaults, "skip_mask": self.skip_mask, "eeta": self.eeta, "eps": self.eps}

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("optim", "skip_mask", "eeta", "eps", "backend")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def state_dict(self) -> dict[str, Any]:
        """The state of the wrapped optimizer."""
        return self.optim.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state into the wrapped optimizer."""
        self.optim.load_state_dict(state_dict)

    def add_param_group(self, param_group: Group) -> None:
        """Add a group to the wrapped optimizer."""
        self.optim.add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Fill the gradients with zeros, as Gaudi's class does by default, or forget them."""
        self.optim.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Scale all gradients in place, then step the wrapped optimizer without weight decay."""
        params = [param for group in self.param_groups for param in group["params"]]
        choice = choose("FusedLars", params[0].device.type, self.backend)
        if choice == "habana":
            lars = native_op("FusedLars")
            self._native = self._native or lars(self.optim, self.skip_mask, self.eeta, self.eps)
            self._native.step()
            return
        self._warn_of_two_rates()
        with self._taking_over_decay() as decays:
            for group, decay in zip(self.param_groups, decays, strict=True):
                self._scale_group(group, decay, choice)
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

    def _scale_group(self, group: Group, decay: float, backend: str) -> None:
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
            if backend == "reference" and not any(map(is_sharded, owners)):
                ones = [1] * len(owners)
                lars_scale_(weights, grads, ones, lr=lr, weight_decay=decay, eeta=self.eeta, eps=self.eps)
            else:
                self._scale(owners, weights, grads, lr, decay)

    def _scale(self, owners: list[Tensor], params: list[Tensor], grads: list[Tensor], lr: float, decay: float) -> None:
        weights, sizes = norms(params, owners), norms(grads, owners)
        ratios = self.eeta * weights / (sizes + decay * weights + self.eps)
        factors = torch.where((weights > 0) & (sizes > 0), ratios, 1.0) * lr
        for param, grad, factor in zip(params, grads, factors.tolist() if factors.is_cpu else factors, strict=True):
            if decay:
                grad.add_(param, alpha=decay)
            grad.mul_(factor)
