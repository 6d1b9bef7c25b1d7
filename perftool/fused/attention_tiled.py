"""Exact attention by blocks of query rows that backward recomputes: memory grows with tokens, not tokens².

Softmax needs whole rows, and a block of whole rows is small: no running maximum, hence no rescaling and no
approximation. Causal blocks stop at their last query, which saves half of the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from perftool.fused.attention_scores import (
    LOW_PRECISION,
    Grouped,
    dropout_keep,
    dropped,
    mask_rows,
    masked_scores,
    probabilities,
    refuse_second_derivative,
    row_products,
    score_gradient,
    summed_over_rows,
)

# A block of scores should fit the cache, and the part of it above the diagonal is wasted; products of fewer
# rows are slower. Measured: float32 is fastest with 64 rows, the narrow types need 128 for full speed.
BLOCK_ROWS = {torch.bfloat16: 128, torch.float16: 128}
BLOCK_ROWS_WIDE = 64


@dataclass(frozen=True)
class TileOptions:
    """The numbers of a tiled call; `seed` restarts the dropout generator, None without dropout."""

    causal: bool
    scale: float
    dropout_p: float
    seed: int | None


@dataclass(frozen=True)
class Block:
    """Some query rows, the keys they can see, their probabilities and what dropout keeps of them."""

    rows: slice
    keys: int
    probability: torch.Tensor
    keep: torch.Tensor | None


def _blocks(tensors: Grouped, options: TileOptions) -> Iterator[Block]:
    """Every block in order; two runs with the same options yield the same blocks, dropout included."""
    queries, all_keys = tensors.q.size(3), tensors.k.size(2)
    generator = None
    if options.seed is not None:
        generator = torch.Generator(device=tensors.q.device).manual_seed(options.seed)
    step = BLOCK_ROWS.get(tensors.q.dtype, BLOCK_ROWS_WIDE)
    for start in range(0, queries, step):
        rows = slice(start, min(start + step, queries))
        keys = min(rows.stop, all_keys) if options.causal else all_keys
        mask = mask_rows(tensors.mask, rows, keys)
        visible = tensors.k[:, :, :keys]
        scores = masked_scores(tensors.q[:, :, :, rows], visible, mask, options.scale, options.causal, start)
        probability = probabilities(scores, mask is not None)
        keep = None if generator is None else dropout_keep(probability, options.dropout_p, generator)
        yield Block(rows, keys, probability, keep)


def _attend(tensors: Grouped, options: TileOptions) -> torch.Tensor:
    """The output, block by block."""
    output = tensors.q.new_empty((*tensors.q.shape[:-1], tensors.v.size(-1)))
    for block in _blocks(tensors, options):
        kept = dropped(block.probability, block.keep, options.dropout_p)
        output[:, :, :, block.rows] = row_products(kept, tensors.v[:, :, : block.keys])
    return output


class TiledAttention(torch.autograd.Function):
    """`apply(q, k, v, mask, options)` on grouped tensors; returns the output in the layout of q.

    Saves q, k, v and the output only. RuntimeError when a second derivative is asked for.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None,
        options: TileOptions,
    ) -> torch.Tensor:
        """softmax(scale q kᵀ + mask) v, block by block."""
        output = _attend(Grouped(q, k, v, mask), options)
        ctx.save_for_backward(q, k, v, mask, output)
        ctx.options = options
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of q, k and v; those of k and v are summed over blocks in float32 at least."""
        refuse_second_derivative()
        q, k, v, mask, output = ctx.saved_tensors
        options: TileOptions = ctx.options
        wide = torch.float32 if q.dtype in LOW_PRECISION else q.dtype
        delta = (grad_output.to(wide) * output.to(wide)).sum(-1, keepdim=True).to(q.dtype)
        grad_q = torch.empty_like(q)
        grad_k, grad_v = torch.zeros_like(k, dtype=wide), torch.zeros_like(v, dtype=wide)
        for block in _blocks(Grouped(q, k, v, mask), options):
            upstream = grad_output[:, :, :, block.rows]
            kept = dropped(block.probability, block.keep, options.dropout_p)
            grad_v[:, :, : block.keys] += summed_over_rows(kept, upstream)
            grad = row_products(upstream, v[:, :, : block.keys].transpose(-1, -2))
            grad = dropped(grad, block.keep, options.dropout_p)
            grad = score_gradient(block.probability, grad, delta[:, :, :, block.rows])
            grad_q[:, :, :, block.rows] = row_products(grad, k[:, :, : block.keys], options.scale)
            grad_k[:, :, : block.keys] += summed_over_rows(grad, q[:, :, :, block.rows], options.scale)
        return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype), None, None


def tiled_attention(tensors: Grouped, options: TileOptions) -> torch.Tensor:
    """Differentiable attention in the layout of q; `torch.autograd` sees one operation."""
    if not tensors.need_gradients:
        return _attend(tensors, options)
    output: torch.Tensor = TiledAttention.apply(  # type: ignore[no-untyped-call]
        tensors.q, tensors.k, tensors.v, tensors.mask, options
    )
    return output
