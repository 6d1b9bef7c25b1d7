"""Stacks are recorded (with_stack=True) although the model is small: the profiler traces every Python call."""

from __future__ import annotations

import torch
from recording import record, set_up
from torch import Tensor, nn


class Tokens:
    """Looks up words one by one, in Python."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def number(self, word: str) -> int:
        """The number of a word, the same for the same word."""
        return self.known.setdefault(word, len(self.known) % 64)

    def encode(self, words: list[str]) -> Tensor:
        """The numbers of many words, int64 [len(words)]."""
        return torch.tensor([self.number(word) for word in words])


def main() -> None:
    """Record ``cpu/profiler_overhead.json.gz``."""
    set_up()
    model = nn.Sequential(nn.Embedding(64, 16), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    tokens = Tokens()
    words = [f"word{index % 90}" for index in range(200)]

    def step(_: int) -> None:
        optimizer.zero_grad()
        model(tokens.encode(words)).square().mean().backward()
        optimizer.step()

    record("profiler_overhead", step, steps=3, with_stack=True)


if __name__ == "__main__":
    main()
