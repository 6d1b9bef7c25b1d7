"""The functional AdamW of torch.distributed.optim, whose step takes the gradients, against Gaudi's."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.optimizers import SIZES, weights_of
from perftool.fused import distributed

_OPTIONS: dict[str, Any] = {"lr": 1e-3, "eps": 0.0, "weight_decay": 0.01}


def build(form: FormName, setting: Setting) -> Form:
    """torch's functional optimizer with its defaults or its fused kernel, or distributed.FusedAdamW."""
    weights = weights_of(setting)
    params: list[torch.Tensor] = list(weights)
    gradients = [weight.grad for weight in weights]
    if form == "advised":
        fused = distributed.FusedAdamW(params, **_OPTIONS)
        return Form("distributed.FusedAdamW", lambda: fused.step(gradients), lambda: params)
    # Both the import and the class say that TorchScript is deprecated.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.distributed.optim.functional_adamw import _FunctionalAdamW

        own = _FunctionalAdamW(params, fused=form == "torch", **_OPTIONS)
    title = "_FunctionalAdamW" if form == "naive" else "_FunctionalAdamW(fused=True)"
    return Form(title, lambda: own.step(gradients), lambda: params)


BENCHMARK = Benchmark(
    name="functional_adamw",
    rules=(),
    summary="the functional AdamW over all tensors at once instead of one by one",
    build=build,
    sizes=SIZES,
    traced_size="small",
    tolerance=1e-5,
    torch_best=True,
)
