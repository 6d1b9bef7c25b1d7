"""One attention call: the 13 arguments, checked, with defaults and modes resolved."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

SOFTMAX_MODES = ("none", "fast", "fp32")
PADDING_TYPES = ("left", "right")


@dataclass(frozen=True)
class AttentionRequest:
    """Everything about a call except its tensors q, k and v.

    `mask` is boolean (True: attend) or added to the scores. `lengths` holds one valid length per sequence,
    or None; `training` is true when q, k or v requires a gradient.
    """

    mask: torch.Tensor | None
    dropout_p: float
    causal: bool
    scale: float
    fast_softmax: bool
    wide_softmax: bool
    recompute: bool
    lengths: tuple[int, ...] | None
    left_padded: bool
    return_dropout_mask: bool
    return_probabilities: bool
    training: bool


def read_request(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    softmax_mode: str,
    recompute: bool,
    valid_seq_len: torch.Tensor | None,
    seq_padding_type: str,
    return_dropout_mask: bool,
    return_attn_probs: bool,
) -> AttentionRequest:
    """Check the arguments of `FusedSDPA.apply` and resolve its defaults.

    AssertionError for combinations that Gaudi refuses, with its texts; ValueError for values and shapes.
    """
    check_shapes(q, k, v, dropout_p)
    request = AttentionRequest(
        mask=None if attn_mask is None else attn_mask.detach()[(None,) * (2 - attn_mask.dim())],
        dropout_p=float(dropout_p),
        causal=is_causal,
        scale=1.0 / math.sqrt(q.size(-1)) if scale is None else scale,
        fast_softmax=_one_of("softmax_mode", softmax_mode, SOFTMAX_MODES) == "fast",
        wide_softmax=softmax_mode.lower() == "fp32",
        recompute=recompute and not return_attn_probs,
        lengths=_lengths(valid_seq_len, q, k),
        left_padded=_one_of("seq_padding_type", seq_padding_type, PADDING_TYPES) == "left",
        return_dropout_mask=return_dropout_mask,
        return_probabilities=return_attn_probs,
        training=q.requires_grad or k.requires_grad or v.requires_grad,
    )
    _check_combination(request, q.dtype)
    return request


def _check_combination(request: AttentionRequest, dtype: torch.dtype) -> None:
    """Refuse what Gaudi refuses; the texts are its own, because scripts and their tests look for them."""
    if request.fast_softmax and dtype != torch.bfloat16:
        raise ValueError(f"softmax_mode 'fast' needs bfloat16 tensors, not {dtype}")
    if request.wide_softmax and (dtype != torch.bfloat16 or request.training):
        raise AssertionError("softmax_mode 'fp32' is for bfloat16 tensors, in inference")
    if request.training and request.return_probabilities:
        raise AssertionError("return_attn_probs is supported only for inference mode")
    if request.training and request.fast_softmax and request.recompute and not request.causal:
        raise AssertionError(
            "Optimized softmax mode is supported in recompute training mode only in causal(triangular) mask case"
        )
    plain_causal = request.causal and request.mask is None
    if request.lengths is not None and (request.training or not plain_causal):
        raise AssertionError(
            "Valid sequence length is supported only in inference with is_causal(triangular) mask case"
        )
    if request.return_dropout_mask and request.recompute:
        raise AssertionError("Return_dropout_mask is not supported in recompute mode")


def check_shapes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float) -> None:
    """ValueError unless q, k, v are [batch, heads, tokens, size] or [batch, tokens, size], match, and p is below 1."""
    if not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"dropout_p must be at least 0 and below 1, not {dropout_p}")
    dtype, queries, keys, values = q.dtype, q.shape, k.shape, v.shape
    if not dtype == k.dtype == v.dtype or not dtype.is_floating_point:
        raise ValueError("query, key and value must have the same floating-point dtype")
    if len(queries) not in (3, 4) or not len(queries) == len(keys) == len(values):
        raise ValueError("query, key and value must all have 3 or all have 4 dimensions")
    if not queries[0] == keys[0] == values[0]:
        raise ValueError("query, key and value must have the same batch size; it is not broadcast")
    if keys[-2] != values[-2] or queries[-1] != keys[-1]:
        raise ValueError("key and value need the same number of tokens, query and key the same head size")
    if len(queries) == 4 and (keys[1] != values[1] or keys[1] == 0 or queries[1] % keys[1]):
        raise ValueError("key and value need the same number of heads, a divisor of the query heads")


def _one_of(argument: str, value: str, allowed: tuple[str, ...]) -> str:
    if value.lower() not in allowed:
        raise ValueError(f"{argument} must be one of {', '.join(allowed)}, not {value!r}")
    return value.lower()


def _lengths(valid_seq_len: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor) -> tuple[int, ...] | None:
    if valid_seq_len is None:
        return None
    # One `item` at a time: unlike `tolist`, a graph capture notices it, and refuses to freeze the lengths.
    lengths = tuple(int(length.item()) for length in valid_seq_len.flatten())
    if len(lengths) != q.size(0) or q.size(-2) != k.size(-2):
        raise ValueError("valid_seq_len needs one length per sequence, and as many queries as keys")
    if any(not 0 <= length <= q.size(-2) for length in lengths):
        raise ValueError(f"a valid length must be between 0 and {q.size(-2)} tokens")
    return lengths
