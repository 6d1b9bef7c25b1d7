"""m, v = averages of g, g*g; w = w*(1-lr*wd) - lr*sqrt(1-beta2^t)/(1-beta1^t) * m/(sqrt(v) + eps)."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from perftool.fused.dispatch import register_native
from perftool.fused.optimizers.batches import Batch, Group
from perftool.fused.optimizers.kernels import register_stages
from perftool.fused.optimizers.moments import is_scaled, step_cast, step_scaled, store
from perftool.fused.optimizers.optimizer import NATIVE_MODULE, FusedOptimizer
from perftool.fused.optimizers.shards import is_spread

MomentsDtype = torch.dtype | tuple[torch.dtype, torch.dtype] | None

register_native("FusedAdamW", NATIVE_MODULE, "FusedAdamW")
register_stages("FusedAdamW", "adamw")

MOMENTS = ("exp_avg", "exp_avg_sq")
SCALES = ("exp_avg_scale", "exp_avg_sq_scale")
SPREAD_OBSTACLE = "FP8 moments have one scale per parameter; for sharded parameters use bfloat16 moments."


def moment_dtypes(moments_dtype: MomentsDtype) -> tuple[torch.dtype | None, torch.dtype | None]:
    """The dtypes of both moments, None for that of the parameter; ValueError if only one of them is FP8."""
    pair = moments_dtype if isinstance(moments_dtype, tuple) else (moments_dtype, moments_dtype)
    if len({dtype is not None and is_scaled(dtype) for dtype in pair}) > 1:
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
    kernel_name = "adamw"
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
        """As every fused optimizer; moments without scales are stored anew where they shall be FP8."""
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
        dtype = moment_dtypes(group["moments_dtype"])[0]
        return (*MOMENTS, *SCALES) if dtype is not None and is_scaled(dtype) else MOMENTS

    def _new_state(self, name: str, param: Tensor, group: Group) -> Tensor:
        if name in SCALES:
            if is_spread(param):
                raise NotImplementedError(SPREAD_OBSTACLE)
            return torch.ones(1, dtype=torch.float32, device=param.device)
        dtype = moment_dtypes(group["moments_dtype"])[MOMENTS.index(name)]
        return torch.zeros_like(param, dtype=dtype)

    def _update(self, group: Group, batch: Batch) -> None:
        beta1, beta2 = group["betas"]
        options = {
            "step": group["step"],
            "lr": float(group["lr"]),
            "beta1": beta1,
            "beta2": beta2,
            "eps": group["eps"],
            "weight_decay": group["weight_decay"],
            "bias_correction": group["bias_correction"],
            "grad_scale": self._divisor_on(batch),
        }
        adamw_step(self._kernel(batch), batch.params, batch.grads, batch.states, options)


def adamw_step(
    kernel: Any,
    params: list[Tensor],
    grads: list[Tensor],
    states: dict[str, list[Tensor]],
    options: dict[str, Any],
) -> None:
    """One step of the `adamw` kernel, with the moments in whatever dtype `states` holds them."""
    moments = states["exp_avg"], states["exp_avg_sq"]
    if "exp_avg_scale" in states:
        scales = states["exp_avg_scale"], states["exp_avg_sq_scale"]
        step_scaled(kernel, params, grads, *moments, scales, **options)
    elif moments[0][0].dtype == moments[1][0].dtype == params[0].dtype:  # those of a batch are alike
        kernel(params, grads, *moments, **options)
    else:
        step_cast(kernel, params, grads, *moments, **options)
