"""Shared by the fused optimizers: the step over parameter groups, Gaudi's own class on a Gaudi, and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from perftool.fused.dispatch import choose, native
from perftool.fused.optimizers.kernels import Kernel
from perftool.fused.optimizers.tensors import (
    are_regular,
    conform,
    is_dense,
    is_laid_like,
    is_ordinary,
    is_sharded,
    local_part,
)

NATIVE_MODULE = "hpex.optimizers"

Group = dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """Lists of equal length, one entry per parameter, all of one device and dtype.

    For a sharded parameter `params`, `grads` and `states` hold its local part, and `owners` the parameter itself.
    `ordinary` is False for tensors that only the operators of their own class can compute with. `fits` is True where
    all gradients are known to have the dtype and memory layout of their parameters.
    """

    params: list[Tensor]
    grads: list[Tensor]
    states: dict[str, list[Tensor]]
    owners: list[Tensor]
    ordinary: bool
    fits: bool = False

    def one_by_one(self) -> Iterator[Batch]:
        """On a CPU each parameter alone, which keeps temporaries small; elsewhere, and if sharded, all at once."""
        if not self.params[0].is_cpu or any(map(is_sharded, self.owners)):
            yield self
            return
        for i in range(len(self.params)):
            states = {name: [tensors[i]] for name, tensors in self.states.items()}
            yield Batch([self.params[i]], [self.grads[i]], states, [self.owners[i]], self.ordinary, self.fits)


class FusedOptimizer(Optimizer):
    """A torch.optim.Optimizer that steps all parameters of a group with one kernel call.

    A group has one step counter, `group[counter]`, which all its parameters share. Parameters, gradients and
    states keep their memory. Sharded parameters (DTensor) are stepped shard by shard, other subclasses of Tensor
    by the public operators of their class. The keyword `backend`, a name of `perftool.fused.dispatch`, is not Gaudi's.
    """

    op: ClassVar[str]
    kernel: ClassVar[Kernel]
    state_names: ClassVar[tuple[str, ...]] = ()
    counter: ClassVar[str | None] = "step"
    sparse_error: ClassVar[str]
    unsupported: ClassVar[tuple[str, ...]] = ("maximize", "amsgrad")

    # Class attributes, because unpickling does not call __init__.
    backend: str | None = None
    _native: Any = None
    _stepped = False

    def __init__(self, params: Any, defaults: dict[str, Any], *, backend: str | None) -> None:
        super().__init__(params, defaults)
        self.backend = backend
        if backend is not None:
            choose(self.op, self._device_type(), backend)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient; returns the loss of `closure`, which runs first."""
        if self._steps_natively():
            return self._native.step(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._stepped = True
        works = [(group, self._batches(group)) for group in self.param_groups]
        self._prepare([batch for _, batches in works for batch in batches])
        for group, batches in works:
            if batches and self.counter is not None:
                group[self.counter] = group.get(self.counter, 0) + 1
            for batch in batches:
                # The fused kernels do not tell autograd about their writes.
                torch.autograd.graph.increment_version(batch.owners)
                self._update(group, batch)
        return loss

    def _prepare(self, batches: list[Batch]) -> None:
        """Check the gradients of all groups before the first step of any of them."""

    def _update(self, group: Group, batch: Batch) -> None:
        """Step the parameters of one batch."""
        raise NotImplementedError

    def _run(self, batch: Batch, params: list[Tensor] | None = None, **options: Any) -> None:
        """Run PyTorch's kernel if it is selected and correct, else the plain loop."""
        params = batch.params if params is None else params
        if self._is_fast(batch):
            grads = batch.grads
            if not batch.fits:
                grads = [conform(grad, param) for grad, param in zip(grads, params, strict=True)]
            self.kernel.fused(params, grads, *batch.states.values(), **options)
        else:
            self.kernel.plain(params, batch.grads, *batch.states.values(), **options)

    def _is_fast(self, batch: Batch) -> bool:
        like = batch.params[0]
        chosen = batch.ordinary and choose(self.op, like.device.type, self.backend).name == "fast"
        return chosen and self.kernel.obstacle(like.device.type, like.dtype) is None

    def _batches(self, group: Group) -> list[Batch]:
        """The parameters of a group that have a gradient, grouped into kernel calls."""
        owners = [param for param in group["params"] if param.grad is not None]
        if not owners:
            return []
        grads = [owner.grad for owner in owners]
        names, entries = self._state_names(group), [self.state[owner] for owner in owners]
        kept = {name: [entry.get(name) for entry in entries] for name in names}
        if self._are_regular(owners, grads, kept, group):
            return [Batch(owners, grads, kept, owners, ordinary=True, fits=True)]
        return self._sorted(owners, group)

    def _are_regular(self, params: list[Tensor], grads: list[Tensor], kept: dict[str, list[Any]], group: Group) -> bool:
        missing = any(each is None for column in kept.values() for each in column)
        if missing or not are_regular(params, grads, list(kept.values())):
            return False
        dtype = params[0].dtype
        wanted = all(each[0].dtype == (self._state_dtype(name, group) or dtype) for name, each in kept.items())
        return wanted and dtype.is_floating_point and grads[0].dtype == dtype

    def _sorted(self, owners: list[Tensor], group: Group) -> list[Batch]:
        alike: dict[Any, list[tuple[Any, ...]]] = {}
        names = self._state_names(group)
        for owner in owners:
            grad: Any = owner.grad
            self._check(owner, grad)
            kept, param = [self._state(name, owner, group) for name in names], owner
            if is_sharded(owner):
                kept = [local_part(each, owner) if is_sharded(each) else each for each in kept]
                grad, param = local_part(grad, owner), local_part(owner, owner)
            ordinary = is_ordinary(param) and is_ordinary(grad) and is_dense(param)
            kind = param.device, param.dtype, ordinary, *(each.dtype for each in kept)
            alike.setdefault(kind, []).append((param, grad, owner, kept))
        batches = []
        for kind, rows in alike.items():
            params, grads, same = ([row[column] for row in rows] for column in range(3))
            states = {name: [row[3][i] for row in rows] for i, name in enumerate(names)}
            batches.append(Batch(params, grads, states, same, ordinary=kind[2]))
        return batches

    def _check(self, param: Tensor, grad: Tensor) -> None:
        if not param.is_floating_point():
            raise TypeError(f"fused optimizers step floating-point parameters, not {param.dtype}")
        if grad.is_sparse or grad.is_sparse_csr:
            raise RuntimeError(self.sparse_error)

    def _state(self, name: str, param: Tensor, group: Group) -> Tensor:
        """The state of a parameter, created or converted to the dtype and memory layout that the kernel needs."""
        entry = self.state[param]
        present = entry.get(name)
        if not isinstance(present, Tensor):
            entry[name] = self._new_state(name, param, group)
        elif not self._fits(present, name, param, group):
            entry[name] = self._new_state(name, param, group).copy_(present)
        return entry[name]  # type: ignore[no-any-return]

    def _fits(self, present: Tensor, name: str, param: Tensor, group: Group) -> bool:
        same_place = present.device == param.device and is_sharded(present) == is_sharded(param)
        return (
            same_place
            and is_laid_like(present, param)
            and present.dtype == (self._state_dtype(name, group) or param.dtype)
        )

    def _state_names(self, group: Group) -> tuple[str, ...]:
        return self.state_names

    def _state_dtype(self, name: str, group: Group) -> torch.dtype | None:
        """The dtype of a state, None for that of its parameter."""
        return None

    def _new_state(self, name: str, param: Tensor, group: Group) -> Tensor:
        return torch.zeros_like(param, dtype=self._state_dtype(name, group), requires_grad=False)

    def _steps_natively(self) -> bool:
        """Whether habana_frameworks' own class steps; it shares this optimizer's groups and state."""
        if self._native is None:
            if self._stepped or choose(self.op, self._device_type(), self.backend).name != "habana":
                return False
            self._native = native(NATIVE_MODULE, self.op)(self.param_groups, **self._native_options())
            for param, state in self._native.state.items():
                self.state.setdefault(param, state)
        # load_state_dict replaces both, so they are passed in every step.
        self._native.param_groups, self._native.state = self.param_groups, self.state
        return True

    def _native_options(self) -> dict[str, Any]:
        # torch adds the last one when an optimizer is unpickled.
        return {name: value for name, value in self.defaults.items() if name != "differentiable"}

    def _device_type(self) -> str:
        """The type of device of all parameters; the CPU's if they are on several."""
        types = {param.device.type for group in self.param_groups for param in group["params"]}
        return types.pop() if len(types) == 1 else "cpu"

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "backend": self.backend}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
            for option in self.unsupported:
                if group.get(option):
                    raise ValueError(f"{type(self).__name__} cannot continue a state with {option}=True")

    def state_dict(self) -> dict[str, Any]:
        """As torch.optim: the step counter of a group is also repeated as `step` of each parameter."""
        packed: dict[str, Any] = super().state_dict()
        if self.counter is not None:
            counts = {i: group.get(self.counter, 0) for group in packed["param_groups"] for i in group["params"]}
            entries = packed["state"].items()
            packed["state"] = {i: {"step": torch.tensor(float(counts.get(i, 0))), **each} for i, each in entries}
        return packed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state of this class, or of the class of torch.optim with the same arithmetic.

        A group without a counter of its own continues from the highest count of its parameters.
        """
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            counts = [self.state[param].pop("step", 0) for param in group["params"] if param in self.state]
            self._continue_from(group, int(max(map(float, counts), default=0)))

    def _continue_from(self, group: Group, count: int) -> None:
        """Give a loaded group the counter it may lack."""
        if self.counter is not None:
            group.setdefault(self.counter, count)
