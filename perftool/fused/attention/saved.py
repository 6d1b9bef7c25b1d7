"""Attention that keeps its probabilities: backward is cheap, memory grows with the square of the tokens."""

from __future__ import annotations

from typing import Any

import torch

from perftool.fused.attention.scores import (
    Grouped,
    dropout_keep,
    dropped,
    masked_scores,
    probabilities,
    refuse_second_derivative,
    row_products,
    summed_over_rows,
)

Kept = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


def _attend(tensors: Grouped, causal: bool, scale: float, dropout_p: float) -> Kept:
    """Output, probabilities before dropout, and dropout mask."""
    scores = masked_scores(tensors.q, tensors.k, tensors.mask, scale, causal)
    probability = probabilities(scores, tensors.mask is not None)
    keep = dropout_keep(probability, dropout_p) if dropout_p > 0.0 else None
    return row_products(dropped(probability, keep, dropout_p), tensors.v), probability, keep


class FusedSDPASaved(torch.autograd.Function):
    """`apply(q, k, v, mask, causal, scale, dropout_p)` on grouped tensors.

    Returns the output, the probabilities before dropout and the boolean dropout mask (True: kept; None
    without dropout). Only the output has a gradient; RuntimeError when a second derivative is asked for.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None,
        causal: bool,
        scale: float,
        dropout_p: float,
    ) -> Kept:
        """softmax(scale q kᵀ + mask) v in one piece."""
        output, probability, keep = _attend(Grouped(q, k, v, mask), causal, scale, dropout_p)
        ctx.save_for_backward(q, k, v, probability, keep)
        ctx.scale, ctx.dropout_p = scale, dropout_p
        ctx.mark_non_differentiable(*(extra for extra in (probability, keep) if extra is not None))
        return output, probability, keep

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor, *_: object) -> tuple[torch.Tensor | None, ...]:
        """Gradients of q, k and v from the saved probabilities."""
        refuse_second_derivative()
        q, k, v, probability, keep = ctx.saved_tensors
        grad_v = summed_over_rows(dropped(probability, keep, ctx.dropout_p), grad_output)
        grad = dropped(row_products(grad_output, v.transpose(-1, -2)), keep, ctx.dropout_p)
        # Softmax's own backward kernel is one pass; the row sums of the tiled form would be four.
        grad = torch.ops.aten._softmax_backward_data(grad, probability, -1, probability.dtype)
        grad_q = row_products(grad, k, ctx.scale)
        grad_k = summed_over_rows(grad, q, ctx.scale)
        return grad_q, grad_k, grad_v, None, None, None, None


def saved_attention(tensors: Grouped, causal: bool, scale: float, dropout_p: float) -> Kept:
    """Differentiable (output, probabilities, dropout mask or None) in the grouped layout."""
    if not tensors.need_gradients:
        return _attend(tensors, causal, scale, dropout_p)
    outputs: Kept = FusedSDPASaved.apply(  # type: ignore[no-untyped-call]
        tensors.q, tensors.k, tensors.v, tensors.mask, causal, scale, dropout_p
    )
    return outputs
