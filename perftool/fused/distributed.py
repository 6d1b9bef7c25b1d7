"""The functional FusedAdamW, whose `step` accepts the gradients, as torch.distributed.optim passes them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from perftool.fused.dispatch import choose, native
from perftool.fused.optimizers import adamw
from perftool.fused.optimizers.optimizer import batches, refuse_negative, register_optimizer

NATIVE_MODULE = "hpex.optimizers.distributed"
OP = "distributed.FusedAdamW"

register_optimizer(OP, adamw.ADAMW, NATIVE_MODULE)


class FusedAdamW:
    """AdamW as in `perftool.fused.FusedAdamW`, always with bias correction. It is not a torch.optim.Optimizer.

    `state[param]` contains `step` (a CPU tensor), `exp_avg`, `exp_avg_sq` and, for FP8 moments, their scales. The
    `step` of the first parameter with a gradient is used for all parameters.
    """

    def __init__(
        self,
        params: list[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        _allow_empty_param_list: bool = False,
        moments_dtype: adamw.MomentsDtype = None,
    ) -> None:
        """Raise ValueError for arguments out of range, and for an empty list of parameters unless it is allowed."""
        refuse_negative({"learning rate": lr, "epsilon value": eps})
        for index, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
        refuse_negative({"weight_decay value": weight_decay})
        adamw.moment_dtypes(moments_dtype)
        if not params and not _allow_empty_param_list:
            raise ValueError("optimizer got an empty parameter list")
        beta1, beta2 = betas
        self.defaults = {"lr": lr, "eps": eps, "beta1": beta1, "beta2": beta2, "weight_decay": weight_decay}
        self.amsgrad = self.maximize = False
        self.moments_dtype = moments_dtype
        self.param_group: dict[str, list[Tensor]] = {"params": params}
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        self._native: Any = None

    def step_param(self, param: Tensor, grad: Tensor | None) -> None:
        """Raise RuntimeError, as on a Gaudi."""
        raise RuntimeError("This AdamW optimizer does not support step_param() as of now")

    @torch.no_grad()
    def step(self, gradients: list[Tensor | None]) -> None:
        """Step every parameter that has a gradient; `gradients` has one entry per parameter, which is None if there is
        no gradient.

        Raise ValueError for a wrong number of entries, and IndexError if all are None.
        """
        params = self.param_group["params"]
        if len(params) != len(gradients):
            raise ValueError(
                "the gradients passed in does not equal to the size of the parameters!"
                f"Params length: {len(params)}. Gradients length: {len(gradients)}"
            )
        pairs = [(param, grad) for param, grad in zip(params, gradients, strict=True) if grad is not None]
        if not pairs:
            raise IndexError("a step needs at least one gradient, but all gradients are None")
        if choose(OP, pairs[0][0].device.type) == "habana":
            self._native_step(gradients)
            return
        states = [self._state_of(param) for param, _ in pairs]
        for state in states:
            state["step"] += 1
        columns = {name: [state[name] for state in states] for name in states[0] if name != "step"}
        options = {**self.defaults, "step": int(states[0]["step"]), "bias_correction": True}
        params, grads = map(list, zip(*pairs, strict=True))
        for batch in batches(params, grads, columns):
            adamw.adamw_step(adamw.ADAMW.form(OP, batch), batch, **options)

    def _state_of(self, param: Tensor) -> dict[str, Tensor]:
        if param not in self.state:
            state, dtypes = {"step": torch.tensor(0.0)}, adamw.moment_dtypes(self.moments_dtype)
            if adamw.is_scaled(dtypes[0]):
                state.update({scale: adamw.new_scale(param) for scale in adamw.SCALES})
            for name, dtype in zip(adamw.MOMENTS, dtypes, strict=True):
                state[name] = torch.zeros_like(param, dtype=dtype, requires_grad=False)
            self.state[param] = state
        return self.state[param]

    def _native_step(self, gradients: list[Tensor | None]) -> None:
        if self._native is None:
            options: dict[str, Any] = {name: self.defaults[name] for name in ("lr", "eps", "weight_decay")}
            options.update(betas=(self.defaults["beta1"], self.defaults["beta2"]), moments_dtype=self.moments_dtype)
            self._native = native(NATIVE_MODULE, "FusedAdamW")(self.param_group["params"], **options)
            self._native.state = self.state
        self._native.step(gradients)
