"""Custom ops with public signatures in vLLM (csrc/torch_bindings.cpp), AITER and the package flash-attn.

Operations per element: RMS normalisation 4 (as in ``layers``), and 1 for the residual; a rotation 3 (4 products and 2
sums for two elements); an activation times a gate 2; a quantisation 1. A cache write accesses only the listed slots.
"""

from __future__ import annotations

from collections.abc import Callable

from perftool.op_costs.attention import AttentionLayout
from perftool.op_costs.call import Call, NoModelError, Tensor
from perftool.op_costs.cost import Cost, moved
from perftool.op_costs.lengths import lengths_of


def _rms_norm(call: Call) -> Cost:
    """``rms_norm(result, input, weight, epsilon)``."""
    result, x, weight = (call.tensor(at) for at in range(3))
    return Cost(4 * x.count, moved(result, x, weight), "vector", x.rate_name)


def _add_rms_norm(call: Call) -> Cost:
    """``fused_add_rms_norm(input, residual, weight, epsilon)``, which reads and writes input and residual."""
    x, residual, weight = (call.tensor(at) for at in range(3))
    return Cost(5 * x.count, 2 * moved(x, residual) + weight.bytes, "vector", x.rate_name)


def _rotary(call: Call) -> Cost:
    """``rotary_embedding(positions, query, key, head_size, angles, is_neox)``, with one row of angles per position."""
    positions, query, table = call.tensor(0), call.tensor(1), call.tensor(4)
    turned = [query, *([call.tensor(2)] if call.has(2) else [])]
    if len(table.dims) != 2:
        raise NoModelError("no table of angles")
    rows = table.shaped((positions.count, table.dims[1]))
    count = sum(one.count for one in turned)
    return Cost(3 * count, 2 * moved(*turned) + moved(positions, rows), "vector", query.rate_name)


def _gated(call: Call) -> Cost:
    """``silu_and_mul(result, input)``, whose input contains values and gates."""
    result, x = call.tensor(0), call.tensor(1)
    return Cost(2 * result.count, moved(result, x), "vector", x.rate_name)


def _quantised(call: Call) -> Cost:
    """``static_scaled_fp8_quant(result, input, scale)`` and its dynamic forms, which compute the scale from the input's
    maximum."""
    result, x = call.tensor(0), call.tensor(1)
    return Cost(x.count, moved(result, x), "vector", x.rate_name)


def _cached(call: Call) -> Cost:
    """``reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, ...)``."""
    key, value, slots = call.tensor(0), call.tensor(1), call.tensor(4)
    kept = key.typed(call.tensor(2).type), value.typed(call.tensor(3).type)
    return Cost(0, moved(key, value, slots, *kept), "vector", key.rate_name)


def _group_norm(call: Call) -> Cost:
    """AITER's ``_groupnorm_run(input, groups, weight, bias, epsilon)``, counted like PyTorch's group norm."""
    x = call.tensor(0)
    return Cost(8 * x.count, moved(x, x, *call.tensors(2, 4)), "vector", x.rate_name)


SERVING_NORMS: dict[str, Callable[[Call], Cost]] = {
    "_C::rms_norm": _rms_norm, "_C::fused_add_rms_norm": _add_rms_norm,
    "aiter::_groupnorm_run": _group_norm,
}  # fmt: skip
SERVING_POINTWISE: dict[str, Callable[[Call], Cost]] = {
    "_C::rotary_embedding": _rotary,
    "_C::silu_and_mul": _gated, "_C::gelu_and_mul": _gated, "_C::gelu_tanh_and_mul": _gated,
    "_C::static_scaled_fp8_quant": _quantised, "_C::dynamic_scaled_fp8_quant": _quantised,
    "_C::dynamic_per_token_scaled_fp8_quant": _quantised,
    "_C_cache_ops::reshape_and_cache": _cached, "_C_cache_ops::reshape_and_cache_flash": _cached,
}  # fmt: skip


def _paged(call: Call) -> Cost:
    """vLLM's attention over a cache: ``unified_attention(query, key, value, ...)``, each [new tokens, heads, size].

    The sequences in a step have different lengths; the annotation around the call states their sums. The mask is
    causal. The cache is assumed to have the type of the queries. Raises NoModelError if Triton's 2d kernel runs,
    because it may limit the keys to a window whose size is not recorded.
    """
    q, k, v = (call.tensor(at) for at in range(3))
    lengths = lengths_of(call.around)
    if not len(q.dims) == len(k.dims) == len(v.dims) == 3 or lengths.queries > q.dims[0]:
        raise NoModelError("tokens of another batch")
    if any(name.endswith("attention_2d") for name, _ in call.grids):
        raise NoModelError("the window is not recorded")
    heads, inner, outer = q.dims[1], q.dims[2], v.dims[2]
    fresh = (q.shaped((lengths.queries, heads, inner)), Tensor((lengths.queries, heads, outer), k.type))
    cached = (q.shaped((lengths.keys, k.dims[1], inner)), q.shaped((lengths.keys, v.dims[1], outer)))
    return Cost(round(2 * heads * lengths.pairs * (inner + outer)), moved(*fresh, *cached), "matrix", q.rate_name)


PAGED = ("vllm::unified_attention", "vllm::unified_attention_with_output")
SERVING_ATTENTION: dict[str, Callable[[Call], Cost]] = {
    **dict.fromkeys(PAGED, _paged),
    "aiter::fmha_v3_fwd": AttentionLayout(causal=5, heads=2),
    "flash_attn::_flash_attn_forward": AttentionLayout(causal=5, heads=2),
    "flash_attn::_flash_attn_backward": AttentionLayout(causal=11, heads=2, query=1),
}  # fmt: skip
