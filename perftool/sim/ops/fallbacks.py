"""Decides which ops fall back to the CPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from perftool.model.hpu_ops import ANY_ARGUMENT, accepts, is_registered
from perftool.sim.ops.op_work import Call

# Ops that PyTorch selects only on a CPU; an HPU runs other ops for the same result.
_CPU_ONLY_FORMS = frozenset({
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
})  # fmt: skip
# The dispatch keys of kernels for all backends: an op with such a kernel is composed of other ops.
_COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
# Ops that only move data run on the device with any type.
_MOVES = frozenset({"copy", "_to_copy", "clone", "fill", "zero", "cat", "stack", "contiguous", "lift_fresh"})
# Elementwise ops that PyTorch does not tag as elementwise.
_UNTAGGED = frozenset({"floor_divide"})
_HPU_TYPES = {
    torch.bfloat16: "HPUBFloat16Type", torch.float32: "HPUFloatType", torch.float16: "HPUHalfType",
    torch.float64: "HPUDoubleType", torch.int64: "HPULongType", torch.int32: "HPUIntType", torch.int16: "HPUShortType",
    torch.int8: "HPUCharType", torch.uint8: "HPUByteType", torch.bool: "HPUBoolType",
}  # fmt: skip


@cache
def _runs(op: str) -> bool:
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    known = is_registered(op) or op.split(".")[0] in _CPU_ONLY_FORMS or not op.startswith("aten::")
    return known or any(has_kernel(op, key) for key in _COMPOSITE)


def falls_back(call: Call, device: str) -> bool:
    """Whether ``call`` falls back to the CPU, because its op has no kernel, a tensor is complex, or the kernel does not
    support one of its dtypes."""
    op = call.op.name
    if not _runs(op):
        return True
    if call.op.kind in _MOVES:
        return False
    if any(each.is_complex() for each in (*call.inputs, *call.outputs)):
        return True
    return not all(accepts(op, device, name, dtype) for name, dtype in _checked(call))


def _checked(call: Call) -> list[tuple[str, str]]:
    """Return the types that the bridge checks, by argument: the type of each tensor, or for an elementwise op only the
    type in which it computes. Lists of tensors, optional tensors and the destination of a result are not checked.
    """
    named = {**dict(zip(call.op.arguments, call.args, strict=False)), **call.kwargs}
    operands = {name: named[name] for name in call.op.operands if isinstance(named.get(name), torch.Tensor)}
    types = {name: value.dtype for name, value in operands.items()}
    if types and (call.op.pointwise or call.op.kind in _UNTAGGED):
        types = {ANY_ARGUMENT: _computed_in(call)}
    return [(name, str(dtype).removeprefix("torch.")) for name, dtype in types.items()]


def _computed_in(call: Call) -> torch.dtype:
    """Return the result type of an elementwise op; for a comparison, the type of its operands."""
    if call.outputs and call.outputs[0].dtype is not torch.bool:
        return call.outputs[0].dtype
    operands: list[Any] = [each for each in call.leaves if isinstance(each, (torch.Tensor, int, float))][:2]
    return torch.result_type(*operands) if len(operands) == 2 else call.inputs[0].dtype


def argument_types(call: Call) -> dict[str, str]:
    """Return the type of each tensor argument, by argument name, as the fallback log writes it."""
    return {
        name: _HPU_TYPES.get(value.dtype, f"HPU{dtype_word(value.dtype)}Type")
        for name, value in zip(call.op.arguments, call.args, strict=False)
        if isinstance(value, torch.Tensor)
    }


def dtype_word(dtype: torch.dtype) -> str:
    """Return the name of a dtype in camel case, such as ``Float8E5m2``."""
    words = str(dtype).removeprefix("torch.").split("_")
    return "".join(word.capitalize() for word in words)
