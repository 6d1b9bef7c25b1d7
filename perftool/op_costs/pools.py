"""Pooling and losses.

A pool takes one operation per element of each window: the size of the result times the size of a window or, for
adaptive pools, the size of the input. The backward pass reads the gradient of the result (and, for max pools, the
positions of the maxima), and writes the whole gradient of the input.

Operations of a loss per element:

* mean squared error: 3 (difference, square, sum); its gradient: 3 (difference, two products)
* binary cross entropy of logits: 7, for max(x, 0) - x y + log(1 + exp(-|x|)) (maximum, product, two sums,
  exponential, logarithm) and the total
* gradient of the negative log likelihood: 1 per target, not per element
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

from perftool.op_costs.call import Call, NoModelError
from perftool.op_costs.cost import Cost, moved
from perftool.op_costs.windows import each, window_count


def _pool(call: Call, dimensions: int, dilated: bool, places: bool) -> Cost:
    x = call.tensor(0)
    inside = x.dims[-dimensions:]
    kernel = each(call, 1, dimensions)
    stride = each(call, 2, dimensions) if call.numbers(2) else kernel
    padding = each(call, 3, dimensions)
    dilation = each(call, 4, dimensions) if dilated else [1] * dimensions
    if len(inside) < dimensions or call.flag(5 if dilated else 4):
        raise NoModelError("ceil_mode is set, or the input has too few dimensions")
    result = x.shaped((*x.dims[:-dimensions], *window_count(inside, kernel, stride, padding, dilation)))
    size = moved(x, result) + places * result.typed("long int").bytes
    return Cost(result.count * prod(kernel), size, "vector", x.rate_name)


def _pool_backward(call: Call, places: int | None) -> Cost:
    gradient, x = call.tensor(0), call.tensor(1)
    picked = [] if places is None else [gradient.typed("long int")]
    return Cost(gradient.count, moved(gradient, x, *picked), "vector", x.rate_name)


def _adaptive(call: Call, dimensions: int) -> Cost:
    x = call.tensor(0)
    result = x.shaped((*x.dims[:-dimensions], *each(call, 1, dimensions)))
    return Cost(x.count, moved(x, result), "vector", x.rate_name)


def _loss(call: Call, reduction: int, per_element: int) -> Cost:
    x, target = call.tensor(0), call.tensor(1)
    each_one = call.numbers(reduction) == [0]
    return Cost(per_element * x.count, moved(x, target, x if each_one else x.shaped(())), "vector", x.rate_name)


def _loss_backward(call: Call) -> Cost:
    gradient, x, target = call.tensor(0), call.tensor(1), call.tensor(2)
    return Cost(3 * x.count, moved(gradient, x, target, x), "vector", x.rate_name)


def _nll_backward(call: Call) -> Cost:
    """Return the cost of the gradient of the negative log-likelihood. The gradient has one nonzero element per row, but
    is written in full."""
    x, target = call.tensor(1), call.tensor(2)
    return Cost(target.count, moved(x, target), "vector", x.rate_name)


POOLS: dict[str, Callable[[Call], Cost]] = {
    "aten::max_pool2d_with_indices": partial(_pool, dimensions=2, dilated=True, places=True),
    "aten::max_pool3d_with_indices": partial(_pool, dimensions=3, dilated=True, places=True),
    "aten::avg_pool2d": partial(_pool, dimensions=2, dilated=False, places=False),
    "aten::avg_pool3d": partial(_pool, dimensions=3, dilated=False, places=False),
    "aten::max_pool2d_with_indices_backward": partial(_pool_backward, places=7),
    "aten::max_pool3d_with_indices_backward": partial(_pool_backward, places=7),
    "aten::avg_pool2d_backward": partial(_pool_backward, places=None),
    "aten::_adaptive_avg_pool2d_backward": partial(_pool_backward, places=None),
    "aten::_adaptive_avg_pool2d": partial(_adaptive, dimensions=2),
    "aten::_adaptive_avg_pool3d": partial(_adaptive, dimensions=3),
}  # fmt: skip
LOSSES: dict[str, Callable[[Call], Cost]] = {
    "aten::mse_loss": partial(_loss, reduction=2, per_element=3),
    "aten::binary_cross_entropy_with_logits": partial(_loss, reduction=4, per_element=7),
    "aten::mse_loss_backward": _loss_backward,
    "aten::nll_loss_backward": _nll_backward, "aten::nll_loss2d_backward": _nll_backward,
}  # fmt: skip
