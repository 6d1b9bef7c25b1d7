"""Pointwise ops, reductions, copies and fills: one operation per element of the result, or of the reduced tensor. A
function (exp, erf, a square root) counts as one operation, because these ops are memory-bound anyway. Copies, fills and
conversions take no operations. Ops that fill a tensor with random numbers have no model, because they are limited by
the random number generator, whose rate is not published.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from perftool.op_costs.call import Call, NoModelError, broadcast, is_whole, promoted
from perftool.op_costs.cost import Cost, moved

# Op names by the number of leading tensor arguments. In-place forms write to their first argument.
_POINTWISE = {
    1: "abs ceil cos erf exp expm1 floor gelu hardswish leaky_relu log log1p log2 mish neg reciprocal relu round rsqrt "
       "sigmoid sign silu sin softplus sqrt square tan tanh clamp_min clamp_max hardtanh elu bitwise_not "
       "logical_not isnan isinf tril triu",
    2: "add sub rsub mul div pow maximum minimum remainder fmod atan2 eq ne lt le gt ge logical_and logical_or "
       "logical_xor bitwise_and bitwise_or bitwise_xor masked_fill gelu_backward silu_backward "
       "threshold_backward sigmoid_backward tanh_backward hardswish_backward native_dropout_backward",
    3: "addcmul addcdiv where lerp clamp",
}  # fmt: skip
# Ops that return bools.
_TRUTH = {
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf",
}  # fmt: skip
# Ops that return floats for integers.
_REAL = {
    "cos", "erf", "exp", "expm1", "log", "log1p", "log2", "reciprocal", "rsqrt", "sigmoid", "sin", "sqrt", "tan",
    "tanh", "div",
}  # fmt: skip


def _pointwise(call: Call, operands: int, name: str, in_place: bool) -> Cost:
    read = call.tensors(0, operands)
    if not read:
        raise NoModelError("no tensor")
    values = read[1:] if name == "where" else read[:1] if name == "masked_fill" else read
    kind = "bool" if name in _TRUTH else promoted(values or read)
    kind = "float" if name in _REAL and is_whole(kind) else kind
    result = read[0] if in_place else read[0].shaped(broadcast(read)).typed(kind)
    return Cost(result.count, moved(*read, result), "vector", read[0].rate_name)


def _dropout(call: Call) -> Cost:
    """Dropout, which writes the scaled elements and the mask."""
    x = call.tensor(0)
    return Cost(2 * x.count, moved(x, x, x.typed("bool")), "vector", x.rate_name)


@dataclass(frozen=True)
class _Reduction:
    """A reduction. ``dims`` and ``type`` are the positions of the arguments for the reduced dimensions and result type.

    ``result`` is the result type if it does not depend on the input. With ``wide``, integers are reduced to int64.
    """

    dims: int | None = 1
    type: int | None = None
    per_element: int = 1
    result: str | None = None
    wide: bool = False

    def __call__(self, call: Call) -> Cost:
        x = call.tensor(0)
        kind = self.result or ("long int" if self.wide and is_whole(x.type) else x.type)
        kind = kind if self.type is None else call.type_at(self.type, kind)
        over = [] if self.dims is None or len(call.types) <= self.dims else call.numbers(self.dims)
        if any(not -len(x.dims) <= at < len(x.dims) for at in over):
            raise NoModelError("no such dimension")
        reduced = {at % len(x.dims) for at in over} or set(range(len(x.dims)))
        left = tuple(size for at, size in enumerate(x.dims) if at not in reduced)
        result = x.shaped(left).typed(kind)
        return Cost(self.per_element * x.count, moved(x, result), "vector", x.rate_name)


def _scan(call: Call) -> Cost:
    x = call.tensor(0)
    kind = "long int" if is_whole(x.type) else x.type
    return Cost(x.count, moved(x, x.typed(call.type_at(2, kind))), "vector", x.rate_name)


def _copy(call: Call) -> Cost:
    target, source = call.tensor(0), call.tensor(1)
    return Cost(0, moved(target, source), "vector", target.rate_name)


def _fill(call: Call) -> Cost:
    return Cost(0, moved(call.tensor(0)), "vector", call.tensor(0).rate_name)


def _rearranged(call: Call) -> Cost:
    x = call.tensor(0)
    return Cost(0, moved(x, x), "vector", x.rate_name)


def _added_by_index(call: Call) -> Cost:
    """``index_add_`` and ``scatter_add_`` (self, dimension, index, source), which read and write only some elements."""
    x, index, source = call.tensor(0), call.tensor(2), call.tensor(3)
    return Cost(source.count, 3 * source.bytes + index.bytes, "vector", x.rate_name)


def _pointwise_models() -> dict[str, Callable[[Call], Cost]]:
    return {
        f"aten::{name}{ending}": partial(_pointwise, operands=operands, name=name, in_place=bool(ending))
        for operands, names in _POINTWISE.items()
        for name in names.split()
        for ending in ("", "_")
    }


_SUM = _Reduction(type=3, wide=True)
POINTWISE: dict[str, Callable[[Call], Cost]] = {**_pointwise_models(), "aten::native_dropout": _dropout}
REDUCTIONS: dict[str, Callable[[Call], Cost]] = {
    "aten::sum": _SUM, "aten::mean": _Reduction(type=3), "aten::prod": _Reduction(type=3, wide=True),
    "aten::amax": _Reduction(), "aten::amin": _Reduction(),
    "aten::argmax": _Reduction(result="long int"), "aten::argmin": _Reduction(result="long int"),
    "aten::all": _Reduction(result="bool"), "aten::any": _Reduction(result="bool"),
    # Two passes: one for the mean, and one for the mean squared distance from it.
    "aten::var": _Reduction(per_element=4), "aten::std": _Reduction(per_element=4),
    "aten::linalg_vector_norm": _Reduction(dims=2, type=4, per_element=2),
    "aten::cumsum": _scan, "aten::cumprod": _scan,
}  # fmt: skip
COPIES: dict[str, Callable[[Call], Cost]] = {
    "aten::copy_": _copy, "aten::roll": _rearranged, "aten::flip": _rearranged,
}  # fmt: skip
FILLS: dict[str, Callable[[Call], Cost]] = {
    "aten::fill_": _fill, "aten::zero_": _fill,
}  # fmt: skip
SCATTERED: dict[str, Callable[[Call], Cost]] = {
    "aten::index_add_": _added_by_index, "aten::scatter_add_": _added_by_index,
}  # fmt: skip
