"""Gradients are clipped, and the weights averaged over time, tensor by tensor: hundreds of tiny ops."""

from __future__ import annotations

import copy

import torch
from recording import record, set_up
from torch import nn


def main() -> None:
    """Record ``cpu/many_small_ops.json.gz``."""
    set_up()
    model = nn.Sequential(*(nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 24), nn.Tanh()) for _ in range(12)))
    averaged = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    inputs = torch.randn(16, 24)

    def step(_: int) -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        grads = [weight.grad for weight in model.parameters() if weight.grad is not None]
        total = torch.stack([torch.linalg.vector_norm(grad) for grad in grads]).norm()
        for grad in grads:
            grad.mul_((1.0 / (total + 1e-6)).clamp(max=1.0))
        optimizer.step()
        with torch.no_grad():
            for mean, weight in zip(averaged.parameters(), model.parameters(), strict=True):
                mean.mul_(0.99).add_(weight, alpha=0.01)

    record("many_small_ops", step, steps=3)


if __name__ == "__main__":
    main()
