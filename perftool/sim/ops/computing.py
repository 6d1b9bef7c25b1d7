"""Computes the values of an op on any processor. CPU support for a type depends on the build, the processor and
oneDNN's settings. If a type is not supported, the values are computed in a wider type and rounded. Low-precision
matmuls are always computed in fp32 and rounded once, as on a matrix engine; this is also much faster on a processor
that does not support them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from perftool.sim.ops.op_work import tensors

# The wide type can represent all values of the narrow type, except integers beyond 2^53.
_WIDER = {
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
    torch.float8_e4m3fn: torch.float32,
    torch.float8_e5m2: torch.float32,
    torch.bool: torch.float32,
    torch.uint8: torch.float32,
    torch.int8: torch.float32,
    torch.int16: torch.float32,
    torch.int32: torch.float64,
    torch.int64: torch.float64,
}
_FLOATING = frozenset(narrow for narrow in _WIDER if narrow.is_floating_point)
_PRODUCTS = frozenset({torch.bfloat16, torch.float16})
# Parts of the messages of errors that PyTorch and oneDNN raise if the processor lacks support; other errors are the
# script's.
_INCAPABLE = (
    "not implemented for",
    "could not create a primitive",
    "needs the cpu support",
    "mkldnn_bf16",
    "mkldnn_fp16",
)


def compute(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the result of ``func``. If the processor has no kernel for the types, compute it in wider types and round
    it. Raise the error of ``func`` if wider types do not help.
    """
    low = _low_precision(func, (args, kwargs))
    try:
        return _Widened(low).run(func, args, kwargs) if low else func(*args, **kwargs)
    except RuntimeError as error:
        if not any(text in str(error) for text in _INCAPABLE):
            raise
        present = {each.dtype for each in tensors((args, kwargs))} & _WIDER.keys()
        for narrow in (present & _FLOATING, present):
            try:
                return _Widened(narrow).run(func, args, kwargs, _result_types(func, args, kwargs))
            except RuntimeError:
                continue
        raise


def _low_precision(func: Any, tree: Any) -> Set[torch.dtype]:
    """Return the operand type of a low-precision matmul. The result is empty for other ops, and for mixed types."""
    if func.overloadpacket not in flop_registry:
        return frozenset()
    types = {each.dtype for each in tensors(tree) if each.dtype.is_floating_point}
    return types & _PRODUCTS if len(types) == 1 else frozenset()


class _Widened:
    """Runs an op on copies of its arguments in wider types, and converts the results back."""

    def __init__(self, narrow: Set[torch.dtype]) -> None:
        self._narrow = narrow
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def run(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], types: Sequence[torch.dtype] = ()
    ) -> Any:
        """Return the result of ``func`` in ``types`` (one per tensor). Without ``types``, floating-point results are
        converted back to the narrow type."""
        result = func(*_mapped(args, self._widen), **_mapped(kwargs, self._widen))
        self._write_back(func, args, kwargs)
        arguments = {id(copy): original for original, copy in self._copies.values()}
        wanted = iter(types)
        narrow = next(original.dtype for original, _ in self._copies.values())

        def round_to_type(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            dtype = next(wanted, narrow if leaf.dtype.is_floating_point else leaf.dtype)
            return arguments[id(leaf)] if id(leaf) in arguments else leaf.to(dtype)

        return _mapped(result, round_to_type)

    def _write_back(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Copy back to the arguments what ``func`` wrote to their copies."""
        named = {**dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)), **kwargs}
        for argument in func._schema.arguments:
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            for original in tensors(named.get(argument.name)):
                if id(original) in self._copies:
                    original.copy_(self._copies[id(original)][1])

    def _widen(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.dtype):
            return _WIDER[leaf] if leaf in self._narrow else leaf
        if not isinstance(leaf, torch.Tensor) or leaf.dtype not in self._narrow:
            return leaf
        if id(leaf) not in self._copies:
            self._copies[id(leaf)] = (leaf, leaf.to(_WIDER[leaf.dtype]))
        return self._copies[id(leaf)][1]


def _result_types(func: Any, args: Any, kwargs: Any) -> Sequence[torch.dtype]:
    """Return the result types of ``func``, found by running it on meta tensors. The result is empty if it does not
    support these."""

    def shape_only(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.to("meta")
        return torch.device("meta") if isinstance(leaf, torch.device) else leaf

    try:
        result = func(*_mapped(args, shape_only), **_mapped(kwargs, shape_only))
    except RuntimeError:
        return ()
    return [each.dtype for each in tensors(result)]


def _mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(tree, (list, tuple)):
        return type(tree)([_mapped(each, change) for each in tree])
    if isinstance(tree, Mapping):
        return {key: _mapped(value, change) for key, value in tree.items()}
    return change(tree)
