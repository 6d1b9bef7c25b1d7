"""Optimizers, averages and clipping: tensor by tensor, with our fused ops, and with torch's fastest option."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.ema import ListEMA, PlainEMA
from perftool.bench.workloads.optimizers import MakeOptimizer, optimizer_form, weights_of
from perftool.bench.workloads.plain_optimizers import Lamb, Lars
from perftool.bench.workloads.weights import layered_network, training_step
from perftool.fused import (
    FusedAdagrad,
    FusedAdamW,
    FusedClipNorm,
    FusedEMA,
    FusedLamb,
    FusedLars,
    FusedResourceApplyMomentum,
    FusedSGD,
    distributed,
)

Ways = dict[FormName, tuple[str, MakeOptimizer]]

_DECAY = 0.01
# Far above the norm of the gradients, so that nothing is clipped.
_MAX_GRAD_NORM = 1e3
# LARS overwrites the gradients, and all runs use the same gradients. These two values keep the gradients as large as
# the weights. Otherwise they would become denormal numbers, which are slow.
_RATE = _EETA = 1.0


def _with_torch_forms(torch_class: Any, our_class: Any, **options: Any) -> Ways:
    """Return the class of torch.optim with its default loop over tensors, our class, and torch's class with
    fused=True.
    """
    name = f"torch.optim.{torch_class.__name__}"
    return {
        "naive": (name, partial(torch_class, **options)),
        "advised": (our_class.__name__, partial(our_class, **options)),
        "torch": (f"{name}(fused=True)", partial(torch_class, fused=True, **options)),
    }


def _lars(params: Iterable[nn.Parameter]) -> FusedLars:
    weights = list(params)
    base = FusedResourceApplyMomentum(weights, lr=_RATE, momentum=0.9, weight_decay=_DECAY)
    return FusedLars(base, [int(weight.dim() > 1) for weight in weights], eeta=_EETA)


_OPTIMIZERS: dict[str, tuple[str, Ways]] = {
    # PyTorch adds epsilon to the root after the bias correction, and FusedAdamW adds it before. With epsilon 0, only
    # rounding differs.
    "fused_adamw": ("AdamW", _with_torch_forms(torch.optim.AdamW, FusedAdamW, lr=1e-3, eps=0.0, weight_decay=_DECAY)),
    "fused_sgd": ("SGD", _with_torch_forms(torch.optim.SGD, FusedSGD, lr=1e-3, momentum=0.9, weight_decay=_DECAY)),
    "fused_adagrad": ("Adagrad", _with_torch_forms(torch.optim.Adagrad, FusedAdagrad, lr=1e-3, weight_decay=_DECAY)),
    "fused_lamb": (
        "LAMB",
        {
            "naive": ("a loop over tensors", partial(Lamb, max_grad_norm=_MAX_GRAD_NORM)),
            "advised": ("FusedLamb", partial(FusedLamb, max_grad_norm=_MAX_GRAD_NORM)),
        },
    ),
    "fused_lars": (
        "LARS",
        {
            "naive": ("a loop over tensors", partial(Lars, lr=_RATE, eeta=_EETA, weight_decay=_DECAY)),
            "advised": ("FusedLars", _lars),
        },
    ),
}


def _optimizer(ways: Ways, form: FormName, setting: Setting) -> Form:
    title, make = ways[form]
    return optimizer_form(title, make, setting)


def _average(form: FormName, setting: Setting) -> Form:
    """Return a loop over the model's tensors, FusedEMA, or torch's foreach ops."""
    ways: dict[FormName, tuple[type[PlainEMA] | type[FusedEMA], str]] = {
        "naive": (PlainEMA, "mul_ and add_ for each tensor"),
        "advised": (FusedEMA, "FusedEMA"),
        "torch": (ListEMA, "torch._foreach_lerp_"),
    }
    follow, title = ways[form]
    model, trained = nn.ParameterList(weights_of(setting)), layered_network(setting)
    average, followed = follow(model, 0.999), follow(trained, 0.999)
    learn = training_step(trained, FusedSGD(trained.parameters(), lr=1e-3), setting)

    def step() -> None:
        learn()
        followed.update(trained)

    return Form(title, lambda: average.update(model), lambda: list(average.ema.parameters()), step)


def _clip(form: FormName, setting: Setting) -> Form:
    """clip_grad_norm_ with its defaults, which are also the fastest options, or FusedClipNorm.

    All runs clip the same gradients, so the limit is lowered slightly for each run. Otherwise only the first run would
    clip.
    """
    params = weights_of(setting)
    gradients = [param.grad for param in params if param.grad is not None]
    limit = float(nn.utils.get_total_norm(gradients))
    clip = FusedClipNorm(params, 1.0)

    def run() -> None:
        nonlocal limit
        limit *= 0.999
        if form == "naive":
            nn.utils.clip_grad_norm_(params, limit)
        else:
            clip.max_norm_t = torch.tensor([limit])
            clip.clip_norm(params)

    return Form("clip_grad_norm_" if form == "naive" else "FusedClipNorm", run, lambda: gradients)


def _functional(form: FormName, setting: Setting) -> Form:
    """Return the functional AdamW of torch, with its defaults or its fused kernel, or distributed.FusedAdamW."""
    weights = weights_of(setting)
    params: list[torch.Tensor] = list(weights)
    options: dict[str, Any] = {"lr": 1e-3, "eps": 0.0, "weight_decay": _DECAY}
    step: Callable[[list[torch.Tensor | None]], object]
    if form == "advised":
        title, step = "distributed.FusedAdamW", distributed.FusedAdamW(params, **options).step
    else:
        # Both the import and the class warn that TorchScript is deprecated.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.distributed.optim.functional_adamw import _FunctionalAdamW

            step = _FunctionalAdamW(params, fused=form == "torch", **options).step
        title = "_FunctionalAdamW" if form == "naive" else "_FunctionalAdamW(fused=True)"
    return Form(title, lambda: step([weight.grad for weight in weights]), lambda: params)


def _moments(form: FormName, setting: Setting) -> Form:
    """Return a new FusedAdamW and its first step, which creates its state."""
    weights = weights_of(setting)
    dtype = None if form == "naive" else torch.bfloat16
    kept: list[FusedAdamW] = []

    def run() -> None:
        # The state of the previous run is freed before this run's state is created.
        kept.clear()
        kept.append(FusedAdamW(weights, lr=1e-3, moments_dtype=dtype))
        kept[0].step()

    title = "FusedAdamW" if form == "naive" else "FusedAdamW(moments_dtype=torch.bfloat16)"
    return Form(title, run, lambda: weights, close=kept.clear)


def _row(
    name: str, rules: tuple[str, ...], summary: str, build: Callable[[FormName, Setting], Form], **fields: Any
) -> Benchmark:
    fields = {"tolerance": 1e-5, "tuned_heap": True, **fields}
    return Benchmark(name, rules, summary, build, sizes=("small", "large"), traced_size="small", **fields)


BENCHMARKS = {
    each.name: each
    for each in (
        *(
            _row(
                name,
                ("FUS101",),
                f"{op} over all tensors together instead of one by one",
                partial(_optimizer, ways),
                torch_best="torch" in ways,
            )
            for name, (op, ways) in _OPTIMIZERS.items()
        ),
        _row(
            "fused_ema",
            ("FUS105",),
            "A moving average over all weights together instead of one by one",
            _average,
            torch_best=True,
        ),
        # By default, torch loops over tensors only on a Gaudi, so the rule is tested on simulated traces.
        _row(
            "fused_clip_norm",
            ("FUS102",),
            "The norm of all gradients together instead of one by one",
            _clip,
            script="fused_clip_norm.py",
        ),
        _row(
            "functional_adamw",
            (),
            "The functional AdamW over all tensors together instead of one by one",
            _functional,
            torch_best=True,
        ),
        _row(
            "adamw_moments",
            (),
            "Moments in bfloat16 instead of float32",
            _moments,
            tolerance=0.01,
            quantity="memory",
            tuned_heap=False,
        ),
    )
}
