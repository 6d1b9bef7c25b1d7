"""The operations of nodes in a compiled Gaudi graph, by kernel name. Shapes start with the slowest dimension."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

Shape = tuple[int, ...]
_PRODUCTS = {"gemm", "batch_gemm", "masked_batch_gemm"}
# The kernels of a convolution and of its two gradients. Channels are the fastest-varying dimension of the input and the
# result.
_FORWARD, _OF_INPUT, _OF_WEIGHT = "spatial_convolution", "dedx", "dedw"


def node_flops(guid: str, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int | None:
    """Return the number of operations in one run of a node (a multiply-add counts as two), or None if there is no model
    for its kernel, or if the shapes do not fit.

    A matmul takes 2 m k n operations if its result is m x n and its operands share k, whether or not they are
    transposed. A convolution takes two operations for each pair of an element of the result and a weight of its
    channel. Each gradient takes as many operations as the convolution.
    """
    if not outputs or len(inputs) < 2 or any(0 in shape or not shape for shape in (*inputs[:2], outputs[0])):
        return None
    if guid in _PRODUCTS:
        return _product(inputs[0], inputs[1], outputs[0])
    if guid.startswith(_FORWARD):
        return _convolution(outputs[0], inputs[1])
    if guid.startswith(_OF_INPUT):
        return _convolution(inputs[0], inputs[1])
    return _convolution(inputs[0], outputs[0]) if guid.startswith(_OF_WEIGHT) else None


def _product(a: Shape, b: Shape, result: Shape) -> int | None:
    if min(map(len, (a, b, result))) < 2:
        return None
    m, n = result[-2:]
    shared, rest = divmod(prod(a[-2:]), m)
    return 2 * prod(result) * shared if not rest and prod(b[-2:]) == shared * n else None


def _convolution(result: Shape, weights: Shape) -> int | None:
    of_channel, rest = divmod(prod(weights), result[-1])
    return None if rest else 2 * prod(result) * of_channel
