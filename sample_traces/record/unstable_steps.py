"""Every third step also validates the model, and takes several times as long as the others."""

from __future__ import annotations

import torch
from recording import record, set_up
from torch import nn


def main() -> None:
    """Record ``cpu/unstable_steps.json.gz``."""
    set_up()
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    inputs, held_out = torch.randn(64, 128), torch.randn(4096, 128)

    def step(index: int) -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        if index % 3 == 0:
            with torch.no_grad():
                model(held_out).square().mean()

    record("unstable_steps", step, steps=12)


if __name__ == "__main__":
    main()
