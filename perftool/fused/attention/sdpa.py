"""`FusedSDPA`: scaled dot-product attention with Gaudi's arguments, on any device.

`F.scaled_dot_product_attention` computes it, and chooses its own algorithm. It does not support some arguments; these
run the plain formula of `perftool.fused.reference` instead, whose memory grows with tokens²:

| argument | price |
|---|---|
| no-recompute mode, `return_attn_probs`, `return_dropout_mask` | the probabilities are kept in memory |
| `valid_seq_len` | one call for each sequence, on its valid tokens only |
| `softmax_mode` "fp32" | copies of q, k and v in float32 |
| a mask together with `is_causal` | both are merged into one mask |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch.nn import functional as F

from perftool.fused.attention.request import AttentionRequest, check_shapes, read_request
from perftool.fused.dispatch import Implementation, always, choose, native, register, register_native
from perftool.fused.functions import AppliedOp
from perftool.fused.reference.attention import attention as reference_attention

OP = "FusedSDPA"

register_native(OP, "hpex.kernels", "FusedSDPA")
register(Implementation(OP, "fast", ("cpu", "cuda"), always))
register(Implementation(OP, "reference", ("*",), always))

Outputs = torch.Tensor | tuple[torch.Tensor, ...]

_recompute = True


def enable_recompute_sdp(enabled: bool) -> None:
    """Make recompute (True, the default) or no-recompute (False) the mode of calls whose `recompute_mode` is None."""
    global _recompute
    _recompute = bool(enabled)


def recompute_sdp_enabled() -> bool:
    """True when calls that do not name a mode recompute."""
    return _recompute


@contextmanager
def sdp_kernel(enable_recompute: bool = True) -> Iterator[None]:
    """Set the mode of calls that do not name one, within the block; then restore the previous mode.

    Under `torch.compile` this splits the graph; pass `recompute_mode` to the call instead.
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
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        softmax_mode: str = "None",
        recompute_mode: bool | None = None,
        valid_seq_len: torch.Tensor | None = None,
        seq_padding_type: str = "left",
        return_dropout_mask: bool = False,
        return_attn_probs: bool = False,
        /,
    ) -> Outputs:
        """softmax(scale q kᵀ + mask) v, with dropout of the probabilities, and extras in this order:
        output, probabilities (before dropout) and boolean dropout mask (True: kept), each on request.

        q is [batch, heads, queries, size] or [batch, queries, size]; k and v may have fewer heads (a
        divisor). The mask broadcasts to [batch, heads, queries, keys]; it is boolean or added. The scale
        defaults to 1/√size. `softmax_mode` "fast" changes nothing here; "fp32" computes bfloat16 in float32.
        `recompute_mode` None means the global switch. `valid_seq_len` holds one length per sequence; padding gives
        zeros and is never computed.
        """
        # The native op would use its own global switch, which ours does not set.
        recompute_mode = _recompute if recompute_mode is None else recompute_mode
        choice = choose(OP, "cpu" if q.is_cpu else q.device.type).name
        extras = return_dropout_mask or return_attn_probs or seq_padding_type != "left" or softmax_mode != "None"
        if choice == "fast" and attn_mask is None and valid_seq_len is None and recompute_mode and not extras:
            # With few tokens, describing the call takes longer than the call itself.
            check_shapes(q, k, v, dropout_p)
            if q.dim() == 4:
                return _torch_attention(q, k, v, None, dropout_p, is_causal, scale)
        arguments = (q, k, v, attn_mask, dropout_p, is_causal, scale, softmax_mode, recompute_mode,
                     valid_seq_len, seq_padding_type, return_dropout_mask, return_attn_probs)  # fmt: skip
        if choice == "habana":
            outputs: Outputs = native("hpex.kernels", "FusedSDPA").apply(*arguments)
            return outputs
        compute = _reference if choice == "reference" else _fast
        attended = _attend(q, k, v, read_request(*arguments), compute)
        given = [extra for extra in (attended.probabilities, attended.keep) if extra is not None]
        return (attended.output, *given) if given else attended.output


@dataclass(frozen=True)
class Attended:
    """The output, and the extras that the call requested."""

    output: torch.Tensor
    probabilities: torch.Tensor | None = None
    keep: torch.Tensor | None = None

    def mapped(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Attended:
        """The same with every tensor changed."""
        extras = (None if part is None else change(part) for part in (self.probabilities, self.keep))
        return Attended(change(self.output), *extras)


Algorithm = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, AttentionRequest], Attended]


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, request: AttentionRequest, compute: Algorithm
) -> Attended:
    """Run an algorithm for 4-D tensors and whole sequences on the described request."""
    if q.dim() == 3:
        mask = request.mask.unsqueeze(1) if request.mask is not None and request.mask.dim() == 3 else request.mask
        headed = replace(request, mask=mask)
        attended = _attend(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), headed, compute)
        return attended.mapped(lambda tensor: tensor.squeeze(1))
    if request.lengths is not None:
        return _by_sequence(q, k, v, request, compute)
    return compute(q, k, v, request)


def _by_sequence(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, request: AttentionRequest, compute: Algorithm
) -> Attended:
    """Each sequence on its valid tokens alone, so padding costs nothing; zeros elsewhere."""
    assert request.lengths is not None
    tokens = q.size(2)
    whole = Attended(
        q.new_zeros((*q.shape[:-1], v.size(-1))),
        q.new_zeros((*q.shape[:-1], tokens)) if request.return_probabilities else None,
        q.new_zeros((*q.shape[:-1], tokens), dtype=torch.bool) if request.return_dropout_mask else None,
    )
    for index, length in enumerate(request.lengths):
        if length == 0:
            continue
        valid = slice(tokens - length, tokens) if request.left_padded else slice(0, length)
        sequence_q, sequence_k, sequence_v = (tensor[index : index + 1, :, valid] for tensor in (q, k, v))
        attended = compute(sequence_q, sequence_k, sequence_v, request)
        whole.output[index, :, valid] = attended.output[0]
        for target, source in ((whole.probabilities, attended.probabilities), (whole.keep, attended.keep)):
            if target is not None and source is not None:
                target[index, :, valid, valid] = source[0]
    return whole


def _reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, request: AttentionRequest) -> Attended:
    """The plain formula, which also gives the probabilities and the dropout mask."""
    keep = None
    if request.dropout_p > 0.0 or request.return_dropout_mask:
        keep = torch.empty((*q.shape[:-1], k.size(2)), dtype=torch.bool, device=q.device)
        keep.bernoulli_(1.0 - request.dropout_p)
    output, probabilities = reference_attention(
        q, k, v, request.mask, request.causal, request.scale, keep, request.dropout_p
    )
    return Attended(
        output,
        probabilities if request.return_probabilities else None,
        keep if request.return_dropout_mask else None,
    )


def _fast(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, request: AttentionRequest) -> Attended:
    if request.wide_softmax:
        mask = request.mask
        added = mask.float() if mask is not None and mask.is_floating_point() else mask
        wide = _fast(q.float(), k.float(), v.float(), replace(request, mask=added, wide_softmax=False))
        return wide.mapped(lambda tensor: tensor if tensor.dtype == torch.bool else tensor.to(q.dtype))
    if not request.recompute:
        return _reference(q, k, v, request)
    mask, causal = request.mask, request.causal
    if mask is not None and causal:
        mask, causal = _with_causal(mask, q.size(2), k.size(2)), False
    return Attended(_torch_attention(q, k, v, mask, request.dropout_p, causal, request.scale))


def _with_causal(mask: torch.Tensor, queries: int, keys: int) -> torch.Tensor:
    allowed = torch.ones(queries, keys, dtype=torch.bool, device=mask.device).tril()
    if mask.dtype == torch.bool:
        return mask & allowed
    return mask.expand(*mask.shape[:-2], queries, keys).masked_fill(~allowed, float("-inf"))


def _torch_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    dropout_p: float,
    causal: bool,
    scale: float | None,
) -> torch.Tensor:
    shared = k.size(1) != q.size(1)
    return F.scaled_dot_product_attention(q, k, v, mask, dropout_p, causal, scale=scale, enable_gqa=shared)
