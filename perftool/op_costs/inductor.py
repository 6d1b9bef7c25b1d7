"""Kernels that TorchInductor generates: each tensor among the arguments is read or written once.

Their names list the fused ops, but not how often each runs, so the number of operations is unknown. A matmul
template (``triton_tem``) has the operations of the matmul: its last matrix is the result, and each operand shares one
size with the result and one with the other operand. Kernels that read or write only parts of a tensor (index, slice)
have no model: the arguments do not show which parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from perftool.op_costs.call import Call, NoModelError
from perftool.op_costs.cost import Cost, moved
from perftool.op_costs.seen import Shape

_POINTWISE = re.compile(r"triton_(poi|red|per|for)_fused_")
_PRODUCT = re.compile(r"triton_tem_fused_(?:\w*_)?(?:mm|addmm|bmm|baddbmm)(?:_|$)")
_BY_INDEX = re.compile(r"embedding|index|gather|scatter|slice|select")


def inductor_model(name: str) -> Callable[[Call], Cost] | None:
    """The cost model for the generated kernel ``name``; None if it has none, and for any other op."""
    if _PRODUCT.match(name):
        return _product
    return _arguments if _POINTWISE.match(name) and not _BY_INDEX.search(name) else None


def _arguments(call: Call) -> Cost:
    tensors = call.tensors()
    if not tensors:
        raise NoModelError("no tensors")
    largest = max(tensors, key=lambda one: one.count)
    return Cost(None, moved(*tensors), "vector", largest.rate_name)


def _product(call: Call) -> Cost:
    """The matmul of two operands, either of which may be transposed."""
    tensors = call.tensors()
    matrices = [one for one in tensors if len(one.dims) in (2, 3)]
    if len(matrices) < 3 or len({one.dims[:-2] for one in matrices}) != 1:
        raise NoModelError("not one matmul")
    first, second, result = (one.dims[-2:] for one in (*matrices[:2], matrices[-1]))
    found = {terms for a, b in ((first, second), (second, first)) for terms in _terms(a, b, result)}
    if len(found) != 1:
        raise NoModelError("operand sizes that do not match one matmul")
    return Cost(2 * matrices[-1].count * found.pop(), moved(*tensors), "matrix", matrices[0].rate_name)


def _terms(a: Shape, b: Shape, result: Shape) -> set[int]:
    """Each k for which ``a`` is m x k and ``b`` is k x n, transposed or not, if the result is m x n."""
    m, n = result
    return {k for k in a if sorted(a) == sorted((m, k)) and sorted(b) == sorted((k, n))}
