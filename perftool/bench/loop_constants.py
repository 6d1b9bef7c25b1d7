"""A number that changes in every iteration, either compiled into the graph as a constant or passed as a tensor."""

from __future__ import annotations

from itertools import count

import torch

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.compiled import SEQUENCES, WIDTH, Tokens, compiled

# There are so few iterations that torch.compile does not reach its recompilation limit.
_ITERATIONS = {"small": 4, "large": 7}
_TOKENS = 32


def build(form: FormName, setting: Setting) -> Form:
    """Return a form that runs all iterations, in a separate process so that the time includes the first compilation."""
    torch.manual_seed(setting.seed)
    model = compiled(Tokens(), setting)
    batch = torch.randn(SEQUENCES, _TOKENS, WIDTH, generator=setting.generator()).to(setting.device)
    latest: list[torch.Tensor] = []
    steps = count(1)

    @torch.no_grad()
    def forward(iteration: int) -> torch.Tensor:
        scale = 1.0 / (1.0 + 0.5 * iteration)
        return model(batch, scale if form == "naive" else torch.tensor(scale, device=setting.device))

    def run() -> None:
        latest[:] = [forward(iteration) for iteration in range(1, _ITERATIONS[setting.size] + 1)]

    title = "a Python number" if form == "naive" else "a tensor without dimensions"
    return Form(title, run, lambda: latest, lambda: forward(next(steps)))


BENCHMARK = Benchmark(
    name="loop_constants",
    rules=("RCP101", "RCP103"),
    summary="A changing number in a tensor instead of in the graph",
    build=build,
    sizes=tuple(_ITERATIONS),
    traced_size="large",
    script="loop_constants.py",
    tolerance=1e-5,
    separate_processes=True,
    traced_steps=3,
    not_quick="compiles for half a minute or more",
)
