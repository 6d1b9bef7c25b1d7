"""Exact attention by blocks of query rows that backward recomputes: memory grows with tokens, not tokens².

Softmax needs whole rows, and a block of whole rows is small: no running maximum, hence no rescaling and no
approximation. Causal blocks stop at their last query, which saves half of the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from perftool.fused.attention.scores import (
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

# 128 rows keep a block of scores inside the cache and the matrix products large enough for full speed.
BLOCK_ROWS = 128


@dataclass(frozen=True)
class TileOptions:
    """The numbers of a tiled call; `seed` restarts the dropout generator, None without dropout.

    `block_rows` is the number of query rows computed at once.
    """

    causal: bool
    scale: float
    dropout_p: float
    seed: int | None
    block_rows: int = BLOCK_ROWS


@dataclass(frozen=True)
class Block:
    """Some query rows, the keys they can see, their probabilities and what dropout keeps of them."""

    rows: slice
    keys: int
    probability: torch.Tensor
    keep: torch.Tensor | None


def _row_blocks(queries: int, options: TileOptions) -> Iterator[slice]:
    """The query rows of every block, in order."""
    for start in range(0, queries, options.block_rows):
        yield slice(start, min(start + options.block_rows, queries))


def _dropout_generator(options: TileOptions, device: torch.device) -> torch.Generator | None:
    """Blocks taken in order with it are dropped alike in both passes; None without dropout."""
    return None if options.seed is None else torch.Generator(device=device).manual_seed(options.seed)


def _block(tensors: Grouped, options: TileOptions, rows: slice, generator: torch.Generator | None) -> Block:
    all_keys = tensors.k.size(2)
    keys = min(rows.stop, all_keys) if options.causal else all_keys
    mask = mask_rows(tensors.mask, rows, keys)
    visible = tensors.k[:, :, :keys]
    scores = masked_scores(tensors.q[:, :, :, rows], visible, mask, options.scale, options.causal, rows.start)
    probability = probabilities(scores, mask is not None)
    keep = None if generator is None else dropout_keep(probability, options.dropout_p, generator)
    return Block(rows, keys, probability, keep)


def _block_output(tensors: Grouped, options: TileOptions, block: Block) -> torch.Tensor:
    kept = dropped(block.probability, block.keep, options.dropout_p)
    return row_products(kept, tensors.v[:, :, : block.keys])


def _attend(tensors: Grouped, options: TileOptions) -> torch.Tensor:
    """The output, block by block."""
    output = tensors.q.new_empty((*tensors.q.shape[:-1], tensors.v.size(-1)))
    generator = _dropout_generator(options, tensors.q.device)
    for rows in _row_blocks(tensors.q.size(3), options):
        # Without a name the block is gone before the next one, which then finds its memory in the cache.
        output[:, :, :, rows] = _block_output(tensors, options, _block(tensors, options, rows, generator))
    return output


class FusedSDPATiled(torch.autograd.Function):
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
        generator = _dropout_generator(options, q.device)
        for rows in _row_blocks(q.size(3), options):
            block = _block(Grouped(q, k, v, mask), options, rows, generator)
            upstream = grad_output[:, :, :, rows]
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
    output: torch.Tensor = FusedSDPATiled.apply(  # type: ignore[no-untyped-call]
        tensors.q, tensors.k, tensors.v, tensors.mask, options
    )
    return output
