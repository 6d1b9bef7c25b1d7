"""`FusedSDPA`: scaled dot-product attention with Gaudi's arguments, on any device.

Most calls run `F.scaled_dot_product_attention`. Calls with arguments that this op does not support run the plain
`formula`, whose memory grows with tokens²; docs/fused/attention.md lists the cost of these arguments.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from perftool.fused.dispatch import choose, native_op, register, register_native
from perftool.fused.functions import AppliedOp

OP = "FusedSDPA"

register_native(OP)
register(OP, "fast", ("cpu", "cuda"))
register(OP, "reference")

Outputs = Tensor | tuple[Tensor, ...]
Attended = tuple[Tensor, Tensor | None, Tensor | None]
"""The output, then the probabilities and the dropout mask, or None if they are not computed."""

_recompute = True


def enable_recompute_sdp(enabled: bool) -> None:
    """Set whether calls with `recompute_mode=None` recompute the probabilities in backward (default: yes)."""
    global _recompute
    _recompute = bool(enabled)


def recompute_sdp_enabled() -> bool:
    """Whether calls with `recompute_mode=None` recompute the probabilities in backward."""
    return _recompute


@contextmanager
def sdp_kernel(enable_recompute: bool = True) -> Iterator[None]:
    """Apply `enable_recompute_sdp` within the block.

    The block causes a graph break in `torch.compile`; to avoid it, pass `recompute_mode` to the call.
    """
    previous = recompute_sdp_enabled()
    enable_recompute_sdp(enable_recompute)
    try:
        yield
    finally:
        enable_recompute_sdp(previous)


class FusedSDPA(AppliedOp):
    """Scaled dot-product attention; call `FusedSDPA.apply` as on Gaudi."""

    @staticmethod
    def apply(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        softmax_mode: str = "None",
        recompute_mode: bool | None = None,
        valid_seq_len: Tensor | None = None,
        seq_padding_type: str = "left",
        return_dropout_mask: bool = False,
        return_attn_probs: bool = False,
        /,
    ) -> Outputs:
        """Return softmax(scale q kᵀ + mask) v, with dropout applied to the probabilities. Optionally, also return the
        probabilities (before dropout) and the boolean dropout mask (True means kept).

        q is [batch, heads, queries, size] or [batch, queries, size]; the number of heads of k and v may be a divisor of
        that of q. The mask is boolean, or is added to the scores. The `softmax_mode` "fast" only matters on a Gaudi;
        "fp32" computes bfloat16 inputs in float32.
        """
        # The native op would use its own global switch, which ours does not set.
        recompute_mode = _recompute if recompute_mode is None else recompute_mode
        choice = choose(OP, "cpu" if q.is_cpu else q.device.type)
        extras = return_dropout_mask or return_attn_probs or seq_padding_type != "left" or softmax_mode != "None"
        if choice == "fast" and attn_mask is None and valid_seq_len is None and recompute_mode and not extras:
            # The other arguments are not checked, because with few tokens, checks would add noticeable overhead.
            _check_shapes(q, k, v, dropout_p)
            if q.dim() == 4:
                return _torch_attention(q, k, v, None, dropout_p, is_causal, scale)
        options = (dropout_p, is_causal, scale, softmax_mode, recompute_mode, valid_seq_len, seq_padding_type,
                   return_dropout_mask, return_attn_probs)  # fmt: skip
        if choice == "habana":
            outputs: Outputs = native_op(OP).apply(q, k, v, attn_mask, *options)
            return outputs
        _check_shapes(q, k, v, dropout_p)
        if q.dim() == 3:
            mask = attn_mask.unsqueeze(1) if attn_mask is not None and attn_mask.dim() == 3 else attn_mask
            outputs = FusedSDPA.apply(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), mask, *options)
            return outputs.squeeze(1) if isinstance(outputs, Tensor) else tuple(x.squeeze(1) for x in outputs)
        softmax = _one_of("softmax_mode", softmax_mode, ("none", "fast", "fp32"))
        padding = _one_of("seq_padding_type", seq_padding_type, ("left", "right"))
        recompute = recompute_mode and not return_attn_probs
        training = q.requires_grad or k.requires_grad or v.requires_grad
        if softmax == "fast" and q.dtype != torch.bfloat16:
            raise ValueError(f"softmax_mode 'fast' needs bfloat16 tensors, not {q.dtype}")
        # Errors and messages are Gaudi's own, because scripts may look for them.
        if softmax == "fp32" and (q.dtype != torch.bfloat16 or training):
            raise AssertionError("softmax_mode 'fp32' is for bfloat16 tensors, in inference")
        if training and return_attn_probs:
            raise AssertionError("return_attn_probs is supported only for inference mode")
        if training and softmax == "fast" and recompute and not is_causal:
            raise AssertionError(
                "Optimized softmax mode is supported in recompute training mode only in causal(triangular) mask case"
            )
        if valid_seq_len is not None and (training or not is_causal or attn_mask is not None):
            raise AssertionError(
                "Valid sequence length is supported only in inference with is_causal(triangular) mask case"
            )
        if return_dropout_mask and recompute:
            raise AssertionError("Return_dropout_mask is not supported in recompute mode")
        # As on a Gaudi, the mask gets at least two dimensions and no gradient.
        mask = None if attn_mask is None else attn_mask.detach()[(None,) * (2 - attn_mask.dim())]
        plain = choice == "reference" or not recompute
        wide, dtype = softmax == "fp32", q.dtype
        if wide:
            q, k, v = q.float(), k.float(), v.float()
            mask = mask.float() if mask is not None and mask.is_floating_point() else mask
        how = mask, dropout_p, is_causal, scale, plain, return_dropout_mask
        if valid_seq_len is None:
            output, probabilities, keep = _attend(q, k, v, *how)
        else:
            lengths = _lengths(valid_seq_len, q, k)
            wanted = return_attn_probs, return_dropout_mask
            output, probabilities, keep = _by_sequence(q, k, v, lengths, padding == "left", how, wanted)
        chosen = (output, probabilities if return_attn_probs else None, keep if return_dropout_mask else None)
        converted = [each.to(dtype) if wide and each is not keep else each for each in chosen if each is not None]
        return tuple(converted) if len(converted) > 1 else converted[0]


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    causal: bool,
    scale: float | None,
    plain: bool,
    with_keep: bool,
) -> Attended:
    """Run the plain formula or PyTorch's op. `with_keep` requests a dropout mask even without dropout."""
    if plain:
        keep = None
        if dropout_p > 0.0 or with_keep:
            keep = torch.empty((*q.shape[:-1], k.size(2)), dtype=torch.bool, device=q.device)
            keep.bernoulli_(1.0 - dropout_p)
        return *formula(q, k, v, mask, causal, scale, keep, dropout_p), keep
    if mask is not None and causal:
        mask, causal = _with_causal(mask, q.size(2), k.size(2)), False
    return _torch_attention(q, k, v, mask, dropout_p, causal, scale), None, None


def _torch_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float, causal: bool, scale: float | None
) -> Tensor:
    shared = k.size(1) != q.size(1)
    return F.scaled_dot_product_attention(q, k, v, mask, dropout_p, causal, scale=scale, enable_gqa=shared)


def _by_sequence(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: tuple[int, ...],
    left_padded: bool,
    how: Any,
    extras: tuple[bool, bool],
) -> Attended:
    """Compute attention only over the valid tokens of each sequence, so padding costs nothing; its output is zero."""
    tokens = q.size(2)
    output = q.new_zeros((*q.shape[:-1], v.size(-1)))
    probabilities = q.new_zeros((*q.shape[:-1], tokens)) if extras[0] else None
    keep = q.new_zeros((*q.shape[:-1], tokens), dtype=torch.bool) if extras[1] else None
    for index, length in enumerate(lengths):
        if length == 0:
            continue
        valid = slice(tokens - length, tokens) if left_padded else slice(0, length)
        alone_q, alone_k, alone_v = (tensor[index : index + 1, :, valid] for tensor in (q, k, v))
        found, *parts = _attend(alone_q, alone_k, alone_v, *how)
        output[index, :, valid] = found[0]
        for whole, part in zip((probabilities, keep), parts, strict=True):
            if whole is not None and part is not None:
                whole[index, :, valid, valid] = part[0]
    return output, probabilities, keep


def formula(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    keep: Tensor | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return softmax(scale q kᵀ + mask) v and the probabilities; scale defaults to 1/√size.

    q is [..., heads, queries, size]; k and v may have fewer heads, each shared by consecutive query heads. The mask is
    boolean (True: attend) or added to the scores. `keep` is a dropout mask for rate `dropout_p`. Softmax runs in at
    least float32. Rows in which all keys are masked become zeros.
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


def _with_causal(mask: Tensor, queries: int, keys: int) -> Tensor:
    allowed = torch.ones(queries, keys, dtype=torch.bool, device=mask.device).tril()
    if mask.dtype == torch.bool:
        return mask & allowed
    return mask.expand(*mask.shape[:-2], queries, keys).masked_fill(~allowed, float("-inf"))


def _check_shapes(q: Tensor, k: Tensor, v: Tensor, dropout_p: float) -> None:
    """Raise ValueError unless q, k and v are matching [batch, heads, tokens, size] or [batch, tokens, size], and
    `dropout_p` is at least 0 and below 1."""
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
        raise ValueError("key and value need the same number of heads, which must divide the number of query heads")


def _one_of(argument: str, value: str, allowed: tuple[str, ...]) -> str:
    if value.lower() not in allowed:
        raise ValueError(f"{argument} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
    return value.lower()


def _lengths(valid_seq_len: Tensor, q: Tensor, k: Tensor) -> tuple[int, ...]:
    # `item` raises an error during graph capture; `tolist` would silently freeze the lengths.
    lengths = tuple(int(length.item()) for length in valid_seq_len.flatten())
    if len(lengths) != q.size(0) or q.size(-2) != k.size(-2):
        raise ValueError("valid_seq_len needs one length per sequence, and q and k of the same sequence length")
    if any(not 0 <= length <= q.size(-2) for length in lengths):
        raise ValueError(f"a valid length must be between 0 and {q.size(-2)} tokens")
    return lengths
