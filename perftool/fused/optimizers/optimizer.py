"""The base class of the fused optimizers, which updates parameter groups (on a Gaudi, with Gaudi's class) and loads
checkpoints."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from perftool.fused.dispatch import choose, native_op, register, register_native
from perftool.fused.optimizers.tensors import are_ordinary, are_regular, has_layout_of, is_dense, is_sharded, local_part

Group = dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """Lists of equal length, with one entry per parameter. All tensors are on one device; each list has one dtype.

    For a sharded parameter, `params`, `grads` and `states` contain its local part, and `owners` contains the parameter
    itself. `ordinary` is False for subclasses of Tensor that need their own operators; gradients of ordinary tensors
    have the dtype and memory layout of their parameters.
    """

    params: list[Tensor]
    grads: list[Tensor]
    states: dict[str, list[Tensor]]
    owners: list[Tensor]
    ordinary: bool


@dataclass(frozen=True, eq=False)
class Kernel:
    """An optimizer's arithmetic in two forms: PyTorch's fused kernel, and a plain loop to check it against.

    Both accept params, grads and one list per state, followed by the same options, and write in place. All tensors of a
    call must share a device and dtype, and the tensors of one parameter must share a memory layout: the private
    `torch._fused_*_` ops do not check this. `states` is the number of lists of states, and `probe` the options used to
    test `fused`.
    """

    fused: Callable[..., None]
    plain: Callable[..., None]
    states: int
    probe: dict[str, Any]
    _obstacles: dict[Any, str | None] = field(default_factory=dict)

    def obstacle(self, device_type: str, dtype: torch.dtype = torch.float32) -> str | None:
        """Return why the fused kernel cannot be used, or None if it agrees with the plain loop on a few elements. The
        check runs once per device type and dtype, because the SGD kernel of torch 2.13 for CPUs is wrong in bfloat16
        and float16.
        """
        if (device_type, dtype) not in self._obstacles:
            self._obstacles[device_type, dtype] = self._tried(device_type, dtype)
        return self._obstacles[device_type, dtype]

    def _tried(self, device_type: str, dtype: torch.dtype) -> str | None:
        try:
            result, expected = (self._result(form, device_type, dtype) for form in (self.fused, self.plain))
        except (AttributeError, TypeError, RuntimeError) as error:
            return f"the kernel failed: {str(error).splitlines()[0]}"
        tolerance = 8 * torch.finfo(dtype).eps
        if not torch.allclose(result, expected, rtol=tolerance, atol=tolerance):
            return f"the results of the kernel and of the plain loop differ in {dtype}"
        return None

    @torch.no_grad()
    def _result(self, form: Callable[..., None], device_type: str, dtype: torch.dtype) -> Tensor:
        # 67 elements fill some vector registers and leave a remainder.
        values = torch.linspace(0.25, 1.0, 67, dtype=torch.float64).to(device_type, dtype)
        operands = [values * (1 + i) for i in range(2 + self.states)]
        form(*([operand] for operand in operands), **self.probe)
        return torch.stack([operands[0], *operands[2:]]).double()

    def form(self, op: str, batch: Batch) -> Callable[..., None]:
        """Return the fused kernel if it is selected and its results match those of the plain loop in the self-test;
        otherwise the plain loop."""
        like = batch.params[0]
        fast = batch.ordinary and choose(op, like.device.type) == "fast"
        return self.fused if fast and self.obstacle(like.device.type, like.dtype) is None else self.plain


def register_optimizer(op: str, kernel: Kernel, module: str | None = None) -> None:
    """Register Gaudi's class and both forms of a kernel as implementations of an optimizer."""
    register_native(op, module)
    for device_type in ("cpu", "cuda"):
        register(op, "fast", (device_type,), functools.partial(kernel.obstacle, device_type))
    register(op, "reference")


def batches(owners: list[Tensor], grads: list[Any], states: dict[str, list[Tensor]]) -> list[Batch]:
    """Group parameters, their gradients and their states into batches for kernel calls."""
    kinds: dict[Any, list[tuple[Tensor, ...]]] = {}
    for owner, grad, *kept in zip(owners, grads, *states.values(), strict=True):
        param, grad, *kept = (local_part(each, owner) for each in (owner, grad, *kept))
        ordinary = are_ordinary([param, grad]) and is_dense(param)
        if ordinary and not (grad.dtype == param.dtype and has_layout_of(grad, param)):
            grad = torch.empty_like(param).copy_(grad)
        kind = param.device, param.dtype, ordinary, *(each.dtype for each in kept)
        kinds.setdefault(kind, []).append((param, grad, owner, *kept))
    made = []
    for (_, _, ordinary, *_), rows in kinds.items():
        params, grads, same, *columns = map(list, zip(*rows, strict=True))
        made.append(Batch(params, grads, dict(zip(states, columns, strict=True)), same, ordinary))
    return made


def refuse_negative(values: dict[str, float]) -> None:
    """Raise ValueError for a negative argument; the message contains its name in Gaudi's class."""
    for name, value in values.items():
        if value < 0:
            raise ValueError(f"Invalid {name}: {value}")


class FusedOptimizer(Optimizer):
    """A torch.optim.Optimizer that updates all parameters of a group with one kernel call per device and dtype.

    All parameters of a group share one step counter, `group[counter]`. Parameters, gradients and states stay in the
    same memory. Sharded parameters (DTensor) are updated shard by shard, and other subclasses of Tensor with the public
    operators of their class.
    """

    op: ClassVar[str]
    kernel: ClassVar[Kernel]
    state_names: ClassVar[tuple[str, ...]] = ()
    counter: ClassVar[str | None] = "step"
    sparse_error: ClassVar[str]
    unsupported: ClassVar[tuple[str, ...]] = ("maximize", "amsgrad")

    # Class attributes, because unpickling does not call __init__.
    _native: Any = None
    _stepped = False

    def __init_subclass__(cls) -> None:
        """Register the `op` of a subclass."""
        if "op" in cls.__dict__:
            register_optimizer(cls.op, cls.kernel)

    def __init__(self, params: Any, **defaults: Any) -> None:
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Run `closure`, update all parameters that have a gradient, and return the loss of `closure`."""
        if self._steps_natively():
            return self._native.step(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._stepped = True
        with_gradients = [[param for param in group["params"] if param.grad is not None] for group in self.param_groups]
        self._prepare([owner for owners in with_gradients for owner in owners])
        works = [
            (g, self._batches(g, owners)) for g, owners in zip(self.param_groups, with_gradients, strict=True) if owners
        ]
        for group, each in works:
            if self.counter is not None:
                group[self.counter] = group.get(self.counter, 0) + 1
            for batch in each:
                # Autograd does not notice that the fused kernels write to the parameters.
                torch.autograd.graph.increment_version(batch.owners)
                self._update(group, batch)
        return loss

    def _prepare(self, owners: list[Tensor]) -> None:
        """Called with all parameters that have a gradient, before any of them is updated."""

    def _update(self, group: Group, batch: Batch) -> None:
        """Update the parameters of one batch."""
        raise NotImplementedError

    def _run(self, batch: Batch, **options: Any) -> None:
        self.kernel.form(self.op, batch)(batch.params, batch.grads, *batch.states.values(), **options)

    def _batches(self, group: Group, owners: list[Tensor]) -> list[Batch]:
        grads: list[Any] = [owner.grad for owner in owners]
        self._refuse_sparse(grads)
        kept, entries, dtype = self._states(group), [self.state[owner] for owner in owners], owners[0].dtype
        states = {name: [entry.get(name) for entry in entries] for name in kept}
        wanted = [dtype, dtype, *(each or dtype for each in kept.values())]
        if dtype.is_floating_point and are_regular([owners, grads, *states.values()], wanted):
            return [Batch(owners, grads, states, owners, ordinary=True)]
        if not all(map(Tensor.is_floating_point, owners)):
            raise TypeError("fused optimizers update floating-point parameters only")
        return batches(owners, grads, {name: [self._state(name, each, group) for each in owners] for name in kept})

    def _refuse_sparse(self, grads: list[Any]) -> None:
        if {*map(attrgetter("layout"), grads)} != {torch.strided}:
            raise RuntimeError(self.sparse_error)

    def _state(self, name: str, param: Tensor, group: Group) -> Tensor:
        """Return the parameter's state `name`. It is created if missing, and converted if the kernel needs another
        device, dtype, sharding or layout.
        """
        entry = self.state[param]
        present = entry.get(name)
        if not isinstance(present, Tensor):
            entry[name] = self._new_state(name, param, group)
        elif not self._fits(present, name, param, group):
            entry[name] = self._new_state(name, param, group).copy_(present)
        return entry[name]  # type: ignore[no-any-return]

    def _fits(self, present: Tensor, name: str, param: Tensor, group: Group) -> bool:
        same_place = present.device == param.device and is_sharded(present) == is_sharded(param)
        same_dtype = present.dtype == (self._states(group)[name] or param.dtype)
        return same_place and same_dtype and has_layout_of(present, param)

    def _states(self, group: Group) -> dict[str, torch.dtype | None]:
        """Return the dtypes of a group's states by name. None means the parameter's dtype."""
        return dict.fromkeys(self.state_names)

    def _new_state(self, name: str, param: Tensor, group: Group) -> Tensor:
        return torch.zeros_like(param, dtype=self._states(group)[name], requires_grad=False)

    def _steps_natively(self) -> bool:
        """Whether Gaudi's class does the step; if so, share this optimizer's groups and state with it."""
        if self._native is None:
            if self._stepped or choose(self.op, self._device_type()) != "habana":
                return False
            self._native = native_op(self.op)(self.param_groups, **self._native_options())
            for param, state in self._native.state.items():
                self.state.setdefault(param, state)
        # Set these in every step, because load_state_dict replaces both.
        self._native.param_groups, self._native.state = self.param_groups, self.state
        return True

    def _native_options(self) -> dict[str, Any]:
        # torch adds the key `differentiable` to an unpickled optimizer.
        return {name: value for name, value in self.defaults.items() if name != "differentiable"}

    def _device_type(self) -> str:
        """Return the device type of all parameters; `cpu` if they are on several types of device."""
        types = {param.device.type for group in self.param_groups for param in group["params"]}
        return types.pop() if len(types) == 1 else "cpu"

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
            for option in self.unsupported:
                if group.get(option):
                    raise ValueError(f"{type(self).__name__} cannot continue from a state with {option}=True")

    def state_dict(self) -> dict[str, Any]:
        """Return the state. Each parameter has a `step` in it, as in torch.optim: the counter of its group."""
        packed: dict[str, Any] = super().state_dict()
        if self.counter is not None:
            counts = {i: group.get(self.counter, 0) for group in packed["param_groups"] for i in group["params"]}
            entries = packed["state"].items()
            packed["state"] = {i: {"step": torch.tensor(float(counts.get(i, 0))), **each} for i, each in entries}
        return packed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state of this class, or of the torch.optim class with the same arithmetic.

        A group without a counter continues from the highest count of its parameters.
        """
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            counts = [self.state[param].pop("step", 0) for param in group["params"] if param in self.state]
            self._continue_from(group, int(max(map(float, counts), default=0)))

    def _continue_from(self, group: Group, count: int) -> None:
        """Set the counter of a loaded group that has no counter."""
        if self.counter is not None:
            group.setdefault(self.counter, count)
