"""Sequences of many lengths through a compiled model: one graph for each length, or a single graph and padding."""

from __future__ import annotations

from itertools import count

import torch
from torch.nn import functional

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.compiled import SEQUENCES, WIDTH, Tokens, compiled

# There are so few sequence lengths that torch.compile does not reach its recompilation limit. The size "automatic"
# keeps torch.compile's default, which switches to dynamic shapes after the second length.
_LENGTHS = {"small": 4, "large": 7, "automatic": 7}
_SHORTEST, _APART = 24, 8
_PASSES = 4


def build(form: FormName, setting: Setting) -> Form:
    """Passes over batches of all lengths, in a separate process so that the time includes the first compilation."""
    torch.manual_seed(setting.seed)
    model = compiled(Tokens(), setting, automatic=setting.size == "automatic")
    lengths = [_SHORTEST + _APART * index for index in range(_LENGTHS[setting.size])]
    generator = setting.generator()
    batches = [torch.randn(SEQUENCES, length, WIDTH, generator=generator).to(setting.device) for length in lengths]
    latest: list[torch.Tensor] = []
    steps = count()

    @torch.no_grad()
    def forward(batch: torch.Tensor) -> torch.Tensor:
        if form == "advised":
            batch = functional.pad(batch, (0, 0, 0, lengths[-1] - batch.size(1)))
        return model(batch)

    def run() -> None:
        for _ in range(_PASSES):
            latest[:] = [forward(batch) for batch in batches]

    title = f"{len(lengths)} lengths" if form == "naive" else f"padded to {lengths[-1]} tokens"
    return Form(title, run, lambda: latest, lambda: forward(batches[next(steps) % len(batches)]))


BENCHMARK = Benchmark(
    name="dynamic_shapes",
    rules=("RCP102", "GAP105"),
    summary="Sequences padded to one length, so that one graph serves all of them",
    build=build,
    sizes=tuple(_LENGTHS),
    traced_size="large",
    tolerance=1e-5,
    separate_processes=True,
    traced_steps=3,
    not_quick="compiles for half a minute or more",
)
