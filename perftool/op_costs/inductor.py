"""Kernels that TorchInductor generates: each tensor among the arguments is read or written once.

Their names tell the ops that were fused, but not how often each is evaluated, so operations stay unknown. Templates of
products (``triton_tem``) and kernels that pick rows by index have no model: the arguments do not say what they touch.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from perftool.op_costs.call import Call, NoModelError
from perftool.op_costs.cost import Cost, moved

_POINTWISE = re.compile(r"triton_(poi|red|per|for)_fused_")
_BY_INDEX = re.compile(r"embedding|index|gather|scatter|slice|select")


def inductor_model(name: str) -> Callable[[Call], Cost] | None:
    """The model of a generated kernel called ``name``; None for any other op."""
    return _arguments if _POINTWISE.match(name) and not _BY_INDEX.search(name) else None


def _arguments(call: Call) -> Cost:
    tensors = call.tensors()
    if not tensors:
        raise NoModelError("no tensors")
    largest = max(tensors, key=lambda one: one.count)
    return Cost(None, moved(*tensors), "vector", largest.rate_name)
