"""Matmuls: 2 m k n operations (BLAS: m n inner products of k multiplications and additions each).

In addmm and similar ops, adding the extra term takes one operation per element of the result. The factors alpha and
beta are not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from perftool.op_costs.call import Call, NoModelError, Tensor
from perftool.op_costs.cost import Cost, moved


def _product(a: Tensor, b: Tensor, added: Tensor | None = None, result_type: str | None = None) -> Cost:
    if (
        len(a.dims) != len(b.dims)
        or len(a.dims) not in (2, 3)
        or a.dims[-1] != b.dims[-2]
        or a.dims[:-2] != b.dims[:-2]
    ):
        raise NoModelError("not a matmul")
    result = Tensor((*a.dims[:-1], b.dims[-1]), result_type or a.type)
    flops = 2 * result.count * a.dims[-1] + (result.count if added else 0)
    return Cost(flops, moved(a, b, result, *([added] if added else [])), "matrix", a.rate_name)


def _plain(call: Call) -> Cost:
    return _product(call.tensor(0), call.tensor(1))


def _added(call: Call) -> Cost:
    return _product(call.tensor(1), call.tensor(2), call.tensor(0))


def _scaled(call: Call) -> Cost:
    """``_scaled_mm``, with fp8 operands, scales, a bias, and a result type."""
    a, b = call.tensor(0), call.tensor(1)
    cost = _product(a, b, call.tensor(4) if call.has(4) else None, call.type_at(6, a.type))
    return Cost(cost.flops, cost.bytes + moved(*call.tensors(2, 4)), "matrix", a.rate_name)


def _linear(call: Call) -> Cost:
    x, weight = call.tensor(0), call.tensor(1)
    if not x.dims or len(weight.dims) != 2:
        raise NoModelError("not a layer")
    rows = x.shaped((Tensor(x.dims[:-1], x.type).count, x.dims[-1]))
    return _product(rows, weight.shaped(weight.dims[::-1]), call.tensor(2) if call.has(2) else None)


def _vector(call: Call, first: int) -> Cost:
    """A matrix times a vector; ``first`` is the position of the matrix."""
    a, x = call.tensor(first), call.tensor(first + 1)
    if len(a.dims) != 2 or x.dims != a.dims[1:]:
        raise NoModelError("not a matmul")
    added = call.tensors(0, first)
    result = x.shaped(a.dims[:1])
    return Cost(2 * a.count + len(added) * result.count, moved(a, x, result, *added), "matrix", a.rate_name)


def _dot(call: Call) -> Cost:
    a, b = call.tensor(0), call.tensor(1)
    return Cost(2 * a.count, moved(a, b, a.shaped(())), "vector", a.rate_name)


def _grouped(call: Call) -> Cost:
    """``_grouped_mm``, which multiplies the rows of the first operand, sorted by group, by the matrix of their group.
    8-bit forms also read scales."""
    a, b = call.tensor(0), call.tensor(1)
    if len(a.dims) != 2 or len(b.dims) != 3 or a.dims[1] != b.dims[1]:
        raise NoModelError("groups along another dimension")
    result = a.shaped((a.dims[0], b.dims[2]))
    result = result.typed(call.type_at(7, "c10::BFloat16")) if a.rate_name == "fp8" else result
    return Cost(2 * a.count * b.dims[2], moved(a, b, result, *call.tensors(2, 6)), "matrix", a.rate_name)


def _whole_numbers(call: Call) -> Cost:
    """``_int_mm``, with 8-bit operands and a 32-bit result."""
    return _product(call.tensor(0), call.tensor(1), result_type="int")


def _recurrent(call: Call, backward: bool = False) -> Cost:
    """A layer of a oneDNN RNN. Each time step multiplies the input and the state by their weights; backward takes twice
    as many operations. The pointwise operations of gates and the state between steps are not counted.
    """
    x, of_input, of_state = call.tensor(0), call.tensor(1), call.tensor(2)
    if len(x.dims) != 3 or len(of_input.dims) != 2 or len(of_state.dims) != 2 or x.dims[2] != of_input.dims[1]:
        raise NoModelError("not a layer")
    rows = x.dims[0] * x.dims[1]
    result = x.shaped((rows, of_state.dims[1]))
    flops = 2 * rows * (of_input.count + of_state.count)
    once = moved(x, result, of_input, of_state)
    return Cost(flops * (1 + backward), once * (1 + backward), "matrix", x.rate_name)


PRODUCTS: dict[str, Callable[[Call], Cost]] = {
    "aten::mm": _plain, "aten::bmm": _plain, "aten::addmm": _added, "aten::baddbmm": _added, "aten::addmm_": _added,
    "aten::_addmm_activation": _added, "aten::baddbmm_": _added, "aten::_scaled_mm": _scaled, "aten::linear": _linear,
    "aten::mv": partial(_vector, first=0), "aten::addmv": partial(_vector, first=1),
    "aten::addmv_": partial(_vector, first=1), "aten::dot": _dot, "aten::_grouped_mm": _grouped,
    "aten::_scaled_grouped_mm": _grouped, "aten::_int_mm": _whole_numbers,
    "aten::mkldnn_rnn_layer": _recurrent, "aten::mkldnn_rnn_layer_backward": partial(_recurrent, backward=True),
}  # fmt: skip
