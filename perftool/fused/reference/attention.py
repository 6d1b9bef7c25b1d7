"""Plain attention: the whole score matrix in memory, one operation per line of the formula."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    keep: Tensor | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """(output, probabilities) of softmax(scale q kᵀ + mask) v; scale defaults to 1/√size.

    q is [..., heads, queries, size]; k and v may have fewer heads, each shared by a run of query heads. The
    mask is boolean (True: attend) or added. `keep` is a dropout mask for rate `dropout_p`. Softmax runs in
    float32 at least. Rows without any key give zeros.
    """
    k, v = _repeat_heads(k, q), _repeat_heads(v, q)
    factor = 1.0 / math.sqrt(q.size(-1)) if scale is None else scale
    scores = (q @ k.transpose(-1, -2)) * factor
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~allowed, float("-inf"))
    softmax_dtype = torch.promote_types(q.dtype, torch.float32)
    probability = scores.softmax(-1, dtype=softmax_dtype).to(q.dtype)
    if mask is not None:
        nothing = (scores == float("-inf")).all(-1, keepdim=True)
        probability = probability.masked_fill(nothing, 0.0)
    kept = probability if keep is None else probability * keep / (1.0 - dropout_p)
    return kept @ v, probability


def _repeat_heads(shared: Tensor, q: Tensor) -> Tensor:
    if q.dim() < 4 or shared.size(-3) == q.size(-3):
        return shared
    return shared.repeat_interleave(q.size(-3) // shared.size(-3), dim=-3)
