"""A module that counts its calls in a Python number, which causes a recompilation in each call, or in a buffer."""

from __future__ import annotations

import torch
from torch import nn

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.compiled import SEQUENCES, WIDTH, Tokens, compiled

# There are so few calls that torch.compile does not reach its recompilation limit.
_CALLS = {"small": 4, "large": 7}
_TOKENS = 32
# The factor on the output grows to 1 over this number of calls.
_WARM_UP = 10


def build(form: FormName, setting: Setting) -> Form:
    """Return a form that makes all calls with torch.compile's defaults, in a separate process so that the time includes
    the first compilation."""
    torch.manual_seed(setting.seed)
    model = compiled(_Counting() if form == "naive" else _Buffered(), setting, automatic=True)
    batch = torch.randn(SEQUENCES, _TOKENS, WIDTH, generator=setting.generator()).to(setting.device)
    latest: list[torch.Tensor] = []

    @torch.no_grad()
    def forward() -> torch.Tensor:
        return model(batch)

    def run() -> None:
        latest[:] = [forward() for _ in range(_CALLS[setting.size])]

    return Form("a counter in Python" if form == "naive" else "a counter in a buffer", run, lambda: latest, forward)


class _Counting(nn.Module):
    """Counts in an attribute; torch.compile guards on its value, so each call recompiles."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.calls = Tokens(), 0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        result: torch.Tensor = self.tokens(batch) * min(1.0, self.calls / _WARM_UP)
        return result


class _Buffered(nn.Module):
    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.tokens = Tokens()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        result: torch.Tensor = self.tokens(batch) * torch.clamp(self.calls / _WARM_UP, max=1.0)
        return result


BENCHMARK = Benchmark(
    name="torch_compile",
    rules=("RCP106",),
    summary="State of a compiled module in a buffer instead of a Python attribute",
    build=build,
    sizes=tuple(_CALLS),
    traced_size="large",
    tolerance=1e-5,
    separate_processes=True,
    traced_steps=3,
    not_quick="compiles for half a minute or more",
)
