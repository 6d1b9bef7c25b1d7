"""One call of an op as the profiler records it: shapes, types and scalar arguments of its inputs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from perftool.op_costs.seen import Results, Shape

# Tensor types by their names in traces: bytes per element, and the name used for peak rates.
_TYPES = {
    "double": (8, "fp64"), "float": (4, "fp32"), "c10::Half": (2, "fp16"), "c10::BFloat16": (2, "bf16"),
    "c10::Float8_e4m3fn": (1, "fp8"), "c10::Float8_e5m2": (1, "fp8"), "c10::Float8_e4m3fnuz": (1, "fp8"),
    "c10::Float8_e5m2fnuz": (1, "fp8"), "c10::complex<double>": (16, None), "c10::complex<float>": (8, None),
    "long int": (8, None), "long": (8, None), "int": (4, None), "short": (2, None), "signed char": (1, "int8"),
    "unsigned char": (1, None), "bool": (1, None),
}  # fmt: skip
# The same types by the names of c10::ScalarType, which traces of other tools use.
_NAMED = {
    "Double": "double", "Float": "float", "Half": "c10::Half", "BFloat16": "c10::BFloat16", "Long": "long int",
    "Int": "int", "Short": "short", "Char": "signed char", "Byte": "unsigned char", "Bool": "bool",
    "Float8_e4m3fn": "c10::Float8_e4m3fn", "Float8_e5m2": "c10::Float8_e5m2",
    "Float8_e4m3fnuz": "c10::Float8_e4m3fnuz", "Float8_e5m2fnuz": "c10::Float8_e5m2fnuz",
}  # fmt: skip
# Integer types. Type promotion goes from bool to integer, float and complex.
_WHOLE = {"long int", "long", "int", "short", "signed char", "unsigned char"}
# Substitute types, by element size, for elements whose type is unknown.
_OF_SIZE = {1: "unsigned char", 2: "c10::BFloat16", 4: "float", 8: "double"}
# Types by their c10::ScalarType numbers, which arguments use.
_SCALAR_TYPES = {
    "0": "unsigned char", "1": "signed char", "2": "short", "3": "int", "4": "long int", "5": "c10::Half",
    "6": "float", "7": "double", "11": "bool", "15": "c10::BFloat16", "23": "c10::Float8_e5m2",
    "24": "c10::Float8_e4m3fn",
}  # fmt: skip
_LARGEST = 2**53


class NoModelError(ValueError):
    """The record lacks an argument, or the formula does not cover the call."""


@dataclass(frozen=True)
class Tensor:
    """Shape and type of one input or result; ``type`` is the name in the trace."""

    dims: tuple[int, ...]
    type: str

    @property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.dims)

    @property
    def bytes(self) -> int:
        """Size in bytes when each element is stored once."""
        return self.count * _TYPES[self.type][0]

    @property
    def rate_name(self) -> str | None:
        """The type's name in devices.toml, or None if no peak rate is published for it."""
        return _TYPES[self.type][1]

    def shaped(self, dims: tuple[int, ...]) -> Tensor:
        """A tensor of the same type with the shape ``dims``."""
        return Tensor(dims, self.type)

    def typed(self, name: str) -> Tensor:
        """A tensor of the same shape with the type ``name``."""
        return Tensor(self.dims, name)


@dataclass(frozen=True)
class Call:
    """The inputs of one call, by position.

    ``element_bytes``: the element size of tensors in lists. Records omit it; the names of the call's kernels show it.
    ``outer``: the shapes of the enclosing op's inputs.
    ``seen``: the result shapes of the recording's convolutions.
    ``around``: the annotation that a serving engine puts around the call.
    ``grids``: names and grids of the call's kernels.
    """

    dims: list[Any]
    types: list[Any]
    scalars: list[Any]
    element_bytes: int | None = None
    outer: list[Any] = field(default_factory=list)
    seen: Results = field(default_factory=dict)
    around: str = ""
    grids: Sequence[tuple[str, Shape]] = ()

    def has(self, position: int) -> bool:
        """Whether the argument at ``position`` is a tensor."""
        return position < min(len(self.dims), len(self.types)) and self.types[position] in _TYPES

    def tensor(self, position: int) -> Tensor:
        """The tensor at ``position``; raises NoModelError if there is none, or if its shape is not plain numbers."""
        if not self.has(position):
            raise NoModelError(f"no tensor at {position}")
        return Tensor(shape_of(self.dims[position]), self.types[position])

    def many(self, position: int) -> list[Tensor]:
        """The list of tensors at ``position``; raises NoModelError if shapes or the size of elements are unknown."""
        listed = self.dims[position] if position < len(self.dims) else None
        kind = _OF_SIZE.get(self.element_bytes or 0)
        if kind is None or not self.has_list(position) or not isinstance(listed, list) or not listed:
            raise NoModelError(f"no list of tensors at {position}")
        return [Tensor(shape_of(dims), kind) for dims in listed]

    def tensors(self, first: int = 0, end: int | None = None) -> list[Tensor]:
        """The tensors from ``first`` up to ``end`` (exclusive); arguments that are not tensors are left out."""
        positions = range(first, len(self.types) if end is None else end)
        return [self.tensor(position) for position in positions if self.has(position)]

    def has_list(self, position: int) -> bool:
        """Whether the argument at ``position`` is a list of tensors."""
        return self.types[position : position + 1] == ["TensorList"]

    def recorded(self, position: int) -> bool:
        """Whether the record contains a scalar at ``position``."""
        return position < len(self.scalars) and self.scalars[position] not in ("", None)

    def text(self, position: int) -> str:
        """The scalar at ``position`` as recorded, "" for None; raises NoModelError if it is not recorded."""
        if position >= len(self.scalars) or not isinstance(self.scalars[position], str):
            raise NoModelError(f"no argument at {position}")
        return str(self.scalars[position])

    def flag(self, position: int) -> bool:
        """The boolean at ``position``."""
        if (text := self.text(position)) not in ("True", "False"):
            raise NoModelError(f"no boolean at {position}")
        return text == "True"

    def numbers(self, position: int) -> list[int]:
        """The whole numbers at ``position``, one or a list; empty for None."""
        text = self.text(position)
        if text.startswith("(") and text.endswith(")"):
            text = f"[{text[1:-1].rstrip(', ')}]"
        try:
            value = json.loads(text) if text else []
        except ValueError:
            raise NoModelError(f"no numbers at {position}") from None
        values = value if isinstance(value, list) else [value]
        if any(type(number) is not int or abs(number) > _LARGEST for number in values):
            raise NoModelError(f"no numbers at {position}")
        return values

    def type_at(self, position: int, otherwise: str) -> str:
        """The type that the argument at ``position`` names; ``otherwise`` if it is None or not recorded."""
        recorded = self.scalars[position] if position < len(self.scalars) else ""
        if recorded == "":
            return otherwise
        if recorded not in _SCALAR_TYPES:
            raise NoModelError(f"no type at {position}")
        return _SCALAR_TYPES[recorded]


def spelled(types: Sequence[Any]) -> list[Any]:
    """``types`` with the names that PyTorch's profiler gives them."""
    return [_NAMED.get(one, one) if isinstance(one, str) else "" for one in types]


def shape_of(dims: Any) -> Shape:
    """Recorded sizes as a shape; raises NoModelError if they are not plain numbers."""
    if not isinstance(dims, list) or any(type(size) is not int or not 0 <= size <= _LARGEST for size in dims):
        raise NoModelError("no shape")
    return tuple(dims)


def promoted(tensors: list[Tensor]) -> str:
    """The type that an op on ``tensors`` of several types returns: the highest kind, and the widest type of that kind.

    A zero-dimensional tensor counts only if its kind is higher (PyTorch, "Tensor Attributes", type promotion).
    """
    kinds = [(_kind(one.type), bool(one.dims), _TYPES[one.type][0], one.type) for one in tensors]
    return max(kinds)[3]


def is_whole(name: str) -> bool:
    """Whether the type is integer or bool."""
    return _kind(name) < 2


def broadcast(tensors: list[Tensor]) -> tuple[int, ...]:
    """The shape that ``tensors`` broadcast to; raises NoModelError if they do not fit."""
    rank = max(len(one.dims) for one in tensors)
    padded = [(1,) * (rank - len(one.dims)) + one.dims for one in tensors]
    shape = tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))
    if any(size not in (1, out) for dims in padded for size, out in zip(dims, shape, strict=True)):
        raise NoModelError("shapes that do not fit")
    return shape


def _kind(name: str) -> int:
    return 0 if name == "bool" else 1 if name in _WHOLE else 3 if "complex" in name else 2
