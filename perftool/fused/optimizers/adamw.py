"""m, v = averages of g, g*g; w = w*(1-lr*wd) - lr*sqrt(1-beta2^t)/(1-beta1^t) * m/(sqrt(v) + eps).

Moments may have another dtype than the parameters: then each piece is cast, updated and cast back in turn. FP8 moments
are stored multiplied by a power of two per tensor, which brings their largest element near the format's largest number.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from perftool.fused.dispatch import register_native
from perftool.fused.optimizers.kernels import Kernel, register_kernel
from perftool.fused.optimizers.optimizer import NATIVE_MODULE, Batch, FusedOptimizer, Group
from perftool.fused.optimizers.tensors import conform, is_dense, is_ordinary, is_sharded, linear
from perftool.fused.reference import adamw_

MomentsDtype = torch.dtype | tuple[torch.dtype, torch.dtype] | None
Tensors = list[Tensor]

MOMENTS = ("exp_avg", "exp_avg_sq")
SCALES = ("exp_avg_scale", "exp_avg_sq_scale")
SHARDED_OBSTACLE = "FP8 moments have one scale per parameter; for sharded parameters use bfloat16 moments."
LARGEST = {torch.float8_e4m3fn: 240.0, torch.float8_e5m2: 57344.0}
"""Largest number of each scaled format; Gaudi's E4M3 ends at 240, other devices' at 448."""
PIECE = 1024 * 1024
"""Elements that are cast at a time, which bounds the memory for the casts."""


def fused_adamw_(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    *,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    bias_correction: bool = True,
) -> None:
    """One call of PyTorch's kernel, with the corrections in the rate.

    The kernel gets an infinite step count, whose bias correction is 1, so it adds eps to the plain root.
    """
    correction = math.sqrt(1 - beta2**step) / (1 - beta1**step) if bias_correction else 1.0
    # A fill on the device itself: a copy from the host would make the step wait for the device.
    steps = [torch.full((), math.inf, dtype=torch.float32, device=params[0].device)] * len(params)
    rates: dict[str, Any] = {
        "lr": lr * correction,
        "weight_decay": weight_decay / correction,
        "beta1": beta1,
        "beta2": beta2,
    }
    torch._fused_adamw_(
        params, grads, exp_avgs, exp_avg_sqs, [], steps, eps=eps, amsgrad=False, maximize=False, **rates
    )


ADAMW = Kernel(
    fused_adamw_,
    adamw_,
    states=2,
    probe={"step": 3, "lr": 0.5, "beta1": 0.5, "beta2": 0.75, "eps": 0.5, "weight_decay": 0.5},
)

register_native("FusedAdamW", NATIVE_MODULE, "FusedAdamW")
register_kernel("FusedAdamW", ADAMW)


def is_scaled(dtype: torch.dtype | None) -> bool:
    """Whether moments of this dtype have a scale."""
    return dtype in LARGEST


def moment_dtypes(moments_dtype: MomentsDtype) -> tuple[torch.dtype | None, torch.dtype | None]:
    """The dtypes of both moments, None for that of the parameter; ValueError if only one of them is FP8."""
    pair = moments_dtype if isinstance(moments_dtype, tuple) else (moments_dtype, moments_dtype)
    if len(set(map(is_scaled, pair))) > 1:
        raise ValueError("expects both or neither of the moments to be FP8")
    return pair


def check_lr_and_eps(lr: float, eps: float) -> None:
    """ValueError for a negative learning rate or epsilon, in the words of Gaudi's class."""
    if lr < 0.0:
        raise ValueError(f"Invalid learning rate: {lr} - should be >= 0.0")
    if eps < 0.0:
        raise ValueError(f"Invalid epsilon value: {eps} - should be >= 0.0")


class FusedAdamW(FusedOptimizer):
    """AdamW in the form of Hugging Face: eps is added to the plain root, decay acts on the old weights.

    torch.optim.AdamW adds eps to the corrected root, so the first steps differ where gradients are small. All
    parameters of a group share the counter `group["step"]`, also one whose gradients begin later. Rates are
    kept in double precision; Gaudi rounds the step size to the dtype of the parameter.
    """

    op = "FusedAdamW"
    kernel = ADAMW
    state_names = MOMENTS
    sparse_error = "Adam does not support sparse gradients, please consider SparseAdam"

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        bias_correction: bool = True,
        moments_dtype: MomentsDtype = None,
        *,
        backend: str | None = None,
    ) -> None:
        """`moments_dtype`: one dtype or a pair, bfloat16 to halve the state, FP8 for a quarter of it."""
        check_lr_and_eps(lr, eps)
        for beta in betas:
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter: {beta} - should be in [0.0, 1.0[")
        moment_dtypes(moments_dtype)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "bias_correction": bias_correction,
            "moments_dtype": moments_dtype,
        }
        super().__init__(params, defaults, backend=backend)

    def __setstate__(self, state: dict[str, Any]) -> None:
        for group in state["param_groups"]:
            if "correct_bias" in group:
                warnings.warn("correct_bias of the loaded state is taken as bias_correction", stacklevel=2)
                group.setdefault("bias_correction", group.pop("correct_bias"))
        super().__setstate__(state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As for every fused optimizer; moments without scales are converted if they should be FP8."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            for param in group["params"]:
                for name, scale in zip(MOMENTS, SCALES, strict=True):
                    if scale in self._state_names(group) and scale not in self.state.get(param, {scale: 1}):
                        self._scale(param, name, scale, group)

    def _scale(self, param: Tensor, name: str, scale: str, group: Group) -> None:
        entry = self.state[param]
        values, entry[scale] = entry[name], self._new_state(scale, param, group)
        entry[name] = self._new_state(name, param, group)
        store(values, entry[name], entry[scale])

    def _state_names(self, group: Group) -> tuple[str, ...]:
        return (*MOMENTS, *SCALES) if is_scaled(moment_dtypes(group["moments_dtype"])[0]) else MOMENTS

    def _state_dtype(self, name: str, group: Group) -> torch.dtype | None:
        return torch.float32 if name in SCALES else moment_dtypes(group["moments_dtype"])[MOMENTS.index(name)]

    def _fits(self, present: Tensor, name: str, param: Tensor, group: Group) -> bool:
        return name in SCALES or super()._fits(present, name, param, group)

    def _new_state(self, name: str, param: Tensor, group: Group) -> Tensor:
        if name not in SCALES:
            return super()._new_state(name, param, group)
        if is_sharded(param):
            raise NotImplementedError(SHARDED_OBSTACLE)
        return torch.ones(1, dtype=torch.float32, device=param.device)

    def _update(self, group: Group, batch: Batch) -> None:
        beta1, beta2 = group["betas"]
        names = ("step", "eps", "weight_decay", "bias_correction")
        options = {"lr": float(group["lr"]), "beta1": beta1, "beta2": beta2, **{name: group[name] for name in names}}
        adamw_step(self._is_fast(batch), batch.params, batch.grads, batch.states, **options)


def adamw_step(fast: bool, params: Tensors, grads: Tensors, states: dict[str, Tensors], **options: Any) -> None:
    """One step with the moments in the dtype of `states`; `fast` if PyTorch's kernel accepts the tensors."""
    kernel = ADAMW.fused if fast else ADAMW.plain
    if fast:
        grads = [conform(grad, param) for grad, param in zip(grads, params, strict=True)]
    if {each[0].dtype for each in states.values()} == {params[0].dtype}:
        kernel(params, grads, *states.values(), **options)
        return
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        first, second, *scales = (tensors[i] for tensors in states.values())
        # The arithmetic uses the promoted dtype of weight and first moment, at least float32 for FP8.
        dtype = torch.promote_types(param.dtype, torch.float32 if scales else first.dtype)
        if scales:
            _step_scaled(kernel, dtype, param, grad, (first, second), scales, **options)
        else:
            _step_cast(kernel, dtype, param, grad, (first, second), **options)


def _step_cast(
    kernel: Callable[..., None],
    dtype: torch.dtype,
    param: Tensor,
    grad: Tensor,
    moments: tuple[Tensor, Tensor],
    **options: Any,
) -> None:
    for views in _pieces(param, grad, *moments):
        casts = [view.to(dtype) for view in views]
        kernel(*([cast] for cast in casts), **options)
        for view, cast in zip(views, casts, strict=True):
            if view is not cast and view is not views[1]:
                view.copy_(cast)


def _pieces(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Corresponding views of at most PIECE elements if all share one dense layout, else the whole tensors."""
    first = tensors[0]
    if all(map(is_ordinary, tensors)) and is_dense(first) and {each.stride() for each in tensors} == {first.stride()}:
        return list(zip(*(torch.split(linear(each), PIECE) for each in tensors), strict=True))
    return [tensors]


def _step_scaled(
    kernel: Callable[..., None],
    dtype: torch.dtype,
    param: Tensor,
    grad: Tensor,
    moments: tuple[Tensor, Tensor],
    scales: Tensors,
    **options: Any,
) -> None:
    """The scales depend on the largest elements, so whole moments are needed."""
    weight, gradient = param.to(dtype), grad.to(dtype)
    wide = [m.to(dtype).div_(scale.view(())) for m, scale in zip(moments, scales, strict=True)]
    kernel([weight], [gradient], *([each] for each in wide), **options)
    if weight is not param:
        param.copy_(weight)
    for values, moment, scale in zip(wide, moments, scales, strict=True):
        store(values, moment, scale)


def store(values: Tensor, moment: Tensor, scale: Tensor) -> None:
    """Write `values` into an FP8 moment with a new scale 2^floor(log2(LARGEST/amax)).

    The old scale stays where that is not a positive number: for all zeros, and for infinities and NaN.
    """
    if values.numel():
        largest = values.abs().amax().float()
        fresh = torch.exp2(torch.floor(torch.log2(LARGEST[moment.dtype] / largest)))
        scale.copy_(torch.where(torch.isfinite(fresh) & (fresh > 0), fresh, scale))
    moment.copy_(values * scale.view(()))
