"""Convolutions, counted as direct convolutions: each element of the result is an inner product with one filter.

The gradients of input and weight each take as many operations as the convolution (torch.utils.flop_counter agrees for
convolutions without groups). Fast algorithms (Winograd, FFT) need fewer, so a kernel may exceed the roofline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from perftool.op_costs.call import Call, NoModelError, Tensor, shape_of
from perftool.op_costs.cost import Cost, moved
from perftool.op_costs.windows import each, window_count


@dataclass(frozen=True)
class Convolution:
    """The positions of a convolution op's arguments; None for arguments that the op does not have. ``term`` is a tensor
    that the op adds to the result."""

    stride: int
    padding: int
    dilation: int | None
    bias: int | None = 2
    transposed: int | None = None
    term: int | None = None

    def __call__(self, call: Call) -> Cost:
        x, weight = call.tensor(0), call.tensor(1)
        result = x.shaped(self.result(call, x, weight))
        extra = [call.tensor(at) for at in (self.bias, self.term) if at is not None and call.has(at)]
        # A convolution applies the filter once per output element; a transposed convolution, once per input element.
        applied = x if self.backwards(call) else result
        return Cost(
            _inner(applied, weight) + len(extra) * result.count, moved(x, weight, result, *extra), "matrix", x.rate_name
        )

    def backwards(self, call: Call) -> bool:
        """Whether the call is a transposed convolution."""
        return self.transposed is not None and call.recorded(self.transposed) and call.flag(self.transposed)

    def step(self, call: Call) -> int | None:
        """Return the largest dilation, or None if it was not recorded."""
        if self.dilation is None or not call.recorded(self.dilation):
            return None
        return max(call.numbers(self.dilation), default=1)

    def result(self, call: Call, x: Tensor, weight: Tensor) -> tuple[int, ...]:
        """Return the shape of the result. Raise NoModelError if the recording does not show it."""
        kernel, inside = weight.dims[2:], x.dims[2:]
        if not kernel or len(kernel) != len(inside) or 0 in weight.dims:
            raise NoModelError("not a convolution of a batch")
        if not call.recorded(self.stride):
            if (found := call.seen.get((x.dims, weight.dims))) is None:
                raise NoModelError("no stride recorded")
            return found
        stride, padding = each(call, self.stride, len(kernel)), each(call, self.padding, len(kernel))
        dilation = [1] * len(kernel) if self.dilation is None else each(call, self.dilation, len(kernel))
        if not self.backwards(call):
            return (x.dims[0], weight.dims[0], *window_count(inside, kernel, stride, padding, dilation))
        assert self.transposed is not None
        more, groups = each(call, self.transposed + 1, len(kernel)), call.numbers(self.transposed + 2)
        sizes = zip(inside, kernel, stride, padding, dilation, more, strict=True)
        spatial = (
            max((size - 1) * by - 2 * pad + step * (k - 1) + add + 1, 0) for size, k, by, pad, step, add in sizes
        )
        return (x.dims[0], weight.dims[1] * sum(groups), *spatial)


def _inner(elements: Tensor, weight: Tensor) -> int:
    """Return the operations if each of ``elements`` takes an inner product with one filter of ``weight``."""
    if not weight.dims or not weight.dims[0]:
        raise NoModelError("no filters")
    return 2 * elements.count * (weight.count // weight.dims[0])


def _backward(call: Call, wanted_at: int = 10, transposed_at: int | None = 7) -> Cost:
    gradient, x, weight = call.tensor(0), call.tensor(1), call.tensor(2)
    wanted = call.text(wanted_at)
    if wanted.count("True") + wanted.count("False") != 3:
        raise NoModelError("the recording does not show which gradients are computed")
    of_input, of_weight, of_bias = (word.strip("[] ") == "True" for word in wanted.split(","))
    transposed = transposed_at is not None and call.flag(transposed_at)
    once = _inner(x if transposed else gradient, weight)
    flops = once * (of_input + of_weight) + of_bias * gradient.count
    # Each gradient is written, and its kernel reads the other tensor: the gradient of the input needs the weight, and
    # the gradient of the weight needs the input.
    size = moved(gradient) + (of_input + of_weight) * (x.bytes + weight.bytes)
    bias = gradient.shaped(gradient.dims[1:2])
    return Cost(flops, size + of_bias * bias.bytes, "matrix", x.rate_name)


def _gradient(call: Call, of_weight: bool) -> Cost:
    """Return the cost of ops in PyTorch before 1.11 that compute only the gradient of the input or of the weight. Their
    arguments are the size of that gradient, the gradient of the result, and the weight or the input. If the size was
    not recorded, the shapes come from the enclosing op.
    """
    gradient = call.tensor(1)
    if call.recorded(0) and call.has(2):
        made, other = gradient.shaped(tuple(call.numbers(0))), call.tensor(2)
        x, weight = (other, made) if of_weight else (made, other)
    elif len(call.outer) > 2:
        x, weight = (gradient.shaped(shape_of(call.outer[at])) for at in (0, 2))
    else:
        raise NoModelError("a shape is not recorded")
    return Cost(_inner(gradient, weight), moved(gradient, x, weight), "matrix", gradient.rate_name)


# The positions of the input, the filter and the gradient of the result, by op.
WHOLE = {
    "aten::convolution_backward": (1, 2, 0), "aten::_slow_conv2d_backward": (1, 2, 0),
    "aten::cudnn_convolution_backward": (0, 2, 1), "aten::miopen_convolution_backward": (0, 2, 1),
}  # fmt: skip
CONVOLUTIONS: dict[str, Callable[[Call], Cost]] = {
    "aten::convolution": Convolution(stride=3, padding=4, dilation=5, transposed=6),
    "aten::_convolution": Convolution(stride=3, padding=4, dilation=5, transposed=6),
    "aten::convolution_overrideable": Convolution(stride=3, padding=4, dilation=5, transposed=6),
    "aten::cudnn_convolution": Convolution(padding=2, stride=3, dilation=4, bias=None),
    "aten::cudnn_convolution_relu": Convolution(stride=3, padding=4, dilation=5),
    "aten::cudnn_convolution_add_relu": Convolution(stride=5, padding=6, dilation=7, bias=4, term=2),
    "aten::miopen_convolution": Convolution(padding=3, stride=4, dilation=5),
    "aten::miopen_depthwise_convolution": Convolution(padding=3, stride=4, dilation=5),
    "aten::mkldnn_convolution": Convolution(padding=3, stride=4, dilation=5),
    "aten::_slow_conv2d_forward": Convolution(stride=4, padding=5, dilation=None, bias=3),
    "aten::_conv_depthwise2d": Convolution(stride=4, padding=5, dilation=6, bias=3),
    **{
        f"aten::{library}_convolution_backward_{part}": partial(_gradient, of_weight=part == "weight")
        for library in ("cudnn", "miopen") for part in ("input", "weight")
    },
    "aten::convolution_backward": _backward,
    "aten::convolution_backward_overrideable": _backward,
    "aten::_slow_conv2d_backward": partial(_backward, wanted_at=6, transposed_at=None),
}  # fmt: skip
