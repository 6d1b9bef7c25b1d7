"""Computes the work of an op on the device (engine, arithmetic, bytes) and its part of the recipe's key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from perftool.model.hpu_bridge import hpu_bridge
from perftool.model.hpu_ops import base_name
from perftool.sim.machine.graph import Work
from perftool.sim.machine.keys import NumberPart, TensorPart

# Synapse's names of data types.
DTYPE_NAMES = {
    torch.bfloat16: "bf16",
    torch.float8_e5m2: "float8",
    torch.float8_e4m3fn: "hfloat8",
    torch.bool: "int8",
}
_SUFFIX = {"float32": "f32", "float16": "f16", "int64": "i64", "int32": "i32"}
_LIST_TYPES = {torch.float32: "float", torch.float64: "double", torch.int64: "long int", torch.int32: "int"}
_MATRIX_NAMES = {"mm": "GEMM", "addmm": "GEMM", "bmm": "BatchGemm", "baddbmm": "BatchGemm",
                 "convolution": "Convolution", "convolution_backward": "ConvolutionGradient"}  # fmt: skip
# PyTorch passes numbers to these ops as tensors.
_WRAPPED_NUMBERS = frozenset({"add", "sub", "rsub", "mul"})
# Ops that take a list of indices as their second argument.
_INDEXING = frozenset({"index", "index_put", "_index_put_impl"})
# The length of this op's result depends on its largest input value, which the host must read.
COUNTING = "bincount"
# The bridge converts number arguments of these ops to tensors, unless one of the numbers is 1.
_UNCONVERTED_ONE = frozenset({"addcdiv", "addcmul"})
_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, torch.layout, torch.memory_format)


@dataclass(frozen=True)
class OpFacts:
    """The facts about an op that are the same for all calls. ``base`` is its name without namespace and overload;
    ``kind`` also has no trailing underscore. ``written`` says for each argument whether the op writes to it, and
    ``resizes`` whether the op may change an argument's shape. ``operands`` are the arguments that are always single
    tensors, except the destination of an ``out`` form.
    """

    name: str
    base: str
    kind: str
    view: bool
    pointwise: bool
    arguments: tuple[str, ...]
    written: tuple[bool, ...]
    resizes: bool
    operands: tuple[str, ...]


@cache
def facts_of(func: Any) -> OpFacts:
    """Read the facts about an operator from its schema."""
    base, arguments = str(func.overloadpacket.__name__), func._schema.arguments
    operands = tuple(argument.name for argument in arguments if str(argument.type) == "Tensor")
    has_out = any(argument.is_out for argument in arguments)
    return OpFacts(
        name=str(func.name()),
        base=base,
        kind=base.rstrip("_"),
        view=bool(func.is_view),
        pointwise=torch.Tag.pointwise in func.tags,
        arguments=tuple(argument.name for argument in arguments),
        written=tuple(argument.alias_info is not None and argument.alias_info.is_write for argument in arguments),
        resizes=base.startswith("resize_") or has_out,
        operands=operands[:-1] if has_out and len(operands) > 1 else operands,
    )


@dataclass(frozen=True)
class Call:
    """A call of an op and its results. ``leaves`` are the flattened arguments, ``inputs`` the tensors among them."""

    func: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: Any
    leaves: tuple[Any, ...]
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]

    @cached_property
    def op(self) -> OpFacts:
        """The facts about the operator."""
        return facts_of(self.func)


def tensors(tree: Any) -> tuple[torch.Tensor, ...]:
    """Return every tensor in a structure of lists, tuples and dictionaries."""
    return tuple(leaf for leaf in leaves(tree) if isinstance(leaf, torch.Tensor))


def leaves(tree: Any) -> Iterator[Any]:
    """Yield the leaves of lists, tuples and dictionaries in order. PyTorch's traversal is five times slower."""
    if isinstance(tree, (list, tuple)):
        for each in tree:
            if isinstance(each, (list, tuple, dict)):
                yield from leaves(each)
            else:
                yield each
    elif isinstance(tree, dict):
        for each in tree.values():
            yield from leaves(each)
    else:
        yield tree


def dtype_name(dtype: torch.dtype) -> str:
    """Return the Synapse name of a data type."""
    return DTYPE_NAMES.get(dtype) or str(dtype).removeprefix("torch.")


def size(tensor: torch.Tensor) -> int:
    """Return the size of the elements of ``tensor`` in bytes."""
    return tensor.numel() * tensor.element_size()


def work_of(call: Call) -> Work:
    """Return the work of ``call``, with FLOPs from PyTorch's formulas and bytes from its tensors."""
    outputs, inputs = call.outputs, call.inputs
    flops = _flops(call)
    computed = next((each.dtype for each in [*inputs, *outputs] if each.dtype.is_floating_point), torch.float32)
    dtype = dtype_name(computed if flops or not outputs else outputs[0].dtype)
    kind = call.op.kind
    name = _MATRIX_NAMES.get(kind, "GEMM") if flops else f"{kind}_fwd_{_SUFFIX.get(dtype, dtype)}"
    elements = max((each.numel() for each in [*inputs, *outputs]), default=0)
    return Work(
        name=name,
        dtype=dtype,
        engine="MME" if flops else "TPC",
        flops=flops,
        elements=elements,
        read=sum(map(size, inputs)),
        written=sum(map(size, outputs)),
        pointwise=call.op.pointwise and not flops,
    )


def _flops(call: Call) -> int:
    formula: Callable[..., int] | None = flop_registry.get(call.func.overloadpacket)
    return 0 if formula is None else int(formula(*call.args, **call.kwargs, out_val=call.result))


def parts_of(call: Call, origin: Callable[[torch.Tensor], Hashable]) -> tuple[Hashable, ...]:
    """Return what each argument of ``call`` contributes to the recipe's key. ``origin`` returns where a tensor comes
    from. Numbers belong to the key, except those that the bridge passes as tensors.
    """
    kind = call.op.kind
    as_tensors = kind in _WRAPPED_NUMBERS or kind in _numbers_as_tensors()
    if kind in _UNCONVERTED_ONE and 1 in [leaf for leaf in call.leaves if not isinstance(leaf, torch.Tensor)]:
        as_tensors = False
    # A mask becomes a list of positions, whose length belongs to the key.
    lengths = [int(mask.count_nonzero()) for mask in masks_of(call)]
    if kind == COUNTING:
        lengths = [call.outputs[0].numel()]
    found = (_part(each, as_tensors, origin) for each in (*call.args, *call.kwargs.values()))
    return (*found, *(NumberPart("length", length) for length in lengths))


def names_of(call: Call) -> tuple[str, ...]:
    """Return the names of the parts that :func:`parts_of` returns."""
    return (
        *call.op.arguments[: len(call.args)],
        *call.kwargs,
        *("places of the mask" for _ in masks_of(call)),
        "length",
    )


def masks_of(call: Call) -> tuple[torch.Tensor, ...]:
    """Return the masks among the indices of ``call``."""
    if call.op.kind not in _INDEXING:
        return ()
    return tuple(each for each in tensors(call.args[1]) if each.dtype is torch.bool)


@cache
def _numbers_as_tensors() -> frozenset[str]:
    return frozenset(base_name(op).removeprefix("aten::") for op in hpu_bridge().numbers_as_tensors)


def _part(value: Any, as_tensors: bool, origin: Callable[[torch.Tensor], Hashable]) -> Hashable:
    if isinstance(value, torch.Tensor):
        place = int(value.storage_offset())
        return TensorPart(tuple(value.shape), value.stride(), place, value.dtype, origin(value))
    if isinstance(value, (list, tuple)):
        return tuple(_part(each, as_tensors, origin) for each in value)
    if as_tensors and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(type(value))
    return NumberPart(str(type(value)), value) if isinstance(value, _PLAIN) else str(type(value))


def recorded_shapes(arguments: Iterable[Any]) -> dict[str, object]:
    """Return the shapes, types and numbers of the arguments as ``record_shapes=True`` writes them."""
    dims: list[object] = []
    types: list[str] = []
    numbers: list[str] = []
    for argument in arguments:
        numbers.append(str(argument) if isinstance(argument, (bool, int, float)) else "")
        if isinstance(argument, torch.Tensor):
            dims.append(list(argument.shape))
            types.append(_LIST_TYPES.get(argument.dtype) or _c10_name(argument.dtype))
        elif isinstance(argument, (list, tuple)) and argument and isinstance(argument[0], torch.Tensor):
            dims.append([list(each.shape) for each in argument])
            types.append("TensorList")
        else:
            dims.append([])
            types.append("Scalar" if isinstance(argument, (int, float)) else "")
    return {"Concrete Inputs": numbers, "Input Dims": dims, "Input type": types}


def _c10_name(dtype: torch.dtype) -> str:
    return {torch.bfloat16: "c10::BFloat16", torch.float16: "c10::Half"}.get(dtype) or dtype_name(dtype)
