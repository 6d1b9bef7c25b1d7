"""Convolutions, counted as direct ones: each element of the result is an inner product with one filter.

The gradients of input and weight take as many operations as the convolution each (torch.utils.flop_counter counts the
same without groups). Fast algorithms (Winograd, FFT) need fewer, so a kernel may exceed the roofline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perftool.op_costs.call import Call, NoModelError, Tensor
from perftool.op_costs.cost import Cost, moved


@dataclass(frozen=True)
class _Layout:
    """Positions of the arguments of a convolution; None where the op has none."""

    stride: int
    padding: int
    dilation: int | None
    bias: int | None = 2
    transposed: int | None = None
    term: int | None = None

    def __call__(self, call: Call) -> Cost:
        x, weight = call.tensor(0), call.tensor(1)
        if self.transposed is not None and call.flag(self.transposed):
            raise NoModelError("transposed")
        spatial = self._spatial(call, x, weight)
        result = x.shaped((x.dims[0], weight.dims[0], *spatial))
        extra = [call.tensor(at) for at in (self.bias, self.term) if at is not None and call.has(at)]
        flops = _inner(result, weight) + len(extra) * result.count
        return Cost(flops, moved(x, weight, result, *extra), "matrix", x.rate_name)

    def _spatial(self, call: Call, x: Tensor, weight: Tensor) -> list[int]:
        kernel, inside = weight.dims[2:], x.dims[2:]
        if not kernel or len(kernel) != len(inside) or 0 in weight.dims:
            raise NoModelError("not a convolution of a batch")
        stride, padding = _each(call, self.stride, len(kernel)), _each(call, self.padding, len(kernel))
        dilation = [1] * len(kernel) if self.dilation is None else _each(call, self.dilation, len(kernel))
        if min(stride) < 1:
            raise NoModelError("no stride")
        sizes = zip(inside, kernel, stride, padding, dilation, strict=True)
        return [max((size + 2 * pad - step * (k - 1) - 1) // by + 1, 0) for size, k, by, pad, step in sizes]


def _each(call: Call, position: int, dimensions: int) -> list[int]:
    values = call.numbers(position)
    values = values * dimensions if len(values) == 1 else values
    if len(values) != dimensions:
        raise NoModelError(f"not one number per dimension at {position}")
    return values


def _inner(elements: Tensor, weight: Tensor) -> int:
    """Operations of one inner product with a filter of ``weight`` per element of ``elements``."""
    if not weight.dims or not weight.dims[0]:
        raise NoModelError("no filters")
    return 2 * elements.count * (weight.count // weight.dims[0])


def _backward(call: Call) -> Cost:
    gradient, x, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    wanted = call.text(10)
    if wanted.count("True") + wanted.count("False") != 3:
        raise NoModelError("which gradients are wanted is not recorded")
    of_input, of_weight, of_bias = (word.strip("[] ") == "True" for word in wanted.split(","))
    once = _inner(x if call.flag(7) else gradient, weight)
    flops = once * (of_input + of_weight) + of_bias * gradient.count
    # Input and weight each are read for the other's gradient, and are as large as their own.
    size = moved(gradient) + (of_input + of_weight) * (x.bytes + weight.bytes)
    bias = gradient.shaped(gradient.dims[1:2])
    return Cost(flops, size + of_bias * bias.bytes, "matrix", x.rate_name)


CONVOLUTIONS: dict[str, Callable[[Call], Cost]] = {
    "aten::convolution": _Layout(stride=3, padding=4, dilation=5, transposed=6),
    "aten::_convolution": _Layout(stride=3, padding=4, dilation=5, transposed=6),
    "aten::convolution_overrideable": _Layout(stride=3, padding=4, dilation=5, transposed=6),
    "aten::cudnn_convolution": _Layout(padding=2, stride=3, dilation=4, bias=None),
    "aten::cudnn_convolution_relu": _Layout(stride=3, padding=4, dilation=5),
    "aten::cudnn_convolution_add_relu": _Layout(stride=5, padding=6, dilation=7, bias=4, term=2),
    "aten::miopen_convolution": _Layout(padding=3, stride=4, dilation=5),
    "aten::miopen_depthwise_convolution": _Layout(padding=3, stride=4, dilation=5),
    "aten::mkldnn_convolution": _Layout(padding=3, stride=4, dilation=5),
    "aten::_slow_conv2d_forward": _Layout(stride=4, padding=5, dilation=None, bias=3),
    "aten::_conv_depthwise2d": _Layout(stride=4, padding=5, dilation=6, bias=3),
    "aten::convolution_backward": _backward,
    "aten::convolution_backward_overrideable": _backward,
}
