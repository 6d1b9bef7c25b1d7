"""Rotary position embeddings: p*cos + rotated(p)*sin, where `rotated` swaps the halves of each vector, or the elements
of each pair. It then negates the first half, or the first element of each pair.
"""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor

from perftool.fused.dispatch import register_everywhere
from perftool.fused.functions import AppliedOp, natively_applied

_V1, _V2, _V3 = (f"RotaryPosEmbeddingHelperV{version}" for version in (1, 2, 3))

for _op in (_V1, _V2, _V3):
    register_everywhere(_op)


class RotaryPosEmbeddingMode(Enum):
    """Which elements of a vector are rotated together: i and i + size/2, or 2i and 2i + 1."""

    BLOCKWISE = 0
    PAIRWISE = 1


def apply_rotary_pos_emb(
    p: Tensor,
    cos: Tensor,
    sin: Tensor | None = None,
    position_ids: Tensor | None = None,
    offset: int = 0,
    mode: RotaryPosEmbeddingMode = RotaryPosEmbeddingMode.BLOCKWISE,
) -> Tensor:
    """Rotate `p` [..., size] by the angles of its positions; differentiable with respect to `p`.

    With `position_ids` [batch, tokens], `p` is [batch, heads, tokens, size] and the tables are [positions, size].
    Without them, the tables are broadcast to `p`, in blockwise mode from row `offset` on. Without `sin`, `cos` is a
    cache for `RotaryPosEmbeddingHelperV3`. The result has the dtype of `p`, but is float32 if a table is float32 and
    `p` is narrower, as on a Gaudi. Raise ValueError for tables that do not match.
    """
    if sin is None:
        return RotaryPosEmbeddingHelperV3.apply(p, cos)
    _check_size(p, cos, sin)
    if position_ids is not None:
        cos, sin = (_at(table, position_ids) for table in (cos, sin))
    elif mode is RotaryPosEmbeddingMode.BLOCKWISE:
        if cos.size(0) > 1 and offset + p.size(0) > cos.size(0):
            raise ValueError(f"{p.size(0)} tokens from offset {offset} on need more than the {cos.size(0)} rows of cos")
        cos, sin = (table[offset : offset + p.size(0)] for table in (cos, sin))
    wide = torch.float32 in (cos.dtype, sin.dtype)
    dtype = torch.promote_types(p.dtype, torch.float32) if wide else p.dtype
    p = p.to(dtype)
    return p * cos.to(dtype) + _rotated(p, mode) * sin.to(dtype)


def rotary_pos_embedding(
    input: Tensor,
    sin: Tensor,
    cos: Tensor,
    position_ids: Tensor | None,
    offset: int,
    mode: int,
) -> Tensor:
    """Call `apply_rotary_pos_emb` with the signature of Gaudi's op."""
    return apply_rotary_pos_emb(input, cos, sin, position_ids, offset, RotaryPosEmbeddingMode(mode))


def _check_size(p: Tensor, cos: Tensor, sin: Tensor) -> None:
    if cos.shape != sin.shape or cos.size(-1) != p.size(-1) or p.size(-1) % 2:
        raise ValueError(
            f"cos and sin must have the same shape, ending in the even size of the vectors, {p.size(-1)};"
            f" they are {list(cos.shape)} and {list(sin.shape)}"
        )


def _at(table: Tensor, position_ids: Tensor) -> Tensor:
    """Return the rows for the positions, to be broadcast over the heads."""
    if table.numel() != table.size(-2) * table.size(-1):
        raise ValueError(f"with position_ids, cos and sin must be [positions, size], not {list(table.shape)}")
    return table.reshape(-1, table.size(-1))[position_ids].unsqueeze(1)


def _rotated(p: Tensor, mode: RotaryPosEmbeddingMode) -> Tensor:
    if mode is RotaryPosEmbeddingMode.PAIRWISE:
        return torch.stack((-p[..., 1::2], p[..., 0::2]), dim=-1).flatten(-2)
    first, second = p.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class RotaryPosEmbeddingHelperV1(AppliedOp):
    """Embeds consecutive positions, as in GPT-NeoX and Megatron."""

    @staticmethod
    def apply(p: Tensor, cos: Tensor, sin: Tensor, offset: int, /) -> Tensor:
        """Like `apply_rotary_pos_emb` without `position_ids`."""
        rotated = natively_applied(_V1, p, cos, sin, offset)
        return apply_rotary_pos_emb(p, cos, sin, offset=offset) if rotated is None else rotated


class RotaryPosEmbeddingHelperV2(AppliedOp):
    """Embeds the given positions (`position_ids`), as in transformers' Llama."""

    @staticmethod
    def apply(p: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor, /) -> Tensor:
        """Like `apply_rotary_pos_emb` with `position_ids`."""
        rotated = natively_applied(_V2, p, cos, sin, position_ids)
        return apply_rotary_pos_emb(p, cos, sin, position_ids) if rotated is None else rotated


class RotaryPosEmbeddingHelperV3(AppliedOp):
    """Embeds positions in pairs of the first elements of each vector, as in ChatGLM."""

    @staticmethod
    def apply(p: Tensor, rope_cache: Tensor, /) -> Tensor:
        """Rotate the first 2·n elements of the vectors `p` [tokens, batch, heads, size]; the result has its dtype.

        `rope_cache` is [positions, n, 2] or [positions, batch or 1, n, 2], cosines before sines; its first
        `tokens` positions are used.
        """
        if (whole := natively_applied(_V3, p, rope_cache)) is not None:
            return whole
        tokens, size = p.size(0), 2 * rope_cache.size(-2)
        if rope_cache.size(0) < tokens or rope_cache.size(-1) != 2 or size > p.size(-1):
            raise ValueError(
                f"a rope_cache of shape {list(rope_cache.shape)} does not fit vectors of shape {list(p.shape)}:"
                f" it must be [positions, n, 2] or [positions, batch or 1, n, 2],"
                f" with at least {tokens} positions, and n at most {p.size(-1) // 2}"
            )
        cache = rope_cache[:tokens].reshape(tokens, -1, 1, size // 2, 2).to(p.dtype)
        cos, sin = (part.repeat_interleave(2, -1) for part in cache.unbind(-1))
        rotated = apply_rotary_pos_emb(p[..., :size], cos, sin, mode=RotaryPosEmbeddingMode.PAIRWISE)
        return torch.cat((rotated, p[..., size:]), -1)
