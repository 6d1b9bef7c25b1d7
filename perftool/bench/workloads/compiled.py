"""A small model for torch.compile, which, like a Gaudi's lazy mode, compiles a graph for each shape and constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from perftool.bench.harness.case import Setting

WIDTH, SEQUENCES = 32, 4


class Tokens(nn.Module):
    """Maps [sequences, tokens, WIDTH] to one vector per sequence; tokens that are all zeros add nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, tokens: torch.Tensor, scale: float | torch.Tensor = 1.0) -> torch.Tensor:
        result: torch.Tensor = self.down(nn.functional.gelu(self.up(tokens))).sum(dim=1)
        return result * scale


def compiled(model: nn.Module, setting: Setting, automatic: bool = False) -> Callable[..., torch.Tensor]:
    """Compile ``model`` with torch.compile; shapes and numbers become constants of the graph, unless ``automatic`` is
    set.

    A Gaudi uses its own backend. A small function is compiled first, because the compiler's start-up takes as long as
    compiling several graphs.
    """
    options: dict[str, Any] = {"backend": "hpu_backend"} if setting.device.type == "hpu" else {}
    torch.compile(_first, **options)(torch.ones(WIDTH, device=setting.device))
    ready: Callable[..., torch.Tensor] = torch.compile(
        model.to(setting.device), dynamic=None if automatic else False, **options
    )
    return ready


def _first(values: torch.Tensor) -> torch.Tensor:
    return values * 2.0
