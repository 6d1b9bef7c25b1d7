"""g = (g + wd*w) * lr * eeta*norm(w)/(norm(g) + wd*norm(w) + eps); then the wrapped optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.optim import Optimizer

from perftool.fused.bucket import Bucket, Work
from perftool.fused.dispatch import (
    ANY_DEVICE,
    Implementation,
    always,
    choose,
    native,
    register,
    register_native,
)
from perftool.fused.flat import ROW
from perftool.fused.norms import norm
from perftool.fused.optimizer import NATIVE_MODULE, FusedOptimizer, WorkSource
from perftool.fused.plan import Group, Plan, Policy, StateRules
from perftool.fused.reference import lars_scale_

register_native("FusedLars", NATIVE_MODULE, "FusedLars")
register(Implementation("FusedLars", "fast", ANY_DEVICE, always))
register(Implementation("FusedLars", "reference", ANY_DEVICE, always))

_STATELESS = StateRules(lambda group: (), lambda name, param, group: param)
_POLICY = Policy(flat=None, sparse_error="Lars does not support sparse gradients")
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

    def _start(self) -> None:
        self._own_plan: Plan | None = None
        self._masks: WeakKeyDictionary[Bucket, Tensor] = WeakKeyDictionary()
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
        """The defaults of the wrapped optimizer."""
        return self.optim.defaults

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

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or fill them with zeros."""
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
        with self._taking_over_decay() as decays:
            of_group = {id(group): decay for group, decay in zip(self.param_groups, decays, strict=True)}

            def scaled(group: Group, bucket: Bucket) -> Work | None:
                return self._scaled_work(group, bucket, of_group[id(group)], choice.name)

            if isinstance(self.optim, FusedOptimizer) and not self.optim.steps_natively():
                self._step_with(self.optim, scaled)
                return
            for each in self._plan().groups:
                for bucket in each.buckets:
                    scaled(each.group, bucket)
            self.optim.step()

    def _step_with(self, optimizer: FusedOptimizer, source: WorkSource) -> None:
        # Inside its step, so that its parameters and gradients are compared once and not twice.
        optimizer.work_source = source
        try:
            optimizer.step()
        finally:
            optimizer.work_source = None

    def _scaled_work(self, group: Group, bucket: Bucket, decay: float, backend: str) -> Work | None:
        """The operands of the wrapped optimizer, after the gradients themselves have been scaled."""
        work = bucket.work(pack=False)
        if work is not None:
            mask = self._mask(group, bucket)
            mask = mask if work.layout is not None else mask[list(work.present)]
            self._scale(work, mask, float(group["lr"]), decay, backend)
        return work if work is None or work.layout is not None else bucket.work()

    @contextmanager
    def _taking_over_decay(self) -> Iterator[list[float]]:
        decays = [float(group.get("weight_decay", 0.0)) for group in self.param_groups]
        kept = [group.get("weight_decay") for group in self.param_groups]
        for group in self.param_groups:
            group["weight_decay"] = 0.0
        try:
            yield decays
        finally:
            for group, decay in zip(self.param_groups, kept, strict=True):
                group["weight_decay"] = decay

    def _plan(self) -> Plan:
        """The plan of the wrapped optimizer if it has one: two flat buffers would fight over a parameter."""
        if isinstance(self.optim, FusedOptimizer):
            return self.optim.plan()
        plan = self._own_plan
        states: dict[Any, Any] = plan.states if plan else {}  # type: ignore[assignment]
        if plan is None or not plan.is_current(self.param_groups, states, _STATELESS):
            plan = Plan(self.param_groups, states, _STATELESS, _POLICY, previous=plan)
        self._own_plan = plan
        return plan

    def _mask(self, group: Group, bucket: Bucket) -> Tensor:
        """[parameters of the bucket] bool: which are adapted."""
        if bucket not in self._masks:
            if len(self.skip_mask) < len(group["params"]):
                raise RuntimeError(_MASK_TOO_SHORT.format(len(group["params"]), len(self.skip_mask)))
            adapted = {id(param): bool(flag) for param, flag in zip(group["params"], self.skip_mask, strict=False)}
            flags = [adapted[id(param)] for param in bucket.params]
            self._masks[bucket] = torch.tensor(flags, device=bucket.params[0].device)
        return self._masks[bucket]

    def _scale(self, work: Work, mask: Tensor, lr: float, decay: float, backend: str) -> None:
        if backend == "reference":
            options = {"lr": lr, "weight_decay": decay, "eeta": self.eeta, "eps": self.eps}
            params = work.params if work.layout is None else work.layout.views(work.params[0])
            grads = work.grads if work.layout is None else work.layout.views(work.grads[0])
            lars_scale_(params, grads, mask.tolist(), **options)
        elif work.layout is not None:
            self._scale_flat(work, mask, lr, decay)
        else:
            for param, grad, adapt in zip(work.params, work.grads, mask.tolist(), strict=True):
                self._scale_one(param, grad, adapt, lr, decay)

    def _scale_one(self, param: Tensor, grad: Tensor, adapt: bool, lr: float, decay: float) -> None:
        if not adapt:
            grad.mul_(lr)
            return
        ratio = self._ratio(norm(param), norm(grad), decay)
        if decay:
            grad.add_(param, alpha=decay)
        grad.mul_((ratio * lr).to(grad.dtype))

    def _scale_flat(self, work: Work, mask: Tensor, lr: float, decay: float) -> None:
        layout, param, grad = work.layout, work.params[0], work.grads[0]
        assert layout is not None
        ratio = self._ratio(layout.norms(param), layout.norms(grad), decay)
        factor = torch.where(mask, ratio, 1.0).mul_(lr).to(grad.dtype)
        rows = grad.view(-1, ROW)
        if decay:
            rows.addcmul_(param.view(-1, ROW), layout.by_row(mask.to(grad.dtype) * decay))
        rows.mul_(layout.by_row(factor))

    def _ratio(self, weight: Tensor, grad: Tensor, decay: float) -> Tensor:
        ratio = self.eeta * weight / (grad + decay * weight + self.eps)
        return torch.where((weight > 0) & (grad > 0), ratio, 1.0)
