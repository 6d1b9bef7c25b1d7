"""g = (g + wd*w) * lr * eeta*norm(w)/(norm(g) + wd*norm(w) + eps); then the wrapped optimizer steps."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from operator import not_
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from perftool.fused.dispatch import (
    ANY_DEVICE,
    NATIVE,
    Implementation,
    always,
    choose,
    native,
    register,
    register_native,
)
from perftool.fused.optimizers import native as kernels
from perftool.fused.optimizers.batches import Batch, Group, StateRules, batches_of
from perftool.fused.optimizers.kernels import pieces
from perftool.fused.optimizers.norms import Rows, have_one_dimension, norm_on_cpu, norms
from perftool.fused.optimizers.optimizer import NATIVE_MODULE, FusedOptimizer, Rewrite
from perftool.fused.optimizers.resource_momentum import FusedResourceApplyMomentum
from perftool.fused.reference import lars_scale_

register_native("FusedLars", NATIVE_MODULE, "FusedLars")
kernels.register_native_kernels("FusedLars")
register(Implementation("FusedLars", "fast", ANY_DEVICE, always))
register(Implementation("FusedLars", "reference", ANY_DEVICE, always))

_TWO_RATES = (
    "FusedLars scales gradients by the learning rate, as on a Gaudi, and {} multiplies by it again."
    " Wrap FusedResourceApplyMomentum, which adds gradients as they are."
)
_STATELESS = StateRules(
    names=lambda group: (),
    create=lambda name, param, group: param,
    sparse_error="Lars does not support sparse gradients",
)
_MASK_TOO_SHORT = (
    "params, grads and skip_masks vector inputs must have the same number of elements"
    " but they respectively have: {0}, {0} and {1}"
)


class FusedLars(Optimizer):
    """LARS (https://arxiv.org/abs/1708.03888) around another optimizer, whose groups and state it shares.

    `skip_mask` holds 1 for parameters that are adapted and 0 for those whose gradients are only multiplied by
    lr; positions count anew in every group. Gradients are overwritten, then the wrapped optimizer steps
    without weight decay and with its own learning rate: wrap one that adds gradients without it, such as
    FusedResourceApplyMomentum. Gradients are scaled inside the step of an optimizer of ours, so pre-hooks of
    that one see them as they were. Gaudi's documentation calls `eeta` `a`.
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
        super().__setstate__({})  # makes the hooks of an Optimizer without groups of its own

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
        """The defaults of the wrapped optimizer, and what this one was made with."""
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
        if choice.name == "habana":
            lars = native(NATIVE_MODULE, "FusedLars")
            self._native = self._native or lars(self.optim, self.skip_mask, self.eeta, self.eps)
            self._native.step()
            return
        self._warn_of_two_rates()
        with self._taking_over_decay() as decays:
            of_group = {id(group): decay for group, decay in zip(self.param_groups, decays, strict=True)}

            def rewrite(group: Group, batch: Batch) -> None:
                if choice.name == NATIVE and self._scale_natively(group, batch, of_group[id(group)]):
                    return
                for alike in batch.by_size():
                    mask = self._mask(group, alike)
                    self._scale(alike, mask, float(group["lr"]), of_group[id(group)], choice.name)

            if isinstance(self.optim, FusedOptimizer) and not self.optim.steps_natively():
                self._step_with(self.optim, rewrite)
                return
            for group in self.param_groups:
                for batch in batches_of(group, {}, _STATELESS):
                    rewrite(group, batch)
            self.optim.step()

    def _warn_of_two_rates(self) -> None:
        if self._warned or isinstance(self.optim, FusedResourceApplyMomentum):
            return
        known = isinstance(self.optim, FusedOptimizer) or type(self.optim).__module__.startswith("torch.optim")
        if known and any(float(group["lr"]) != 1.0 for group in self.param_groups):
            self._warned = True
            warnings.warn(_TWO_RATES.format(type(self.optim).__name__), stacklevel=2)

    def _step_with(self, optimizer: FusedOptimizer, rewrite: Rewrite) -> None:
        # Inside its step, so that its parameters and gradients are looked up once and not twice.
        optimizer.rewrite = rewrite
        try:
            optimizer.step()
        finally:
            optimizer.rewrite = None

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

    def _mask(self, group: Group, batch: Batch) -> list[bool]:
        """Which parameters of a batch are adapted."""
        params = group["params"]
        if len(self.skip_mask) < len(params):
            raise RuntimeError(_MASK_TOO_SHORT.format(len(params), len(self.skip_mask)))
        if len(batch.owners) == len(params) and batch.owners[0] is params[0] and batch.owners[-1] is params[-1]:
            # Batches keep the order of their group: as many as there are means all of them.
            return list(map(bool, self.skip_mask[: len(params)]))
        adapted = {id(param): bool(flag) for param, flag in zip(params, self.skip_mask, strict=False)}
        return [adapted[id(owner)] for owner in batch.owners]

    def _scale(self, batch: Batch, mask: list[bool], lr: float, decay: float, backend: str) -> None:
        if backend == "reference" and not batch.spread:
            options = {"lr": lr, "weight_decay": decay, "eeta": self.eeta, "eps": self.eps}
            lars_scale_(batch.params, batch.grads, mask, **options)
            return
        start = 0
        for part in batch.parts():
            flags = mask[start : start + len(part.params)]
            start += len(flags)
            if part.can_be_laid_out:
                self._scale_laid_out(part, flags, lr, decay)
            elif part.ordinary and part.device_type == "cpu" and not part.spread:
                self._scale_one_by_one(part, flags, lr, decay)
            else:
                self._scale_listed(part, flags, lr, decay)

    def _scale_natively(self, group: Group, batch: Batch, decay: float) -> bool:
        if not batch.ordinary or not batch.fits or batch.spread:
            return False
        mask, lr = self._mask(group, batch), float(group["lr"])
        params, grads = list(compress(batch.params, mask)), list(compress(batch.grads, mask))
        others = list(compress(batch.grads, map(not_, mask)))
        if not kernels.lars(params, grads, lr, decay, self.eeta, self.eps):
            return False
        if not kernels.scale(others, lr):
            torch._foreach_mul_(others, lr)
        return True

    def _scale_one_by_one(self, part: Batch, flags: list[bool], lr: float, decay: float) -> None:
        """On a CPU, tensor by tensor while it is in the cache, and only the norms that count."""
        for param, grad, flag in zip(part.params, part.grads, flags, strict=True):
            if not flag:
                grad.mul_(lr)
                continue
            weight, size = norm_on_cpu(param), norm_on_cpu(grad)
            adapted = weight > 0 and size > 0
            factor = lr * (self.eeta * weight / (size + decay * weight + self.eps) if adapted else 1.0)
            for value, change in pieces((param, grad)):
                if decay:
                    change.add_(value, alpha=decay)
                change.mul_(factor)

    def _scale_listed(self, part: Batch, flags: list[bool], lr: float, decay: float) -> None:
        both = norms([*part.params, *part.grads], [*part.owners, *part.owners])
        weights, grads = both.chunk(2)
        ratios = self._ratio(weights, grads, decay)
        factors = torch.where(_on_device(tuple(flags), ratios.device), ratios, 1.0).mul_(lr).to(part.grads[0].dtype)
        for param, grad, flag, factor in zip(part.params, part.grads, flags, factors.unbind(), strict=True):
            if flag and decay:
                grad.add_(param, alpha=decay)
            grad.mul_(factor)

    def _scale_laid_out(self, part: Batch, flags: list[bool], lr: float, decay: float) -> None:
        """Many small tensors: computed on copies that lie end to end, then copied back."""
        weights, grads = Rows(part.params, part.sizes), Rows(part.grads, part.sizes)
        room = grads.room(part.kept)
        mask, values = _on_device(tuple(flags), part.grads[0].device), grads.values
        factors = torch.where(mask, self._ratio(weights.norms(), grads.norms(), decay), 1.0).mul_(lr)
        if decay:
            values.addcmul_(weights.values, grads.by_row(mask.to(values.dtype) * decay))
        torch.mul(values, grads.by_row(factors.to(values.dtype)), out=room.values)
        scaled = room.pieces
        if not have_one_dimension(part.grads):
            scaled = [piece.view_as(grad) for piece, grad in zip(scaled, part.grads, strict=True)]
        torch._foreach_copy_(part.grads, scaled)

    def _ratio(self, weight: Tensor, grad: Tensor, decay: float) -> Tensor:
        ratio = self.eeta * weight / (grad + decay * weight + self.eps)
        return torch.where((weight > 0) & (grad > 0), ratio, 1.0)


@functools.lru_cache(maxsize=256)
def _on_device(flags: tuple[bool, ...], device: torch.device) -> Tensor:
    # Once, because a copy from the host makes a step wait for the device.
    return torch.tensor(flags, device=device)
