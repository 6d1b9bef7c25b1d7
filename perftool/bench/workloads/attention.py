"""Random queries, keys and values, and attention in separate ops."""

from __future__ import annotations

import math

import torch

from perftool.bench.harness.case import Setting

HEADS, HEAD_SIZE = 8, 64


def heads_of(setting: Setting, batch: int, tokens: int, training: bool = False) -> list[torch.Tensor]:
    """Return random q, k and v, float32 [batch, HEADS, tokens, HEAD_SIZE]; they require gradients if ``training`` is
    set.
    """
    generator = setting.generator()
    shape = (batch, HEADS, tokens, HEAD_SIZE)
    return [torch.randn(shape, generator=generator).to(setting.device).requires_grad_(training) for _ in range(3)]


def plain_causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention with separate ops and the whole score matrix in memory."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(scores.masked_fill(later, -math.inf), dim=-1) @ v


def spread_lengths(batch: int, tokens: int) -> torch.Tensor:
    """Return lengths that are spread evenly from 2 to ``tokens``, so that about half of the batch is padding."""
    return torch.linspace(2, tokens, batch).round().long()
