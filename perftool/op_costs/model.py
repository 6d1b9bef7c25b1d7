"""The cost of a call by the name of its op."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from perftool.op_costs.attention import ATTENTION
from perftool.op_costs.call import Call, NoModelError
from perftool.op_costs.convolutions import CONVOLUTIONS
from perftool.op_costs.cost import Cost
from perftool.op_costs.elements import COPIES, FILLS, POINTWISE, REDUCTIONS, SCATTERED
from perftool.op_costs.inductor import inductor_model
from perftool.op_costs.layers import EMBEDDINGS, NORMS, SOFTMAX
from perftool.op_costs.lists import JOINS, LISTS, OPTIMIZERS
from perftool.op_costs.pools import LOSSES, POOLS
from perftool.op_costs.products import PRODUCTS
from perftool.op_costs.seen import Results
from perftool.op_costs.serving import SERVING_ATTENTION, SERVING_NORMS, SERVING_POINTWISE

Models = Mapping[str, Callable[[Call], Cost]]
# The kinds of ops; the table of op_efficiency and the rules know them by these words.
KINDS: Mapping[str, Models] = {
    "product": PRODUCTS, "convolution": CONVOLUTIONS, "attention": {**ATTENTION, **SERVING_ATTENTION},
    "normalisation": {**NORMS, **SERVING_NORMS}, "softmax": SOFTMAX,
    "pointwise": {**POINTWISE, **SERVING_POINTWISE}, "reduction": REDUCTIONS, "copy": {**COPIES, **JOINS},
    "fill": FILLS, "embedding": {**EMBEDDINGS, **SCATTERED}, "pool": POOLS, "loss": LOSSES, "list": LISTS,
    "optimizer": OPTIMIZERS,
}  # fmt: skip
MODELS: Models = {name: model for models in KINDS.values() for name, model in models.items()}
_MOST = 2**63 - 1


def cost_of(
    name: str,
    dims: str | None,
    types: str | None,
    scalars: str | None,
    element_bytes: int | None = None,
    outer: str | None = None,
    seen: Results | None = None,
) -> Cost | None:
    """What one call of the op ``name`` needs, or None where no model covers it.

    ``dims``, ``types`` and ``scalars`` are the JSON lists of a profiler's record, by position of the argument;
    ``element_bytes`` is the size of an element of the tensors in lists, by the names of its kernels; ``outer`` are the
    shapes of the op that it is part of, ``seen`` the results of the recording's convolutions.
    """
    model = MODELS.get(name) or inductor_model(name)
    if model is None:
        return None
    try:
        cost = model(Call(_listed(dims), _listed(types), _listed(scalars), element_bytes, _listed(outer), seen or {}))
    except NoModelError:
        return None
    return cost if 0 <= (cost.flops or 0) <= _MOST and 0 <= cost.bytes <= _MOST else None


def _listed(text: str | None) -> list[object]:
    try:
        value = json.loads(text) if text else []
    except (ValueError, RecursionError):
        raise NoModelError("not JSON") from None
    return value if isinstance(value, list) else []
