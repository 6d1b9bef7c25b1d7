"""Softmax, normalisation and embeddings.

Operations per element, from the textbook formulas:

* softmax: 5 (maximum, difference, exponential, sum, quotient)
* its gradient y (dy - sum(dy y)): 4 (product, sum, difference, product)
* normalisation w (x - mean) / deviation + b: 8 (sum, difference, square, sum, difference, quotient, product, sum)
* RMS normalisation w x / root: 4 (square, sum, quotient, product)

Bytes do not include the statistics of the rows. Embeddings only move bytes, except that their backward pass adds
gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perftool.op_costs.call import Call, NoModelError
from perftool.op_costs.cost import Cost, moved


@dataclass(frozen=True)
class _Normalisation:
    """A normalisation, with the positions of the input ``x``, of further inputs (``read``), and of the ``weights`` that
    get a gradient. If a position is listed twice, it stands for the weight and the bias."""

    per_element: int
    read: tuple[int, ...]
    x: int = 0
    weights: tuple[int, ...] = ()

    def __call__(self, call: Call) -> Cost:
        x = call.tensor(self.x)
        others = [call.tensor(at) for at in self.read if call.has(at)]
        gradients = [call.tensor(at) for at in self.weights if call.has(at)]
        return Cost(self.per_element * x.count, moved(x, x, *others, *gradients), "vector", x.rate_name)


def _softmax(call: Call) -> Cost:
    x = call.tensor(0)
    result = x.typed("float") if call.flag(2) else x
    return Cost(5 * x.count, moved(x, result), "vector", x.rate_name)


def _softmax_backward(call: Call) -> Cost:
    gradient, result = call.tensor(0), call.tensor(1)
    of_input = gradient.typed(call.type_at(3, gradient.type))
    return Cost(4 * gradient.count, moved(gradient, result, of_input), "vector", gradient.rate_name)


def _embedding(call: Call) -> Cost:
    """An embedding lookup, which reads only the selected rows."""
    weight, chosen = call.tensor(0), call.tensor(1)
    if len(weight.dims) != 2:
        raise NoModelError("not rows of a table")
    rows = weight.shaped((chosen.count, weight.dims[1]))
    return Cost(0, moved(rows, rows, chosen), "vector", weight.rate_name)


def _index_select(call: Call) -> Cost:
    x, chosen = call.tensor(0), call.tensor(2)
    at = call.numbers(1)
    if len(at) != 1 or not -len(x.dims) <= at[0] < len(x.dims):
        raise NoModelError("no such dimension")
    place = at[0] % len(x.dims)
    result = x.shaped((*x.dims[:place], chosen.count, *x.dims[place + 1 :]))
    return Cost(0, moved(result, result, chosen), "vector", x.rate_name)


def _gather(call: Call) -> Cost:
    x, chosen = call.tensor(0), call.tensor(2)
    result = x.shaped(chosen.dims)
    return Cost(0, moved(result, result, chosen), "vector", x.rate_name)


def _embedding_backward(call: Call) -> Cost:
    """The gradient of an embedding, which adds rows to the gradient of the table and writes the whole table."""
    gradient, chosen = call.tensor(0), call.tensor(1)
    rows = call.numbers(2)
    if len(rows) != 1 or not gradient.dims or rows[0] < 0:
        raise NoModelError("no table")
    table = gradient.shaped((rows[0], gradient.dims[-1]))
    return Cost(gradient.count, moved(gradient, chosen, table), "vector", gradient.rate_name)


# Operations per element of a backward pass, which computes the gradients of the input and the weights: for
# normalisations that subtract the mean, and for RMS normalisation.
_LAYER_BACKWARD, _RMS_BACKWARD = 13, 9
SOFTMAX: dict[str, Callable[[Call], Cost]] = {
    "aten::_softmax": _softmax, "aten::_log_softmax": _softmax,
    "aten::_softmax_backward_data": _softmax_backward, "aten::_log_softmax_backward_data": _softmax_backward,
}  # fmt: skip
NORMS: dict[str, Callable[[Call], Cost]] = {
    "aten::native_layer_norm": _Normalisation(8, read=(2, 3)),
    "aten::native_layer_norm_backward": _Normalisation(_LAYER_BACKWARD, x=1, read=(0, 5), weights=(5, 6)),
    "aten::native_group_norm": _Normalisation(8, read=(1, 2)),
    "aten::native_group_norm_backward": _Normalisation(_LAYER_BACKWARD, x=1, read=(0, 4), weights=(4, 4)),
    "aten::_fused_rms_norm": _Normalisation(4, read=(2,)),
    "aten::_fused_rms_norm_backward": _Normalisation(_RMS_BACKWARD, x=1, read=(0, 4), weights=(4,)),
    "aten::native_batch_norm": _Normalisation(8, read=(1, 2)),
    "aten::cudnn_batch_norm": _Normalisation(8, read=(1, 2)),
    "aten::miopen_batch_norm": _Normalisation(8, read=(1, 2)),
    "aten::native_batch_norm_backward": _Normalisation(_LAYER_BACKWARD, x=1, read=(0, 2), weights=(2, 2)),
    "aten::cudnn_batch_norm_backward": _Normalisation(_LAYER_BACKWARD, x=0, read=(1, 2), weights=(2, 2)),
    "aten::miopen_batch_norm_backward": _Normalisation(_LAYER_BACKWARD, x=0, read=(1, 2), weights=(2, 2)),
}
EMBEDDINGS: dict[str, Callable[[Call], Cost]] = {
    "aten::embedding": _embedding, "aten::index_select": _index_select, "aten::gather": _gather,
    "aten::embedding_dense_backward": _embedding_backward,
}  # fmt: skip
