"""The arithmetic that tiled and saved attention share, on tensors in the grouped layout.

Grouped layout: q is [batch, groups, heads per group, queries, size], k and v are [batch, groups, keys, size].
Plain attention has one head per group, multi-query attention has one group. Query heads that share a key
head become more rows of one matrix product, so keys and values are never repeated in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from perftool.fused.attention.capability import may_ask

LOW_PRECISION = (torch.bfloat16, torch.float16)
# PyTorch's narrow softmax computes in float32 and rounds once, so both routes are equally exact; on a CPU the
# one through a float32 result was measured to be faster on shorter rows, by up to a half.
LONG_ROW = 512


@dataclass(frozen=True)
class Grouped:
    """Query, key and value in the grouped layout, and the mask broadcastable to their scores."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    mask: torch.Tensor | None

    @property
    def need_gradients(self) -> bool:
        """False when autograd has nothing to record; recording costs a short call a tenth of its time."""
        recorded = self.q.requires_grad or self.k.requires_grad or self.v.requires_grad
        return recorded and torch.is_grad_enabled()


def group_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> Grouped:
    """Views in the grouped layout of 4-D tensors; the mask broadcasts to [batch, heads, queries, keys]."""
    groups, heads = k.size(1), q.size(1) // k.size(1)
    grouped_mask = None
    if mask is not None:
        full = mask[(None,) * (4 - mask.dim())]
        grouped_mask = (
            full.unsqueeze(1) if full.size(1) == 1 else full.reshape(full.size(0), groups, heads, *full.shape[2:])
        )
    return Grouped(q.reshape(q.size(0), groups, heads, *q.shape[2:]), k, v, grouped_mask)


def row_products(rows: torch.Tensor, matrix: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
    """factor · rows [batch, groups, heads, queries, a] · matrix [batch, groups, a, b], group by group."""
    batch, groups, heads, queries, _ = rows.shape
    product = _scaled_products(rows.flatten(2, 3).flatten(0, 1), matrix.flatten(0, 1), factor)
    return product.view(batch, groups, heads, queries, matrix.size(-1))


def summed_over_rows(rows: torch.Tensor, values: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
    """factor · rowsᵀ · values, summed over the queries of a group: [batch, groups, keys, size]."""
    left, right = (tensor.flatten(2, 3).flatten(0, 1) for tensor in (rows, values))
    product = _scaled_products(left.transpose(1, 2), right, factor)
    return product.view(*rows.shape[:2], rows.size(-1), values.size(-1))


def _scaled_products(left: torch.Tensor, right: torch.Tensor, factor: float) -> torch.Tensor:
    """factor · left · right, matrix by matrix; the product applies the factor, so it needs no own pass."""
    if factor == 1.0:
        return torch.bmm(left, right)
    ignored = left.new_empty(())
    return torch.baddbmm(ignored, left, right, beta=0, alpha=factor)


def masked_scores(
    q: torch.Tensor,
    k: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    causal: bool,
    first_row: int = 0,
) -> torch.Tensor:
    """Scaled scores of queries, the first one token `first_row`, against keys; -inf where not attended."""
    scores = row_products(q, k.transpose(-1, -2), scale)
    if mask is not None:
        if mask.dtype == torch.bool:
            scores.masked_fill_(~mask, float("-inf"))
        else:
            scores += mask
    if causal:
        _forbid_future(scores, first_row)
    return scores


def _forbid_future(scores: torch.Tensor, first_row: int) -> None:
    """Write -inf above the diagonal; keys up to the first query's are allowed to every row: left alone."""
    square = scores[..., first_row:]
    if square.size(-1):
        future = torch.ones(square.shape[-2:], dtype=torch.bool, device=scores.device).triu_(1)
        square.masked_fill_(future, float("-inf"))


def mask_rows(mask: torch.Tensor | None, rows: slice, keys: int) -> torch.Tensor | None:
    """The part of a grouped mask for some query rows and the first `keys` keys."""
    if mask is None:
        return None
    part = mask if mask.size(-2) == 1 else mask[..., rows, :]
    return part if part.size(-1) == 1 else part[..., :keys]


def probabilities(scores: torch.Tensor, may_be_empty: bool) -> torch.Tensor:
    """Softmax over keys, in the scores' dtype.

    With `may_be_empty`, a row that may attend to nothing gives zeros, as torch's own attention does.
    """
    if scores.dtype in LOW_PRECISION and scores.size(-1) < LONG_ROW:
        result = scores.softmax(-1, dtype=torch.float32).to(scores.dtype)
    else:
        result = scores.softmax(-1)
    # A row without keys is NaN from end to end, so its first element tells.
    if may_be_empty and not (scores.is_cpu and may_ask() and not result[..., :1].isnan().any()):
        result.masked_fill_(scores.amax(-1, keepdim=True) == float("-inf"), 0.0)
    return result


def dropout_keep(like: torch.Tensor, dropout_p: float, generator: torch.Generator | None = None) -> torch.Tensor:
    """A boolean tensor shaped like `like`: True where the probability is kept."""
    keep = torch.empty_like(like, dtype=torch.bool)
    return keep.bernoulli_(1.0 - dropout_p, generator=generator)


def dropped(probability: torch.Tensor, keep: torch.Tensor | None, dropout_p: float) -> torch.Tensor:
    """Probabilities (or their gradient) after dropout; unchanged without a keep mask."""
    return probability if keep is None else probability * keep * (1.0 / (1.0 - dropout_p))


def refuse_second_derivative() -> None:
    """RuntimeError where gradients are to be differentiated again: they would silently count as constants."""
    if torch.is_grad_enabled():
        raise RuntimeError("This operation has no second derivative; use the reference form for create_graph.")


def score_gradient(probability: torch.Tensor, grad: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    """Gradient of the scores from that of the probabilities, written into `grad`.

    `delta` is the row sum of gradient times output: equal to the softmax backward's own row sum, dropout
    included, and size/keys times cheaper.
    """
    return grad.sub_(delta).mul_(probability)
