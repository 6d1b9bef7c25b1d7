"""A compiled model meets a new sequence length in two recorded steps, and is compiled again each time."""

from __future__ import annotations

import os
import tempfile

import torch
from recording import record, set_up
from torch import Tensor, nn

LENGTHS = (32, 32, 32, 32, 32, 48, 48, 64, 64)


class Block(nn.Module):
    """A small feed-forward block with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens + self.down(nn.functional.gelu(self.up(tokens)))


def main() -> None:
    """Record ``cpu/torch_compile_recompile.json.gz``."""
    set_up()
    # Shapes stay static, as on a device that compiles one graph for each; by default PyTorch would turn to
    # dynamic shapes after the second length.
    model = torch.compile(Block(), dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)

    def step(index: int) -> None:
        optimizer.zero_grad()
        model(torch.randn(8, LENGTHS[index], 64)).square().mean().backward()
        optimizer.step()

    record("torch_compile_recompile", step)


if __name__ == "__main__":
    # The cache must be empty, or a second recording would find its graphs already compiled.
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        main()
