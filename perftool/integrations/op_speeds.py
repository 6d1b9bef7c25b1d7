"""Calls the longest ops of a CPU recording again, with other data types and memory layouts, to measure the time saved.

The saving depends on the shapes, on the processor and on the number of threads, so only a measurement on the program's
own machine shows it.
"""

from __future__ import annotations

import ast
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from perftool.integrations.modes import unrecorded, unseen_by_modes
from perftool.integrations.peaks import least_time
from perftool.integrations.saving import event_pieces
from perftool.model.machine_memory import free_memory_mb

# Ops that autocast runs with all operands converted, and ops for which it converts only the activations.
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward", "mkldnn_rnn_layer")
_BETWEEN = (
    "native_batch_norm", "native_batch_norm_backward", "native_group_norm", "native_group_norm_backward",
    "native_layer_norm", "native_layer_norm_backward", "_softmax", "gelu", "gelu_backward", "relu", "clamp_min",
    "threshold_backward", "silu", "silu_backward", "sigmoid", "sigmoid_backward", "tanh", "tanh_backward", "add", "sub",
    "mul", "div", "sum", "cat", "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d",
    "avg_pool2d_backward", "upsample_nearest2d", "upsample_nearest2d_backward", "upsample_bilinear2d",
    "upsample_bilinear2d_backward", "reflection_pad2d", "reflection_pad2d_backward", "max_pool3d_with_indices",
    "max_pool3d_with_indices_backward", "avg_pool3d", "avg_pool3d_backward",
)  # fmt: skip
# Arguments that must be passed by keyword. They come last.
_NAMED = {
    "addmm": ("beta", "alpha"), "baddbmm": ("beta", "alpha"), "add": ("alpha",), "sub": ("alpha",), "sum": ("dtype",),
}  # fmt: skip
# The weight, or its gradient, that autocast converts in each step: the position of the argument or of the result.
_WEIGHTS, _WEIGHT_GRADIENTS = {"convolution": 1, "addmm": 2}, {"convolution_backward": 1}
_EVENT = re.compile(
    rb'"name": "aten::(%b)"[^{}]*?"dur": ([\d.]+)[^{}]*"args": (\{[^{}]*\})' % "|".join(_PRODUCTS + _BETWEEN).encode()
)
# The layouts with channels last, by the number of dimensions: images and volumes.
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
_TYPES = {"float": torch.float32, "long int": torch.int64, "bool": torch.bool}
_LIST = "TensorList"
# The first part of a trace shows which ops are long, because steps are alike.
_MOST_BYTES, _MOST_EVENTS = 256 << 20, 100_000
# An op is called again if it takes this share of the time that all ops in these lists take.
_MIN_SHARE = 0.01
_MOST_OPS = 40
# Each operand must fit into this share of the free memory.
_MOST_MEMORY_SHARE = 1 / 32
# The time limits, in s, for one way to compute one op, and for all ways of all ops. A way that takes longer runs once,
# after a warm-up run.
_EACH_S, _ALL_S = 0.005, 8.0
# Ops that take longer than this, in us, need no warm-up run.
_LONG_US = 100_000


@dataclass
class _Op:
    """An op, its arguments as the trace describes them, and how long its calls took."""

    name: str
    dims: Sequence[Any]
    strides: Sequence[Any]
    types: Sequence[str]
    values: Sequence[str]
    calls_us: list[float] = field(default_factory=list)

    @property
    def rank(self) -> int:
        """The number of dimensions of the first operand."""
        return len(self.dims[0][0] if self.types[0] == _LIST else self.dims[0])

    @property
    def is_image(self) -> bool:
        """Whether the first operand has the dimensions of an image or a volume, and some operand of this rank does not
        have the channels_last layout yet."""
        operands = [
            (size[0], stride[0]) if kind == _LIST else (size, stride)
            for size, stride, kind in zip(self.dims, self.strides, self.types, strict=True)
            if size
        ]
        return self.rank in CHANNELS_LAST and any(
            len(size) == len(stride) == self.rank and size[1] > 1 and stride[1] != 1 for size, stride in operands
        )

    @property
    def is_strided(self) -> bool:
        """Whether some operand stores its numbers in a different order than a contiguous tensor, or with gaps. In
        products, an operand may be transposed without cost."""
        return self.name in _BETWEEN and any(
            _is_strided(size, stride)
            for size, stride, kind in zip(self.dims, self.strides, self.types, strict=True)
            if kind == "float"
        )

    @property
    def shortest_us(self) -> float:
        return min(self.calls_us)

    @property
    def is_long(self) -> bool:
        return self.shortest_us > _LONG_US


@dataclass
class _Repeated:
    """The times of ``op`` and of the ops that differ from it only in the strides of their operands, each with its
    number of calls."""

    op: _Op
    times: list[tuple[int, Mapping[str, int]]] = field(default_factory=list)

    def add(self, op: _Op, times: Mapping[str, int]) -> None:
        self.times.append((len(op.calls_us), times))

    def mean_times(self) -> dict[str, int]:
        """Return the mean time of a call, in ns, for each way in which all of these ops were computed."""
        calls = sum(number for number, _ in self.times)
        every = self.times
        if any(_CONTIGUOUS in times for _, times in every):
            every = [(number, {_CONTIGUOUS: times["fp32_ns"], **times}) for number, times in every]
        ways = [way.key for way in _WAYS if all(way.key in times for _, times in every)]
        return {way: round(sum(number * times[way] for number, times in every) / calls) for way in ways}


class _Layout(Enum):
    """The memory layout of the operands."""

    RECORDED = auto()
    CHANNELS_LAST = auto()
    CONTIGUOUS = auto()


@dataclass(frozen=True)
class _Way:
    """A way to compute an op: the data type and the layout of its operands."""

    key: str
    dtype: torch.dtype
    layout: _Layout


_CONTIGUOUS = "fp32_contiguous_ns"
_WAYS = (
    _Way("fp32_ns", torch.float32, _Layout.RECORDED),
    _Way(_CONTIGUOUS, torch.float32, _Layout.CONTIGUOUS),
    _Way("bf16_ns", torch.bfloat16, _Layout.RECORDED),
    _Way("fp32_channels_last_ns", torch.float32, _Layout.CHANNELS_LAST),
    _Way("bf16_channels_last_ns", torch.bfloat16, _Layout.CHANNELS_LAST),
)


def op_speeds(trace: Path, *, bf16: bool, is_over: Callable[[], bool] = lambda: False) -> list[dict[str, Any]]:
    """Measure the longest FP32 ops in the uncompressed ``trace``. Return each op's name and shapes, and the time of a
    call, in ns, for each way that applies to it. Leave BF16 out unless ``bf16`` is true. Start no call after
    ``_ALL_S``, or once ``is_over`` returns true.
    """
    until = time.monotonic() + _ALL_S
    found: dict[str, _Repeated] = {}

    def has_time(expected_s: float) -> bool:
        return time.monotonic() + expected_s < until and not is_over()

    with torch.inference_mode(), unseen_by_modes(), unrecorded():
        for op in _longest(trace):
            if times := _times(op, bf16, has_time):
                found.setdefault(f"{op.name} {op.dims}", _Repeated(op)).add(op, times)
    measured = [(one.op, one.mean_times()) for one in found.values()]
    return [{"name": f"aten::{op.name}", "input_dims": op.dims, **times} for op, times in measured if len(times) > 1]


def _longest(trace: Path) -> list[_Op]:
    ops: dict[str, _Op] = {}
    for name, dur, args in islice(_events(trace), _MOST_EVENTS):
        try:
            dims, strides, types, values = (
                args[key] for key in ("Input Dims", "Input Strides", "Input type", "Concrete Inputs")
            )
        except KeyError:
            continue
        tensors = {kind for kind, size in zip(types, dims, strict=True) if size}
        if tensors <= {*_TYPES, _LIST} and tensors & {"float", _LIST}:
            # A transposed operand can make an op many times slower.
            op = ops.setdefault(f"{name} {dims} {strides}", _Op(name, dims, strides, types, values))
            op.calls_us.append(dur)
    total = sum(sum(op.calls_us) for op in ops.values())
    longest = sorted(ops.values(), key=lambda op: -sum(op.calls_us))[:_MOST_OPS]
    return [op for op in longest if sum(op.calls_us) >= _MIN_SHARE * total]


def _events(trace: Path) -> Iterator[tuple[str, float, Mapping[str, Any]]]:
    """Yield the name, the duration in us and the arguments of each event of an op that may be called again."""
    with open(trace, "rb") as source:
        left = _MOST_BYTES
        for piece in event_pieces(source.read):
            for event in _EVENT.finditer(piece):
                yield event[1].decode(), float(event[2]), json.loads(event[3])
            left -= len(piece)
            if left < 0:
                return


def _times(op: _Op, bf16: bool, has_time: Callable[[float], bool]) -> dict[str, int]:
    """Return the time of a call of ``op``, in ns, for each way. The result is empty if the op could not be computed as
    it was recorded. Leave out ways for which ``has_time`` is false, given the time that the calls will probably take,
    in s."""
    times: dict[str, int] = {}
    layouts = {_Layout.RECORDED: True, _Layout.CHANNELS_LAST: op.is_image, _Layout.CONTIGUOUS: op.is_strided}
    for way in _WAYS:
        if not layouts[way.layout] or (way.dtype is torch.bfloat16 and not bf16):
            continue
        longest_s = max(op.shortest_us / 1e6, *(time_ns / 1e9 for time_ns in times.values()), 0)
        if not has_time(longest_s * (1 if op.is_long else 2)):
            break
        try:
            time_s = least_time(_call(op, way), _EACH_S, warm=not op.is_long)
        except Exception:  # noqa: BLE001 - this version of PyTorch cannot compute the op in this way
            continue
        if isfinite(time_s):
            times[way.key] = round(1e9 * time_s)
    return times if "fp32_ns" in times else {}


def _call(op: _Op, way: _Way) -> Callable[[], object]:
    """Return a call of ``op``, computed in the given ``way``. With BF16, it includes the casts of weights."""
    described = zip(op.dims, op.strides, op.types, op.values, strict=True)
    arguments = [_argument(op, way, *argument) for argument in described]
    named = _NAMED.get(op.name, ())
    last = len(arguments) - len(named)
    compute = partial(getattr(torch.ops.aten, op.name), **dict(zip(named, arguments[last:], strict=True)))
    arguments = arguments[:last]
    if way.dtype is torch.bfloat16 and op.name in _WEIGHTS:
        at = _WEIGHTS[op.name]
        weight = arguments[at].float()
        return lambda: compute(*arguments[:at], weight.to(way.dtype), *arguments[at + 1 :])
    if way.dtype is torch.bfloat16 and op.name in _WEIGHT_GRADIENTS:
        at = _WEIGHT_GRADIENTS[op.name]
        return lambda: [result.float() for result in compute(*arguments)[at : at + 1] if result is not None]
    return partial(compute, *arguments)


def _argument(op: _Op, way: _Way, size: Sequence[Any], stride: Sequence[Any], kind: str, value: str) -> Any:
    if value:
        return ast.literal_eval(value)
    if kind == "double" and not size:
        return 1.0
    if kind == _LIST:
        return [_argument(op, way, *one, "float", "") for one in zip(size, stride, strict=True)]
    if kind not in _TYPES:
        return None
    is_cast = kind == "float" and (op.name in _PRODUCTS or len(size) == op.rank > 1)
    return _operand(size, stride, way.dtype if is_cast else _TYPES[kind], way.layout)


def _operand(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, layout: _Layout) -> torch.Tensor:
    elements = 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if 4 * elements > _MOST_MEMORY_SHARE * (free_memory_mb() << 20):
        raise MemoryError
    # Random numbers would change the state of the program's generator. Indices must be small.
    operand = torch.full([elements], int(dtype is not torch.int64), dtype=dtype).as_strided(size, stride)
    if layout is _Layout.CHANNELS_LAST and len(size) in CHANNELS_LAST:
        return operand.contiguous(memory_format=CHANNELS_LAST[len(size)])
    if layout is _Layout.CONTIGUOUS and _is_strided(size, stride):
        return operand.contiguous()
    return operand


def _is_strided(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether a tensor is neither contiguous nor in channels_last layout. An expanded tensor, which holds fewer numbers
    than a contiguous one, does not count, and neither does a sparse tensor, which has no strides."""
    if not size or len(size) != len(stride) or 0 in stride:
        return False
    tensor = torch.empty_strided(size, stride, device="meta")
    formats = [torch.contiguous_format, *([CHANNELS_LAST[len(size)]] if len(size) in CHANNELS_LAST else [])]
    return not any(tensor.is_contiguous(memory_format=one) for one in formats)
