"""What one op asks of the device: engine, arithmetic, bytes, and its part of the recipe's key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from perftool.sim.graph import Work

# As Synapse spells them.
DTYPE_NAMES = {
    torch.bfloat16: "bf16",
    torch.float8_e5m2: "float8",
    torch.float8_e4m3fn: "hfloat8",
    torch.bool: "int8",
}
_SUFFIX = {"float32": "f32", "float16": "f16", "int64": "i64", "int32": "i32"}
_LIST_TYPES = {torch.float32: "float", torch.float64: "double", torch.int64: "long int", torch.int32: "int"}
_MATRIX_NAMES = {"mm": "GEMM", "addmm": "GEMM", "bmm": "BatchGemm", "baddbmm": "BatchGemm", "convolution": "Convolution"}
# The lazy kernels of these turn their number into a tensor, so that another value is not another graph
# (gaudi-pytorch-bridge 1.19: get_tensor_for_scalar in the front ends of div, addcdiv, addcmul; numbers that meet a
# tensor in a binary op arrive as tensors anyway).
_NUMBERS_AS_TENSORS = frozenset({"add", "sub", "rsub", "mul", "div", "addcdiv", "addcmul"})
_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, torch.layout, torch.memory_format)


@dataclass(frozen=True)
class Call:
    """An op with its arguments and results, their tensors collected."""

    func: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: Any

    @property
    def base(self) -> str:
        """Name without namespace and overload."""
        return str(self.func.overloadpacket.__name__)

    @property
    def inputs(self) -> list[torch.Tensor]:
        """Tensors among the arguments."""
        return tensors((self.args, self.kwargs))

    @property
    def outputs(self) -> list[torch.Tensor]:
        """Tensors among the results."""
        return tensors(self.result)


def tensors(tree: Any) -> list[torch.Tensor]:
    """Every tensor in a structure of lists, tuples and dictionaries."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def dtype_name(dtype: torch.dtype) -> str:
    """A data type as Synapse spells it."""
    return DTYPE_NAMES.get(dtype) or str(dtype).removeprefix("torch.")


def size(tensor: torch.Tensor) -> int:
    """Bytes of the elements of ``tensor``."""
    return tensor.numel() * tensor.element_size()


def work_of(call: Call) -> Work:
    """The work of ``call``: its arithmetic by PyTorch's own FLOP formulas, its bytes by its tensors."""
    outputs, inputs = call.outputs, call.inputs
    flops = _flops(call)
    computed = next((each.dtype for each in [*inputs, *outputs] if each.dtype.is_floating_point), torch.float32)
    dtype = dtype_name(computed if flops or not outputs else outputs[0].dtype)
    base = call.base.rstrip("_")
    name = _MATRIX_NAMES.get(base, "GEMM") if flops else f"{base}_fwd_{_SUFFIX.get(dtype, dtype)}"
    elements = max((each.numel() for each in [*inputs, *outputs]), default=0)
    return Work(
        name=name.replace("convolution_backward", "Convolution"),
        dtype=dtype,
        engine="MME" if flops else "TPC",
        flops=flops,
        elements=elements,
        read=sum(map(size, inputs)),
        written=sum(map(size, outputs)),
        pointwise=torch.Tag.pointwise in call.func.tags and not flops,
    )


def _flops(call: Call) -> int:
    formula: Callable[..., int] | None = flop_registry.get(call.func.overloadpacket)
    return 0 if formula is None else int(formula(*call.args, **call.kwargs, out_val=call.result))


def key_of(call: Call, origin: Callable[[torch.Tensor], Hashable]) -> Hashable:
    """The part of the recipe's key that ``call`` contributes; ``origin`` says where a tensor comes from.

    Numbers belong to it, except those that the bridge passes as tensors.
    """
    as_tensors = call.base.rstrip("_") in _NUMBERS_AS_TENSORS
    parts: list[Hashable] = [str(call.func)]
    for leaf in tree_leaves((call.args, dict(call.kwargs))):
        parts.append(_part(leaf, as_tensors, origin))
    return tuple(parts)


def _part(leaf: Any, as_tensors: bool, origin: Callable[[torch.Tensor], Hashable]) -> Hashable:
    if isinstance(leaf, torch.Tensor):
        return (tuple(leaf.shape), leaf.stride(), leaf.storage_offset(), leaf.dtype, origin(leaf))
    if as_tensors and isinstance(leaf, (int, float)):
        return type(leaf)
    # Truth values, numbers and their types all differ: True == 1 == 1.0.
    return (type(leaf), leaf) if isinstance(leaf, _PLAIN) else type(leaf)


def recorded_shapes(arguments: Iterable[Any]) -> dict[str, object]:
    """Shapes and types of the arguments as ``record_shapes=True`` writes them."""
    dims, types = [], []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            dims.append(list(argument.shape))
            types.append(_LIST_TYPES.get(argument.dtype) or _c10_name(argument.dtype))
        elif isinstance(argument, (list, tuple)) and argument and isinstance(argument[0], torch.Tensor):
            dims.append([list(each.shape) for each in argument])
            types.append("TensorList")
        else:
            dims.append([])
            types.append("Scalar" if isinstance(argument, (int, float)) else "")
    return {"Input Dims": dims, "Input type": types}


def _c10_name(dtype: torch.dtype) -> str:
    return {torch.bfloat16: "c10::BFloat16", torch.float16: "c10::Half"}.get(dtype) or dtype_name(dtype)
