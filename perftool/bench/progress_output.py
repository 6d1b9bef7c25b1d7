"""A progress line after every step, or after every twentieth step."""

from __future__ import annotations

import os

import torch
from torch import nn

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting

_STEPS = 40
_EVERY = {"naive": 1, "advised": 20}
# Width of the model and rows of a batch.
_SHAPES = {"small": (64, 16), "large": (256, 64)}


def build(form: FormName, setting: Setting) -> Form:
    """Forty forward passes with progress output."""
    torch.manual_seed(setting.seed)
    width, rows = _SHAPES[setting.size]
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(setting.device)
    inputs = torch.randn(rows, width, generator=setting.generator()).to(setting.device)
    terminal = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - closed with the form
    count = 0
    latest: list[torch.Tensor] = []

    @torch.no_grad()
    def step() -> None:
        nonlocal count
        count += 1
        latest[:] = [model(inputs).square().mean()]
        if count % _EVERY[form] == 0:
            for value in latest:
                print(f"\rstep {count}: loss {float(value):.4f}", end="", file=terminal, flush=True)

    def run() -> None:
        for _ in range(_STEPS):
            step()

    often = "in every step" if form == "naive" else f"every {_EVERY[form]} steps"
    return Form(f"a line {often}", run, lambda: latest, step, terminal.close)


BENCHMARK = Benchmark(
    name="progress_output",
    rules=("SYN103",),
    summary="Progress written every twenty steps instead of in every step",
    build=build,
    sizes=tuple(_SHAPES),
    traced_size="small",
    tolerance=0.0,
    traced_stacks=True,
)
