"""What the fused optimizers share: the step loop, the plan, the native class on Gaudi, and checkpoints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from perftool.fused.bucket import Bucket, Work
from perftool.fused.dispatch import choose, native
from perftool.fused.entry import Entry
from perftool.fused.flat import FlatTensors
from perftool.fused.kernels import Kernel, best_kernel
from perftool.fused.plan import Group, Plan, Policy, StateRules
from perftool.fused.unchanged import same_objects

NATIVE_MODULE = "hpex.optimizers"

WorkSource = Callable[[Group, Bucket], Work | None]
"""The operands of the step of a bucket: how a wrapper changes gradients once it is known where they are."""


class FusedOptimizer(Optimizer):
    """A torch.optim.Optimizer that steps whole buckets of parameters with one kernel call.

    A group has one step counter, `group[counter]`, which all its parameters share. Every subclass takes two
    keywords that Gaudi's class does not have. `flat`: None lays many small tensors
    on the CPU out in one buffer, True does so for any, False for none; parameters that somebody else can see
    through a view are never moved. `backend`: a name of `perftool.fused.dispatch`, instead of the best one.
    """

    op: ClassVar[str]
    kernel_name: ClassVar[str]
    state_names: ClassVar[tuple[str, ...]] = ()
    counter: ClassVar[str | None] = "step"
    sparse_error: ClassVar[str]
    takes_divisor: ClassVar[bool] = True
    unsupported: ClassVar[tuple[str, ...]] = ("maximize", "amsgrad")

    # Class attributes, because an optimizer is unpickled without these.
    flat: bool | None = None
    backend: str | None = None
    grad_divisor: Tensor | None = None
    work_source: WorkSource | None = None
    _current: Plan | None = None
    _native: Any = None

    def __init__(self, params: Any, defaults: dict[str, Any], *, flat: bool | None, backend: str | None) -> None:
        super().__init__(params, defaults)
        self.state = _with_entries({})
        self.flat, self.backend = flat, backend
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
        self._step_groups(self.plan())
        self.grad_divisor = None
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or fill them with zeros."""
        if set_to_none or not self._zero_flat_gradients():
            super().zero_grad(set_to_none)

    def _zero_flat_gradients(self) -> bool:
        plan, rules = self._current, StateRules(self._state_names, self._new_state)
        if plan is None or plan.dormant or not plan.is_current(self.param_groups, self.state, rules):
            return False
        return all(bucket.zero_gradients() for bucket in plan.buckets)

    def plan(self) -> Plan:
        """The buckets of all groups, valid for this step."""
        rules = StateRules(self._state_names, self._new_state)
        plan = self._current
        if plan is None or not plan.is_current(self.param_groups, self.state, rules):
            policy = Policy(self.flat, self.sparse_error)
            self._current = Plan(self.param_groups, self.state, rules, policy, previous=plan)
        assert self._current is not None
        return self._current

    def flat_gradients(self, params: list[Tensor]) -> FlatTensors | None:
        """The gradients of all these parameters, if one flat buffer of this optimizer holds them and no others."""
        buckets = self._current.buckets if self._current else []
        bucket = next((each for each in buckets if same_objects(params, each.params)), None)
        return bucket.gradients_in_place() if bucket else None

    def _step_groups(self, plan: Plan) -> None:
        works = [
            (each.group, bucket, work)
            for each in plan.groups
            for bucket in each.buckets
            if (work := self._work(each.group, bucket)) is not None
        ]
        self._prepare([work for _, _, work in works])
        if self.counter is not None:
            for group in {id(group): group for group, _, _ in works}.values():
                group[self.counter] = group.get(self.counter, 0) + 1
        for group, bucket, work in works:
            # First, while what it touches is still in the cache.
            bucket.mark_changed()
            self._update(group, work)

    def _work(self, group: Group, bucket: Bucket) -> Work | None:
        return bucket.work() if self.work_source is None else self.work_source(group, bucket)

    def _prepare(self, works: list[Work]) -> None:
        """Look at the gradients of all groups before the first of them is stepped."""

    def _update(self, group: Group, work: Work) -> None:
        """Step the parameters of one bucket."""
        raise TypeError(f"{type(self).__name__} does not say how to step")

    def _kernel(self, work: Work) -> Kernel:
        # The private kernels read memory in order, so tensors with gaps are left to the plain loop.
        stage = choose(self.op, work.device_type, self.backend).name if work.dense else "reference"
        return best_kernel(self.kernel_name, stage, work.params[0])

    def _divisor(self, work: Work) -> Tensor | None:
        return None if self.grad_divisor is None else self.grad_divisor.to(work.grads[0].device)

    def _state_names(self, group: Group) -> tuple[str, ...]:
        return self.state_names

    def _new_state(self, name: str, param: Tensor, group: Group) -> Tensor:
        return torch.zeros_like(param)

    def steps_natively(self) -> bool:
        """Whether habana_frameworks' own class steps; it shares this optimizer's groups and state."""
        if self._native is None:
            if self._current is not None or choose(self.op, self._device_type(), self.backend).name != "habana":
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
        return {**super().__getstate__(), "flat": self.flat, "backend": self.backend}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.state = _with_entries(self.state)
        # The buffers of the present plan stay known: the next one may take them over.
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
            for option in self.unsupported:
                if group.get(option):
                    raise ValueError(f"{type(self).__name__} cannot continue a state with {option}=True")

    def state_dict(self) -> dict[str, Any]:
        """As torch.optim: the step counter of a group is also repeated as `step` of each parameter."""
        packed: dict[str, Any] = super().state_dict()
        entries = {i: each.plain() if isinstance(each, Entry) else each for i, each in packed["state"].items()}
        if self.counter is not None:
            counts = {i: group.get(self.counter, 0) for group in packed["param_groups"] for i in group["params"]}
            entries = {i: {"step": torch.tensor(float(counts.get(i, 0))), **each} for i, each in entries.items()}
        packed["state"] = entries
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


def _with_entries(state: Mapping[Any, Any]) -> defaultdict[Any, Any]:
    """The states of parameters as an optimizer keeps them."""
    entries = {key: Entry(value) if type(value) is dict else value for key, value in state.items()}
    return defaultdict(Entry, entries)
