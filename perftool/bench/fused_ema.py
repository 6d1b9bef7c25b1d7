"""A moving average of the weights: tensor by tensor against all at once."""

from __future__ import annotations

import torch
from torch import nn

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.ema import ListEMA, PlainEMA
from perftool.bench.workloads.optimizers import SIZES, weights_of
from perftool.bench.workloads.weights import layered_network, training_step
from perftool.fused import FusedEMA, FusedSGD

_DECAY = 0.999
_WAYS: dict[FormName, tuple[type[PlainEMA] | type[FusedEMA], str]] = {
    "naive": (PlainEMA, "mul_ and add_ for each tensor"),
    "advised": (FusedEMA, "FusedEMA"),
    "torch": (ListEMA, "torch._foreach_lerp_"),
}


def build(form: FormName, setting: Setting) -> Form:
    """A loop over the state of the model, FusedEMA, or torch's op over lists of tensors."""
    follow, title = _WAYS[form]
    model = nn.ParameterList(weights_of(setting))
    average = follow(model, _DECAY)
    trained = layered_network(setting)
    # The same optimizer in both: only the average differs.
    optimizer = FusedSGD(trained.parameters(), lr=1e-3)
    followed = follow(trained, _DECAY)

    def step() -> None:
        learn()
        followed.update(trained)

    learn = training_step(trained, optimizer, setting)

    def result() -> list[torch.Tensor]:
        return list(average.ema.parameters())

    return Form(title, lambda: average.update(model), result, step)


BENCHMARK = Benchmark(
    name="fused_ema",
    rules=("FUS105",),
    summary="a moving average over all weights at once instead of one by one",
    build=build,
    sizes=SIZES,
    traced_size="small",
    tolerance=1e-5,
    tuned_heap=True,
    torch_best=True,
)
