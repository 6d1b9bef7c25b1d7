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
# The same types by their c10::ScalarType names, which traces of other tools use.
_NAMED = {
    "Double": "double", "Float": "float", "Half": "c10::Half", "BFloat16": "c10::BFloat16", "Long": "long int",
    "Int": "int", "Short": "short", "Char": "signed char", "Byte": "unsigned char", "Bool": "bool",
    "Float8_e4m3fn": "c10::Float8_e4m3fn", "Float8_e5m2": "c10::Float8_e5m2",
    "Float8_e4m3fnuz": "c10::Float8_e4m3fnuz", "Float8_e5m2fnuz": "c10::Float8_e5m2fnuz",
}  # fmt: skip
# Integer types. Type promotion goes from bool to integer, float and complex.
_WHOLE = {"long int", "long", "int", "short", "signed char", "unsigned char"}
# The types to assume, by element size, if the type is unknown.
_OF_SIZE = {1: "unsigned char", 2: "c10::BFloat16", 4: "float", 8: "double"}
# Types by their c10::ScalarType numbers, which arguments use.
_SCALAR_TYPES = {
    "0": "unsigned char", "1": "signed char", "2": "short", "3": "int", "4": "long int", "5": "c10::Half",
    "6": "float", "7": "double", "11": "bool", "15": "c10::BFloat16", "23": "c10::Float8_e5m2",
    "24": "c10::Float8_e4m3fn",
}  # fmt: skip
_LARGEST = 2**53


class NoModelError(ValueError):
    """An argument was not recorded, or the formula does not cover the call."""


@dataclass(frozen=True)
class Tensor:
    """The shape and type of an input or result. ``type`` is the name in the trace."""

    dims: tuple[int, ...]
    type: str

    @property
    def count(self) -> int:
        """The number of elements."""
        return prod(self.dims)

    @property
    def bytes(self) -> int:
        """The size in bytes if each element is stored once."""
        return self.count * _TYPES[self.type][0]

    @property
    def rate_name(self) -> str | None:
        """The name of the type in devices.toml; None if no peak rate is published for it."""
        return _TYPES[self.type][1]

    def shaped(self, dims: tuple[int, ...]) -> Tensor:
        """Return a tensor with the same type and the shape ``dims``."""
        return Tensor(dims, self.type)

    def typed(self, name: str) -> Tensor:
        """Return a tensor with the same shape and the type ``name``."""
        return Tensor(self.dims, name)


@dataclass(frozen=True)
class Call:
    """The inputs of one call, by position.

    ``element_bytes``: the element size of tensors in lists, which is not recorded, but follows from kernel names.
    ``outer``: the shapes of the enclosing op's inputs.
    ``seen``: the result shapes of convolutions in the recording.
    ``around``: the annotation that a serving engine puts around the call.
    ``grids``: the names and grids of the call's kernels.
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
        """Return the tensor at ``position``. Raise NoModelError if there is none, or if its shape is not plain
        numbers.
        """
        if not self.has(position):
            raise NoModelError(f"no tensor at {position}")
        return Tensor(shape_of(self.dims[position]), self.types[position])

    def many(self, position: int) -> list[Tensor]:
        """Return the list of tensors at ``position``. Raise NoModelError if their shapes or element size are
        unknown.
        """
        listed = self.dims[position] if position < len(self.dims) else None
        kind = _OF_SIZE.get(self.element_bytes or 0)
        if kind is None or not self.has_list(position) or not isinstance(listed, list) or not listed:
            raise NoModelError(f"no list of tensors at {position}")
        return [Tensor(shape_of(dims), kind) for dims in listed]

    def tensors(self, first: int = 0, end: int | None = None) -> list[Tensor]:
        """Return the tensors from ``first`` up to ``end`` (exclusive). Arguments that are not tensors are skipped."""
        positions = range(first, len(self.types) if end is None else end)
        return [self.tensor(position) for position in positions if self.has(position)]

    def has_list(self, position: int) -> bool:
        """Whether the argument at ``position`` is a list of tensors."""
        return self.types[position : position + 1] == ["TensorList"]

    def recorded(self, position: int) -> bool:
        """Whether a scalar was recorded at ``position``."""
        return position < len(self.scalars) and self.scalars[position] not in ("", None)

    def text(self, position: int) -> str:
        """Return the recorded text of the scalar at ``position``, or "" if the argument was None. Raise NoModelError if
        no text was recorded."""
        if position >= len(self.scalars) or not isinstance(self.scalars[position], str):
            raise NoModelError(f"no argument at {position}")
        return str(self.scalars[position])

    def flag(self, position: int) -> bool:
        """Return the boolean at ``position``. Raise NoModelError if there is none."""
        if (text := self.text(position)) not in ("True", "False"):
            raise NoModelError(f"no boolean at {position}")
        return text == "True"

    def numbers(self, position: int) -> list[int]:
        """Return the integer or the list of integers at ``position``, as a list, which is empty if the argument was
        None. Raise NoModelError for anything else."""
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
        """Return the type that the argument at ``position`` specifies, or ``otherwise`` if it is None or was not
        recorded.
        """
        recorded = self.scalars[position] if position < len(self.scalars) else ""
        if recorded == "":
            return otherwise
        if recorded not in _SCALAR_TYPES:
            raise NoModelError(f"no type at {position}")
        return _SCALAR_TYPES[recorded]


def spelled(types: Sequence[Any]) -> list[Any]:
    """Spell ``types`` as PyTorch's profiler does. Entries that are not strings become empty strings."""
    return [_NAMED.get(one, one) if isinstance(one, str) else "" for one in types]


def shape_of(dims: Any) -> Shape:
    """Convert recorded sizes to a shape. Raise NoModelError if they are not plain numbers."""
    if not isinstance(dims, list) or any(type(size) is not int or not 0 <= size <= _LARGEST for size in dims):
        raise NoModelError("no shape")
    return tuple(dims)


def promoted(tensors: list[Tensor]) -> str:
    """Return the type that an op returns for ``tensors`` of several types: the widest type of the highest kind.

    A zero-dimensional tensor counts only if its kind is higher (PyTorch, "Tensor Attributes", type promotion).
    """
    kinds = [(_kind(one.type), bool(one.dims), _TYPES[one.type][0], one.type) for one in tensors]
    return max(kinds)[3]


def is_whole(name: str) -> bool:
    """Whether the type is an integer type or bool."""
    return _kind(name) < 2


def broadcast(tensors: list[Tensor]) -> tuple[int, ...]:
    """Return the shape that ``tensors`` broadcast to. Raise NoModelError if they do not broadcast."""
    rank = max(len(one.dims) for one in tensors)
    padded = [(1,) * (rank - len(one.dims)) + one.dims for one in tensors]
    shape = tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))
    if any(size not in (1, out) for dims in padded for size, out in zip(dims, shape, strict=True)):
        raise NoModelError("shapes that do not fit")
    return shape


def _kind(name: str) -> int:
    return 0 if name == "bool" else 1 if name in _WHOLE else 3 if "complex" in name else 2
