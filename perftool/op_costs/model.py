"""Selects the cost model for a call by the name of its op."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from perftool.op_costs.attention import ATTENTION
from perftool.op_costs.call import Call, NoModelError, shape_of, spelled
from perftool.op_costs.convolutions import CONVOLUTIONS
from perftool.op_costs.cost import Cost
from perftool.op_costs.elements import COPIES, FILLS, POINTWISE, REDUCTIONS, SCATTERED
from perftool.op_costs.experts import MIXTURES
from perftool.op_costs.inductor import inductor_model
from perftool.op_costs.layers import EMBEDDINGS, NORMS, SOFTMAX
from perftool.op_costs.lists import JOINS, LISTS, OPTIMIZERS
from perftool.op_costs.pools import LOSSES, POOLS
from perftool.op_costs.products import PRODUCTS
from perftool.op_costs.quantised import QUANTISED
from perftool.op_costs.seen import Results, Shape
from perftool.op_costs.serving import SERVING_ATTENTION, SERVING_NORMS, SERVING_POINTWISE

Models = Mapping[str, Callable[[Call], Cost]]


def _mixture(name: str) -> Callable[[Call], Cost]:
    return lambda call: MIXTURES[name](call).cost()


# The kinds of ops, by the names used in the table op_efficiency and in rules.
KINDS: Mapping[str, Models] = {
    "product": {**PRODUCTS, **QUANTISED, **{name: _mixture(name) for name in MIXTURES}},
    "convolution": CONVOLUTIONS, "attention": {**ATTENTION, **SERVING_ATTENTION},
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
    around: str | None = None,
    grids: str | None = None,
) -> Cost | None:
    """Return the cost of one call of the op ``name``, or None if no model covers it.

    ``dims``, ``types`` and ``scalars`` are the JSON lists that a profiler recorded, with one entry per argument. The
    rest are fields of ``Call``; ``outer`` and ``grids`` are JSON here, too.
    """
    model = MODELS.get(name) or inductor_model(name)
    if model is None:
        return None
    try:
        cost = model(call_of(dims, types, scalars, element_bytes, outer, seen, around, grids))
    except NoModelError:
        return None
    return cost if 0 <= (cost.flops or 0) <= _MOST and 0 <= cost.bytes <= _MOST else None


def call_of(
    dims: str | None,
    types: str | None,
    scalars: str | None,
    element_bytes: int | None,
    outer: str | None,
    seen: Results | None,
    around: str | None,
    grids: str | None,
) -> Call:
    """Build a Call from the arguments of ``cost_of``. Raise NoModelError for invalid JSON."""
    lists = listed(dims), spelled(listed(types)), listed(scalars)
    return Call(*lists, element_bytes, listed(outer), seen or {}, around or "", _grids(grids))


def listed(text: str | None) -> list[object]:
    """Parse a recorded list; return an empty list for anything else. Raise NoModelError for invalid JSON."""
    try:
        value = json.loads(text) if text else []
    except (ValueError, RecursionError):
        raise NoModelError("not JSON") from None
    return value if isinstance(value, list) else []


def _grids(text: str | None) -> list[tuple[str, Shape]]:
    """Return the names and grids of kernels, with (0, 0, 0) for kernels without a grid."""
    found = [one for one in listed(text) if isinstance(one, dict)]
    return [(str(one.get("name")), _grid(one.get("grid"))) for one in found]


def _grid(recorded: object) -> Shape:
    try:
        return shape_of(recorded) if isinstance(recorded, list) and len(recorded) == 3 else (0, 0, 0)
    except NoModelError:
        return (0, 0, 0)
