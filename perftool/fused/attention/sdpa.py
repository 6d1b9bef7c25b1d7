"""`FusedSDPA`: scaled dot-product attention with Gaudi's arguments, on any device.

Which algorithm runs on a CPU was decided by measurement (benchmarks/fused/results_ops.md):

| case | algorithm | memory |
|---|---|---|
| float32 and wider, float16 | `F.scaled_dot_product_attention` | tokens |
| bfloat16 on a processor that does not multiply it well | the same | tokens |
| bfloat16, a few keys | the same | tokens |
| bfloat16, long | tiled over query rows | tokens |
| bfloat16, short | probabilities kept | tokens², bounded by the length limit |
| dropout, or a mask together with causal | tiled over query rows | tokens |
| no-recompute, probabilities or dropout mask wanted | probabilities kept | tokens² |

Where the processor does not multiply a narrow dtype well, training and the algorithms of this package compute in
float32 and round the result. Other devices use `F.scaled_dot_product_attention` where the table names tiled
attention for speed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite

import torch
from torch.nn import functional as F

from perftool.fused.attention.capability import may_ask, multiplies_well
from perftool.fused.attention.request import AttentionRequest, read_request
from perftool.fused.attention.saved import saved_attention
from perftool.fused.attention.scores import dropout_keep, group_heads
from perftool.fused.attention.switches import recompute_sdp_enabled
from perftool.fused.attention.tiled import TileOptions, tiled_attention
from perftool.fused.dispatch import Implementation, always, choose, native, register, register_native
from perftool.fused.functions.applied import AppliedOp
from perftool.fused.reference.attention import attention as reference_attention

OP = "FusedSDPA"
_WIDE = (torch.float32, torch.float64)
# Keys of all heads up to which PyTorch's attention is faster in bfloat16, because it is one call: inference, training.
TINY = (512, 128)
# Query tokens from which tiling wins in bfloat16; training has to pay for computing each block twice.
# Keys are (causal, training).
SHORTEST_TILED = {(True, False): 256, (False, False): 512, (True, True): 512, (False, True): 1024}

register_native(OP, "hpex.kernels", "FusedSDPA")
register(Implementation(OP, "fast", ("cpu", "cuda"), always))
register(Implementation(OP, "reference", ("*",), always))

Outputs = torch.Tensor | tuple[torch.Tensor, ...]


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
        output, probabilities (before dropout) and boolean dropout mask (True: kept), each when asked for.

        q is [batch, heads, queries, size] or [batch, queries, size]; k and v may have fewer heads (a
        divisor). The mask broadcasts to [batch, heads, queries, keys]; it is boolean or added. The scale
        defaults to 1/√size. `softmax_mode` "fast" changes nothing here: PyTorch's softmax is as fast in full
        accuracy; "fp32" computes bfloat16 in float32. `recompute_mode` None means the global
        switch. `valid_seq_len` holds one length per sequence; padding gives zeros and is never computed.
        """
        # The native op would ask its own global switch, which ours does not set.
        recompute_mode = recompute_sdp_enabled() if recompute_mode is None else recompute_mode
        # With few tokens, describing a call takes longer than computing it: what is plain goes straight on.
        plain = attn_mask is None and valid_seq_len is None and recompute_mode and softmax_mode == "None"
        extras = dropout_p or return_dropout_mask or return_attn_probs or seq_padding_type != "left"
        choice = choose(OP, "cpu" if q.is_cpu else q.device.type)
        if plain and not extras and choice.name == "fast" and _is_for_torch(q, k, v):
            return _with_nan(_plain(q, k, v, is_causal, scale), q)
        arguments = (q, k, v, attn_mask, dropout_p, is_causal, scale, softmax_mode, recompute_mode,
                     valid_seq_len, seq_padding_type, return_dropout_mask, return_attn_probs)  # fmt: skip
        if choice.name == "habana":
            outputs: Outputs = native("hpex.kernels", "FusedSDPA").apply(*arguments)
            return outputs
        compute = _reference if choice.name == "reference" else _fast
        return _arranged(_attend(q, k, v, read_request(*arguments), compute))


@dataclass(frozen=True)
class Attended:
    """What attention computed; the algorithms that do not keep probabilities or dropout have None."""

    output: torch.Tensor
    probabilities: torch.Tensor | None = None
    keep: torch.Tensor | None = None


Algorithm = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, AttentionRequest], Attended]


def _arranged(attended: Attended) -> Outputs:
    """The tensors that are there, in Gaudi's output order; a single one without a tuple."""
    extras = [extra for extra in (attended.probabilities, attended.keep) if extra is not None]
    return (attended.output, *extras) if extras else attended.output


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, request: AttentionRequest, compute: Algorithm
) -> Attended:
    """Run an algorithm, made for 4-D tensors and whole sequences, on what the request describes."""
    if q.dim() == 3:
        mask = request.mask.unsqueeze(1) if request.mask is not None and request.mask.dim() == 3 else request.mask
        headed = replace(request, mask=mask)
        attended = _attend(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), headed, compute)
        return _mapped(attended, lambda tensor: tensor.squeeze(1))
    if request.lengths is not None:
        return _by_sequence(q, k, v, request, compute)
    return _wanted(compute(q, k, v, request), request)


def _wanted(attended: Attended, request: AttentionRequest) -> Attended:
    """Without the extras that an algorithm computed but nobody asked for."""
    return Attended(
        attended.output,
        attended.probabilities if request.return_probabilities else None,
        attended.keep if request.return_dropout_mask else None,
    )


def _mapped(attended: Attended, change: Callable[[torch.Tensor], torch.Tensor]) -> Attended:
    parts = (attended.output, attended.probabilities, attended.keep)
    output, probabilities, keep = (None if part is None else change(part) for part in parts)
    assert output is not None
    return Attended(output, probabilities, keep)


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
        attended = _wanted(compute(sequence_q, sequence_k, sequence_v, request), request)
        whole.output[index, :, valid] = attended.output[0]
        for target, source in ((whole.probabilities, attended.probabilities), (whole.keep, attended.keep)):
            if target is not None and source is not None:
                target[index, :, valid, valid] = source[0]
    return whole


def _reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, request: AttentionRequest) -> Attended:
    keep = None
    if request.dropout_p > 0.0 or request.return_dropout_mask:
        keep = dropout_keep(q.new_empty((*q.shape[:-1], k.size(2))), request.dropout_p)
    output, probabilities = reference_attention(
        q, k, v, request.mask, request.causal, request.scale, keep, request.dropout_p
    )
    return Attended(output, probabilities, keep)


def _fast(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, request: AttentionRequest) -> Attended:
    algorithm = fast_algorithm(q, k, request)
    if request.wide_softmax or _is_better_wide(q, request, algorithm):
        mask = request.mask
        added = mask.float() if mask is not None and mask.is_floating_point() else mask
        wide = _fast(q.float(), k.float(), v.float(), replace(request, mask=added, wide_softmax=False))
        return _mapped(wide, lambda tensor: tensor if tensor.dtype == torch.bool else tensor.to(q.dtype))
    if algorithm == "torch":
        return Attended(_torch_attention(q, k, v, request))
    grouped = group_heads(q, k, v, request.mask)
    if algorithm == "tiled":
        seed = int(torch.randint(2**62, ()).item()) if request.dropout_p > 0.0 else None
        options = TileOptions(request.causal, request.scale, request.dropout_p, seed)
        return Attended(tiled_attention(grouped, options).flatten(1, 2))
    output, probabilities, keep = saved_attention(grouped, request.causal, request.scale, request.dropout_p)
    if request.return_dropout_mask and keep is None:
        keep = torch.ones_like(probabilities, dtype=torch.bool)
    return Attended(output.flatten(1, 2), probabilities.flatten(1, 2), None if keep is None else keep.flatten(1, 2))


def _is_better_wide(q: torch.Tensor, request: AttentionRequest, algorithm: str) -> bool:
    """Whether float32 products, with two casts, beat those in the dtype of q; the forward of torch does well alone."""
    if q.device.type != "cpu" or multiplies_well(q.dtype):
        return False
    return request.training or algorithm != "torch"


def fast_algorithm(q: torch.Tensor, k: torch.Tensor, request: AttentionRequest) -> str:
    """`torch`, `tiled` or `saved`: see the table at the top of this module."""
    if not request.recompute:
        return "saved"
    if request.mask is not None and request.causal:
        return "tiled"
    if q.device.type != "cpu":
        return "torch"
    if request.dropout_p > 0.0:
        return "tiled"
    if q.dtype != torch.bfloat16 or not multiplies_well(q.dtype) or _is_tiny(k, request.training):
        return "torch"
    return "tiled" if q.size(2) >= SHORTEST_TILED[request.causal, request.training] else "saved"


def _torch_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, request: AttentionRequest) -> torch.Tensor:
    """PyTorch's own attention, which repeats nothing in backward but the probabilities."""
    # Heads that share keys and values read the same memory.
    shared = {"enable_gqa": True} if k.size(1) != q.size(1) else {}
    output: torch.Tensor = F.scaled_dot_product_attention(
        q, k, v, request.mask, request.dropout_p, request.causal, scale=request.scale, **shared
    )
    return _with_nan(output, q) if q.device.type == "cpu" else output


def _plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, scale: float | None) -> torch.Tensor:
    if q.shape[1] == k.shape[1]:
        # Each argument by name costs a short call a few hundredths of its time.
        if scale is None:
            return F.scaled_dot_product_attention(q, k, v, None, 0.0, is_causal)
        return F.scaled_dot_product_attention(q, k, v, None, 0.0, is_causal, scale=scale)
    return F.scaled_dot_product_attention(q, k, v, None, 0.0, is_causal, scale=scale, enable_gqa=True)


def _with_nan(output: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """The output of PyTorch's CPU kernel, which answers a NaN query with zeros: that would hide a diverged run."""
    queries = q.detach() if q.requires_grad else q
    if may_ask() and isfinite(queries.sum()):
        return output
    nothing_or_nan = queries.amax(-1, keepdim=True).mul_(0.0)
    return output + nothing_or_nan if output.requires_grad else output.add_(nothing_or_nan)


def _is_for_torch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether these are 4-D tensors on the CPU that match, in a dtype in which PyTorch's own attention is the best."""
    queries, keys = q.shape, k.shape
    if len(queries) != 4 or keys != v.shape or not q.dtype is k.dtype is v.dtype:
        return False
    if queries != keys or not keys[1]:
        matching = len(keys) == 4 and queries[0] == keys[0] and queries[3] == keys[3]
        if not matching or not keys[1] or queries[1] % keys[1]:
            return False
    return _is_best_by_torch(q, k, v) and q.is_cpu and k.is_cpu and v.is_cpu


def _is_best_by_torch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether `fast_algorithm` would be `torch`, in the dtype of q, for a plain call."""
    if q.dtype in _WIDE:
        return True
    if multiplies_well(q.dtype):
        return q.dtype is torch.bfloat16 and _is_tiny(k, q.requires_grad)
    return not (q.requires_grad or k.requires_grad or v.requires_grad)


def _is_tiny(k: torch.Tensor, training: bool) -> bool:
    return k.numel() // max(1, k.size(-1)) <= TINY[training]
