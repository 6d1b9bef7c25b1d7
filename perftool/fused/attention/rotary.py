"""Rotary position embeddings: p*cos + turned(p)*sin, where `turned` swaps the halves, or the pairs, of each vector."""

from __future__ import annotations

from enum import Enum

import torch


class RotaryPosEmbeddingMode(Enum):
    """Which elements of a vector turn together: i and i + size/2, or 2i and 2i + 1."""

    BLOCKWISE = 0
    PAIRWISE = 1


def apply_rotary_pos_emb(
    p: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    offset: int = 0,
    mode: RotaryPosEmbeddingMode = RotaryPosEmbeddingMode.BLOCKWISE,
) -> torch.Tensor:
    """`p` turned by the angles of its positions, in its dtype; differentiable.

    With `position_ids` [batch, tokens], p is [batch, heads, tokens, size], and cos and sin are
    [positions, size], leading dimensions of 1 allowed. Without, p is [tokens, ...] and takes the rows of cos and
    sin from `offset` on.
    """
    if position_ids is not None:
        cos, sin = (table.reshape(-1, table.size(-1))[position_ids].unsqueeze(1) for table in (cos, sin))
    else:
        cos, sin = cos[offset : offset + p.size(0)], sin[offset : offset + p.size(0)]
    return p * cos.to(p.dtype) + _turned(p, mode) * sin.to(p.dtype)


def _turned(p: torch.Tensor, mode: RotaryPosEmbeddingMode) -> torch.Tensor:
    if mode is RotaryPosEmbeddingMode.PAIRWISE:
        return torch.stack((-p[..., 1::2], p[..., 0::2]), dim=-1).flatten(-2)
    first, second = p.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class RotaryPosEmbeddingHelperV1:
    """The embedding of consecutive positions."""

    @staticmethod
    def apply(p: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, offset: int, /) -> torch.Tensor:
        """As `apply_rotary_pos_emb` without `position_ids`."""
        return apply_rotary_pos_emb(p, cos, sin, offset=offset)


class RotaryPosEmbeddingHelperV2:
    """The embedding of given positions."""

    @staticmethod
    def apply(p: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, position_ids: torch.Tensor, /) -> torch.Tensor:
        """As `apply_rotary_pos_emb` with `position_ids`."""
        return apply_rotary_pos_emb(p, cos, sin, position_ids)
