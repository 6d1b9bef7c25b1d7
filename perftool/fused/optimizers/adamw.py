"""AdamW: m, v = averages of g, g*g; w = w*(1-lr*wd) - lr*sqrt(1-beta2^t)/(1-beta1^t) * m/(sqrt(v) + eps).

If moments and parameters have different dtypes, each piece is cast, updated and cast back. FP8 moments are multiplied
by a power of two per tensor before they are stored, so that their largest element is near the format's largest number.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from perftool.fused.optimizers.optimizer import Batch, FusedOptimizer, Group, Kernel
from perftool.fused.optimizers.tensors import are_ordinary, is_dense, is_sharded, linear

MomentsDtype = torch.dtype | tuple[torch.dtype, torch.dtype] | None
Tensors = list[Tensor]

MOMENTS = ("exp_avg", "exp_avg_sq")
SCALES = ("exp_avg_scale", "exp_avg_sq_scale")
LARGEST = {torch.float8_e4m3fn: 240.0, torch.float8_e5m2: 57344.0}
"""The largest number of each scaled format. For E4M3, it is 240 on a Gaudi and 448 on other devices."""
PIECE = 1024 * 1024
"""The number of elements to cast at a time, which limits the memory for the casts."""


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
    """Call PyTorch's kernel once, with the bias corrections folded into the learning rate.

    The kernel gets an infinite step count, for which its own bias correction is 1, so it adds eps to the uncorrected
    root.
    """
    correction = math.sqrt(1 - beta2**step) / (1 - beta1**step) if bias_correction else 1.0
    # Create the values on the device, because copying them from the host would wait for the device.
    steps = [torch.full((), math.inf, dtype=torch.float32, device=params[0].device)] * len(params)
    rates: dict[str, Any] = {"lr": lr * correction, "weight_decay": weight_decay / correction, "eps": eps}
    rates.update(beta1=beta1, beta2=beta2, amsgrad=False, maximize=False)
    torch._fused_adamw_(params, grads, exp_avgs, exp_avg_sqs, [], steps, **rates)


@torch.no_grad()
def adamw_(
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
    weight_decay: float = 0.0,
    bias_correction: bool = True,
) -> None:
    """Apply one step of AdamW in place, one parameter after the other; `eps` is added to the root of `v` before the
    bias correction."""
    correction = math.sqrt(1 - beta2**step) / (1 - beta1**step) if bias_correction else 1.0
    for param, grad, m, v in zip(params, grads, exp_avgs, exp_avg_sqs, strict=True):
        m.mul_(beta1).add_(grad, alpha=1 - beta1)
        v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        param.mul_(1 - lr * weight_decay).addcdiv_(m, v.sqrt().add_(eps), value=-lr * correction)


_PROBE = {"step": 3, "lr": 0.5, "beta1": 0.5, "beta2": 0.75, "eps": 0.5, "weight_decay": 0.5}
ADAMW = Kernel(fused_adamw_, adamw_, states=2, probe=_PROBE)


def is_scaled(dtype: torch.dtype | None) -> bool:
    """Whether moments of this dtype are stored with a scale."""
    return dtype in LARGEST


def moment_dtypes(moments_dtype: MomentsDtype) -> tuple[torch.dtype | None, torch.dtype | None]:
    """Return the dtypes of both moments; None stands for the parameter's dtype. Raise ValueError if only one is FP8."""
    pair = moments_dtype if isinstance(moments_dtype, tuple) else (moments_dtype, moments_dtype)
    if len(set(map(is_scaled, pair))) > 1:
        raise ValueError("expects both or neither of the moments to be FP8")
    return pair


def check_lr_and_eps(lr: float, eps: float) -> None:
    """Raise ValueError for a negative learning rate or epsilon, with the message of Gaudi's class."""
    if lr < 0.0:
        raise ValueError(f"Invalid learning rate: {lr} - should be >= 0.0")
    if eps < 0.0:
        raise ValueError(f"Invalid epsilon value: {eps} - should be >= 0.0")


class FusedAdamW(FusedOptimizer):
    """AdamW as in Hugging Face: eps is added to the root before bias correction, and decay applies to the old weights.

    torch.optim.AdamW adds eps after the correction, so the first steps differ where gradients are small. All parameters
    of a group share the counter `group["step"]`, even if some get their first gradient later. Rates are kept in double
    precision; Gaudi rounds the step size to the dtype of the parameter.
    """

    op = "FusedAdamW"
    kernel = ADAMW
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
    ) -> None:
        """`moments_dtype` is one dtype or a pair; with bfloat16, the state is half as large as with float32; with FP8,
        it is a quarter as large."""
        check_lr_and_eps(lr, eps)
        for beta in betas:
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter: {beta} - should be in [0.0, 1.0[")
        moment_dtypes(moments_dtype)
        options = {"weight_decay": weight_decay, "bias_correction": bias_correction, "moments_dtype": moments_dtype}
        super().__init__(params, lr=lr, betas=betas, eps=eps, **options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        for group in state["param_groups"]:
            if "correct_bias" in group:
                warnings.warn("correct_bias of the loaded state is read as bias_correction", stacklevel=2)
                group.setdefault("bias_correction", group.pop("correct_bias"))
        super().__setstate__(state)

    def _states(self, group: Group) -> dict[str, torch.dtype | None]:
        dtypes = moment_dtypes(group["moments_dtype"])
        # Scales are created first, because creating a scale converts the moments of a loaded state.
        scales = dict.fromkeys(SCALES, torch.float32) if is_scaled(dtypes[0]) else {}
        return {**scales, **dict(zip(MOMENTS, dtypes, strict=True))}

    def _fits(self, present: Tensor, name: str, param: Tensor, group: Group) -> bool:
        return name in SCALES or super()._fits(present, name, param, group)

    def _new_state(self, name: str, param: Tensor, group: Group) -> Tensor:
        if name not in SCALES:
            return super()._new_state(name, param, group)
        scale, moment = new_scale(param), MOMENTS[SCALES.index(name)]
        values = self.state[param].get(moment)
        if values is not None:
            narrow = self.state[param][moment] = self._new_state(moment, param, group)
            store(values, narrow, scale)
        return scale

    def _update(self, group: Group, batch: Batch) -> None:
        beta1, beta2 = group["betas"]
        names = ("step", "eps", "weight_decay", "bias_correction")
        options = {"lr": float(group["lr"]), "beta1": beta1, "beta2": beta2, **{name: group[name] for name in names}}
        adamw_step(self.kernel.form(self.op, batch), batch, **options)


def adamw_step(form: Callable[..., None], batch: Batch, **options: Any) -> None:
    """Apply one step with a form of the kernel, casting moments whose dtype differs from the parameters'."""
    if {each[0].dtype for each in batch.states.values()} == {batch.params[0].dtype}:
        form(batch.params, batch.grads, *batch.states.values(), **options)
        return
    for param, grad, *kept in zip(batch.params, batch.grads, *batch.states.values(), strict=True):
        *scales, first, second = kept
        # Compute in the promoted dtype of the parameter and the first moment; with FP8 moments, in at least float32.
        dtype = torch.promote_types(param.dtype, torch.float32 if scales else first.dtype)
        whole = (param, grad, first, second)
        # A scale depends on the largest element, so scaled moments are not split.
        for views in [whole] if scales else _pieces(*whole):
            casts = [view.to(dtype) for view in views]
            for cast, scale in zip(casts[2:], scales, strict=bool(scales)):
                cast.div_(scale.view(()))
            form(*([cast] for cast in casts), **options)
            written = [(views[0], casts[0], None), *zip(views[2:], casts[2:], scales or (None, None), strict=True)]
            for view, cast, scale in written:
                if scale is not None:
                    store(cast, view, scale)
                elif view is not cast:
                    view.copy_(cast)


def _pieces(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Split tensors that share a dense layout into views of at most PIECE elements; leave other tensors whole."""
    first = tensors[0]
    if are_ordinary(tensors) and is_dense(first) and {each.stride() for each in tensors} == {first.stride()}:
        return list(zip(*(torch.split(linear(each), PIECE) for each in tensors), strict=True))
    return [tensors]


def new_scale(param: Tensor) -> Tensor:
    """Create the initial scale of an FP8 moment. Raise NotImplementedError for a sharded parameter."""
    if is_sharded(param):
        raise NotImplementedError(
            "FP8 moments have one scale per parameter; for sharded parameters use bfloat16 moments."
        )
    return torch.ones(1, dtype=torch.float32, device=param.device)


def store(values: Tensor, moment: Tensor, scale: Tensor) -> None:
    """Write `values` into an FP8 moment with a new scale 2^floor(log2(LARGEST/amax)).

    The old scale is kept if amax is 0, infinite or NaN.
    """
    if values.numel():
        largest = values.abs().amax().float()
        fresh = torch.exp2(torch.floor(torch.log2(LARGEST[moment.dtype] / largest)))
        scale.copy_(torch.where(torch.isfinite(fresh) & (fresh > 0), fresh, scale))
    moment.copy_(values * scale.view(()))
