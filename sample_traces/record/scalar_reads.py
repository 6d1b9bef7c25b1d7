"""The loop reads the loss, the accuracy and the norm of every gradient on the host, in every step."""

from __future__ import annotations

import torch
from recording import record, set_up
from torch import nn


def main() -> None:
    """Record ``cpu/scalar_reads.json.gz``."""
    set_up()
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    inputs, labels = torch.randn(128, 256), torch.randint(10, (128,))
    history = []

    def step(_: int) -> None:
        optimizer.zero_grad()
        scores = model(inputs)
        loss = nn.functional.cross_entropy(scores, labels)
        loss.backward()
        norms = [weight.grad.norm().item() for weight in model.parameters() if weight.grad is not None]
        optimizer.step()
        if (scores.argmax(1) == labels).all():
            labels.random_(10)
        history.append((loss.item(), (scores.argmax(1) == labels).float().mean().item(), max(norms)))

    record("scalar_reads", step)


if __name__ == "__main__":
    main()
