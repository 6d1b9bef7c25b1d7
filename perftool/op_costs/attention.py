"""Fused attention, which never writes the score matrix to memory. Forward takes two matmuls; backward takes five, one
of them to recompute the scores (Dao, FlashAttention-2, 2023). As in that paper, a causal mask halves the work for a
square score matrix, and the operations of softmax are left out. Matmuls are counted for each head of the queries; keys
and values that several heads share are read once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perftool.op_costs.call import Call, NoModelError
from perftool.op_costs.cost import Cost, moved


@dataclass(frozen=True)
class AttentionLayout:
    """The positions of an op's arguments; None for arguments that the op does not have. Key and value follow ``query``.

    ``packed`` is the argument with the sequence lengths if one tensor contains several sequences. ``heads`` is not an
    argument, but the dimension of q, k and v that counts the heads.
    """

    causal: int
    heads: int
    query: int = 0
    bias: int | None = None
    packed: int | None = None

    def __call__(self, call: Call) -> Cost:
        q, k, v = (call.tensor(self.query + at) for at in range(3))
        length = 3 - self.heads
        joined = self.packed is not None and call.has(self.packed) and call.tensor(self.packed).count > 0
        if joined or not len(q.dims) == len(k.dims) == len(v.dims) == 4:
            raise NoModelError("sequences of several lengths")
        pairs = q.dims[0] * q.dims[self.heads] * _pairs(q.dims[length], k.dims[length], self._masked(call))
        inner, outer = q.dims[3], v.dims[3]
        result = q.shaped((*q.dims[:3], outer))
        extra = [call.tensor(self.bias)] if self.bias is not None and call.has(self.bias) else []
        if self.query:
            size = moved(result, result) + 2 * moved(q, k, v)
            return Cost(round(2 * pairs * (3 * inner + 2 * outer)), size + moved(*extra), "matrix", q.rate_name)
        return Cost(round(2 * pairs * (inner + outer)), moved(q, k, v, result, *extra), "matrix", q.rate_name)

    def _masked(self, call: Call) -> bool:
        """Whether the mask is causal. The argument is a boolean, or a number for the kind of mask (0 for none)."""
        text = call.text(self.causal)
        return call.flag(self.causal) if text in ("True", "False") else call.numbers(self.causal) not in ([], [0])


def _pairs(queries: int, keys: int, causal: bool) -> float:
    """Return the number of query-key pairs per head. A causal mask is aligned with the last query and key."""
    if not causal:
        return queries * keys
    return queries * (keys - queries / 2) if queries <= keys else keys * keys / 2


ATTENTION: dict[str, Callable[[Call], Cost]] = {
    "aten::_flash_attention_forward": AttentionLayout(causal=8, heads=2, packed=3),
    "aten::_flash_attention_backward": AttentionLayout(causal=11, heads=2, query=1, packed=6),
    "aten::_efficient_attention_forward": AttentionLayout(causal=9, heads=2, bias=3, packed=4),
    "aten::_efficient_attention_backward": AttentionLayout(causal=14, heads=2, query=1, bias=4, packed=6),
    "aten::_cudnn_attention_forward": AttentionLayout(causal=10, heads=1, bias=3, packed=4),
    "aten::_cudnn_attention_backward": AttentionLayout(causal=14, heads=1, query=1, bias=8, packed=9),
    "aten::_scaled_dot_product_flash_attention": AttentionLayout(causal=4, heads=1),
    "aten::_scaled_dot_product_flash_attention_backward": AttentionLayout(causal=11, heads=1, query=1, packed=6),
    "aten::_scaled_dot_product_efficient_attention": AttentionLayout(causal=6, heads=1, bias=3),
    "aten::_scaled_dot_product_efficient_attention_backward": AttentionLayout(causal=11, heads=1, query=1, bias=4),
    "aten::_scaled_dot_product_cudnn_attention": AttentionLayout(causal=6, heads=1, bias=3),
    "aten::_scaled_dot_product_cudnn_attention_backward": AttentionLayout(
        causal=14, heads=1, query=1, bias=8, packed=9
    ),
    "aten::_scaled_dot_product_fused_attention_overrideable": AttentionLayout(causal=5, heads=1, bias=3),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": AttentionLayout(
        causal=13, heads=1, query=1, bias=4, packed=8
    ),
    "aten::_scaled_dot_product_flash_attention_for_cpu": AttentionLayout(causal=4, heads=1),
}
