"""AdamW, one tensor after the other (foreach=False), over 48 small tensors."""

from __future__ import annotations

import torch
from recording import record, set_up
from torch import nn


def main() -> None:
    """Record ``cpu/unfused_optimizer.json.gz``."""
    set_up()
    layers = [nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.Tanh()) for _ in range(12)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False, fused=False)
    inputs = torch.randn(64, 32)

    def step(_: int) -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    record("unfused_optimizer", step, steps=3)


if __name__ == "__main__":
    main()
