"""Simulates each of Gaudi's fused ops as one device kernel with the arithmetic of ``perftool.fused``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch

from perftool import fused
from perftool.fused.porting.bridge import registered_ops
from perftool.fused.porting.frameworks import BASE, placed
from perftool.sim.ops.op_work import tensors
from perftool.sim.patches import attribute
from perftool.sim.session.fused_region import fused_op, shapes
from perftool.sim.session.one_op import one_op
from perftool.sim.session.simulation import Simulation
from perftool.sim.stubs.frameworks import module

_OPTIMIZERS = {
    "FusedSGD": "optimizer_sgd",
    "FusedAdagrad": "optimizer_adagrad",
    "FusedAdamW": "optimizer_adamw",
    "FusedLamb": "optimizer_lamb",
    "FusedResourceApplyMomentum": "optimizer_resource_apply_momentum",
}
# Optimizers that update one group at a time, and copy each group's step size to the device.
_BY_GROUP = frozenset({"FusedAdamW"})
_STEP_SIZE = 4


def fused_modules(simulation: Simulation) -> list[ModuleType]:
    """Return the modules of ``habana_frameworks.torch.hpex``."""
    rotary = partial(one_op, simulation, "rotary_pos_embedding")
    helpers = [name for name in fused.__all__ if name.startswith("RotaryPosEmbeddingHelper")]
    ops = {
        **_fused_optimizers(simulation),
        "FusedLars": _lars(simulation),
        "FusedEMA": _ema(simulation),
        "FusedClipNorm": _fused_clip_norm(simulation),
        "FusedRMSNorm": _applied(one_op(simulation, "rms_norm", fused.FusedRMSNorm.apply)),
        "FusedSDPA": _fused_attention(simulation),
        "CTCLoss": _applied(one_op(simulation, "ctc_loss_custom", fused.CTCLoss.apply)),
        "CustomSoftmax": _applied(one_op(simulation, "custom_softmax", fused.CustomSoftmax.apply)),
        "RotaryPosEmbeddingMode": fused.RotaryPosEmbeddingMode,
        "apply_rotary_pos_emb": rotary(fused.apply_rotary_pos_emb),
        **{name: _applied(rotary(getattr(fused, name).apply)) for name in helpers},
    }
    made = [module(name, **members) for name, members in placed(ops).items()]
    return [*made, module(f"{BASE}.hpex.optimizers.distributed", FusedAdamW=_functional_adamw(simulation))]


def custom_ops(simulation: Simulation) -> ModuleType:
    """Return a module with the simulated ops of ``torch.ops.hpu``."""
    names = {"mixture_of_experts": "moe"}
    ops = {name: one_op(simulation, names.get(name, name), op) for name, op in registered_ops().items()}
    return module("torch.ops.hpu", **ops)


def _applied(function: Callable[..., Any]) -> type:
    """Create a class with ``function`` as its ``apply``, like an ``autograd.Function``."""
    return type("Function", (), {"apply": staticmethod(function)})


def _ema(simulation: Simulation) -> type:
    class FusedEMA(fused.FusedEMA):  # type: ignore[misc]
        """The moving average of a model, in one kernel."""

        def __init__(self, model: Any, decay: float = 0.9999, updates: int = 0) -> None:
            with simulation.plain_tensors():
                super().__init__(model, decay, updates)

        def update(self, model: Any) -> None:
            """Update the average with the current weights."""
            with fused_op(simulation, "ema", shapes(tuple(model.parameters()))):
                super().update(model)

    return FusedEMA


def _lars(simulation: Simulation) -> type:
    class FusedLars(fused.FusedLars):  # type: ignore[misc]
        """Wraps another optimizer, and scales the gradients by a rate per layer in an additional kernel."""

        def __init__(self, optimizer: Any, skip_mask: Any, eeta: float = 0.001, eps: float = 1e-8) -> None:
            with simulation.plain_tensors():
                super().__init__(optimizer, skip_mask, eeta, eps)

        def step(self, closure: Callable[[], Any] | None = None) -> Any:
            """Scale the gradients, then step the wrapped optimizer."""
            params = [each for group in self.param_groups for each in group["params"] if each.grad is not None]
            simulation.machine.mark_step()
            with fused_op(simulation, "optimizer_lars", shapes(params)):
                return super().step(*(() if closure is None else (closure,)))

    return FusedLars


def _functional_adamw(simulation: Simulation) -> type:
    class FusedAdamW(fused.distributed.FusedAdamW):  # type: ignore[misc]
        """The functional optimizer, whose ``step`` accepts the gradients."""

        def __init__(self, params: list[torch.Tensor], *args: Any, **options: Any) -> None:
            with simulation.plain_tensors():
                super().__init__(params, *args, **options)

        def step(self, gradients: list[torch.Tensor | None]) -> None:
            """Update the parameters with ``gradients``."""
            simulation.machine.mark_step()
            params = self.param_group["params"]
            with fused_op(simulation, "optimizer_adamw", shapes(params)) as touched:
                super().step(gradients)
                states = tensors([dict(self.state.get(each, {})) for each in params])
                for each in states:
                    simulation.placement.put(each)
                touched.include((*params, *states), written=True)
            simulation.machine.mark_step()

    return FusedAdamW


def _fused_optimizers(simulation: Simulation) -> dict[str, type]:
    return {name: _optimizer(simulation, name, kernel) for name, kernel in _OPTIMIZERS.items()}


def _optimizer(simulation: Simulation, name: str, kernel: str) -> type:
    base = getattr(fused, name)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it becomes the method of that name
        with simulation.plain_tensors():
            base.__init__(self, *args, **kwargs)

    def step(self: Any, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters in one kernel, or in one per group, between two cuts of the lazy graph."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        whole = self.param_groups
        for groups in [[group] for group in whole] if name in _BY_GROUP else [whole]:
            simulation.machine.mark_step()
            if name in _BY_GROUP:
                simulation.machine.copy_in(_STEP_SIZE, pinned=False, non_blocking=False)
            with attribute(self, "param_groups", groups):
                update(self)
            simulation.machine.mark_step()
        return loss

    def update(self: Any) -> None:
        params = [each for group in self.param_groups for each in group["params"] if each.grad is not None]
        with fused_op(simulation, kernel, shapes(params)) as touched:
            base.step(self)
            states = tensors([dict(self.state[each]) for each in params])
            for each in states:
                simulation.placement.put(each)
            # The first step also creates the state, but the simulated kernel is the same as in later steps.
            touched.include((*params, *states), written=True)

    members = {"__init__": __init__, "step": step, "__module__": "habana_frameworks.torch.hpex.optimizers"}
    return type(name, (base,), members)


def _fused_clip_norm(simulation: Simulation) -> type:
    class FusedClipNorm:
        """Clips the norm of all gradients in one kernel."""

        def __init__(self, parameters: Any, max_norm: float) -> None:
            with simulation.plain_tensors():
                self._plain = fused.FusedClipNorm(parameters, max_norm)

        def clip_norm(self, parameters: Any) -> torch.Tensor:
            """Scale the gradients in place and return their original norm, of shape [1]."""
            simulation.machine.mark_step()
            parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            with fused_op(simulation, "fused_norm", shapes(parameters)):
                norm: torch.Tensor = self._plain.clip_norm(parameters)
            simulation.placement.put(norm)
            simulation.machine.mark_step()
            return norm

    return FusedClipNorm


def _fused_attention(simulation: Simulation) -> type:
    """Return ``FusedSDPA``, an ``autograd.Function`` with Gaudi's positional arguments."""

    class FusedSDPA(torch.autograd.Function):
        """Attention as one kernel, with another for its backward."""

        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any, *options: Any) -> Any:
            """Run ``perftool.fused.FusedSDPA`` as one simulated kernel."""
            ctx.save_for_backward(q, k, v)
            ctx.options = options
            with fused_op(simulation, "sdpa_recomp_fwd", (shapes((q, k, v)), _plain(options))):
                outputs = fused.FusedSDPA.apply(q, k, v, *options)
            for each in tensors(outputs):
                simulation.placement.put(each)
            return outputs

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            """Return the gradients of q, k and v; the probabilities are recomputed."""
            key = (shapes(ctx.saved_tensors), _plain(ctx.options))
            with fused_op(simulation, "sdpa_recomp_bwd", key), torch.enable_grad():
                inputs = [each.detach().requires_grad_() for each in ctx.saved_tensors]
                output = tensors(fused.FusedSDPA.apply(*inputs, *ctx.options))[0]
                found = torch.autograd.grad(output, inputs, grads[0])
            for each in found:
                simulation.placement.put(each)
            return (*found, *(None for _ in ctx.options))

    return FusedSDPA


def _plain(options: Any) -> tuple[Any, ...]:
    return tuple(each for each in options if isinstance(each, (bool, int, float, str, type(None))))
