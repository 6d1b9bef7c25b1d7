"""What the fused optimizers share: the step loop, the batches, the native class on Gaudi, and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from perftool.fused.dispatch import NATIVE, choose, generation, native
from perftool.fused.optimizers.batches import Batch, Group, StateRules
from perftool.fused.optimizers.kernels import Kernel, best_kernel
from perftool.fused.optimizers.pending import PendingClip
from perftool.fused.optimizers.remembered import GroupBatches

NATIVE_MODULE = "hpex.optimizers"

Rewrite = Callable[[Group, Batch], None]
"""What changes the gradients of a batch in place before it is stepped, for a wrapper around the optimizer."""


class FusedOptimizer(Optimizer):
    """A torch.optim.Optimizer that steps all parameters of a group with one kernel call.

    A group has one step counter, `group[counter]`, which all its parameters share. Parameters, gradients and
    states stay where they are. Sharded parameters (DTensor) are stepped part by part; other subclasses of
    Tensor through the public operators of their class. Every optimizer takes a keyword that Gaudi's class
    does not have, `backend`: a name of `perftool.fused.dispatch`, instead of the best one.
    """

    op: ClassVar[str]
    kernel_name: ClassVar[str]
    state_names: ClassVar[tuple[str, ...]] = ()
    counter: ClassVar[str | None] = "step"
    sparse_error: ClassVar[str]
    takes_divisor: ClassVar[bool] = True
    unsupported: ClassVar[tuple[str, ...]] = ("maximize", "amsgrad")

    # Class attributes, because an optimizer is unpickled without these.
    backend: str | None = None
    pending_clip: PendingClip | None = None
    rewrite: Rewrite | None = None
    _divisor: Tensor | None = None
    _groups: dict[int, GroupBatches] | None = None
    _choices: tuple[int, dict[str, str]] = (-1, {})
    _native: Any = None

    def __init__(self, params: Any, defaults: dict[str, Any], *, backend: str | None) -> None:
        super().__init__(params, defaults)
        self.backend = backend
        if backend is not None:
            choose(self.op, self._device_type(), backend)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient; returns the loss of `closure`, which is run first."""
        if self.steps_natively():
            return self._native.step(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step_groups()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or fill them with zeros; a clip that waits for a step is forgotten too."""
        self.pending_clip = None
        super().zero_grad(set_to_none)

    def _collect(self, group: Group) -> list[Batch]:
        """The batches of a group for this step."""
        if self._groups is None:
            self._groups = {}
        remembered = self._groups.get(id(group))
        if remembered is None:
            remembered = self._groups[id(group)] = GroupBatches()
        first = next(iter(group["params"]), None)
        natively = first is not None and self._chosen(first.device.type) == NATIVE
        again = remembered.again(group, self.state, self._state_names(group), natively)
        if again is not None:
            return [again]
        return remembered.collect(group, self.state, StateRules(self._state_names, self._new_state, self.sparse_error))

    def _step_groups(self) -> None:
        works = [(group, batch) for group in self.param_groups for batch in self._collect(group)]
        if self.rewrite is not None:
            for group, batch in works:
                self.rewrite(group, batch)
        pending, self.pending_clip = self.pending_clip, None
        self._divisor = pending.divisor if pending is not None and pending.holds() else None
        self._prepare([batch for _, batch in works])
        if self.counter is not None:
            for group in {id(group): group for group, _ in works}.values():
                group[self.counter] = group.get(self.counter, 0) + 1
        for group, batch in works:
            # The fused kernels of torch do not tell autograd that they write.
            torch.autograd.graph.increment_version(batch.owners)
            self._update(group, batch.fitting())
        self._divisor = None

    def _prepare(self, batches: list[Batch]) -> None:
        """Look at the gradients of all groups before the first of them is stepped."""

    def _update(self, group: Group, batch: Batch) -> None:
        """Step the parameters of one batch."""
        raise TypeError(f"{type(self).__name__} does not say how to step")

    def _kernel(self, batch: Batch) -> Kernel:
        # The private kernels read memory in order, so tensors with gaps and wrappers are left to the plain loop.
        stage = self._chosen(batch.device_type) if batch.ordinary else "reference"
        return best_kernel(self.kernel_name, stage, batch.params[0])

    def _chosen(self, device_type: str) -> str:
        """The implementation for a device: that with which this optimizer began, until others are registered."""
        if self._choices[0] != generation():
            self._choices = generation(), {}
        known = self._choices[1]
        if device_type not in known:
            known[device_type] = choose(self.op, device_type, self.backend).name
        return known[device_type]

    def _is_native(self, batch: Batch) -> bool:
        """Whether the native kernels are asked for, and these are whole tensors of which they may take all."""
        whole = batch.ordinary and batch.fits and not batch.spread
        return whole and self._chosen(batch.device_type) == NATIVE

    def _divisor_on(self, batch: Batch) -> Tensor | None:
        return None if self._divisor is None else self._divisor.to(batch.grads[0].device)

    def _state_names(self, group: Group) -> tuple[str, ...]:
        return self.state_names

    def _new_state(self, name: str, param: Tensor, group: Group) -> Tensor:
        return torch.zeros_like(param)

    def steps_natively(self) -> bool:
        """Whether habana_frameworks' own class steps; it shares this optimizer's groups and state."""
        if self._native is None:
            if self._groups is not None or choose(self.op, self._device_type(), self.backend).name != "habana":
                return False
            self._native = native(NATIVE_MODULE, self.op)(self.param_groups, **self._native_options())
            for param, state in self._native.state.items():
                self.state.setdefault(param, state)
        # load_state_dict replaces both, so they are handed over for every step.
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
        # The groups are other objects from here on.
        self._groups = None if self._groups is None else {}
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
