"""Converts the names of ops and dtypes in logs to the names in traces."""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT_NAMESPACE = "aten"


@dataclass(frozen=True, slots=True)
class OpName:
    """The name of an op: ``full`` includes the overload (``aten::index.Tensor_out``); ``base`` does not
    (``aten::index``)."""

    full: str
    base: str


def op_name(text: str) -> OpName:
    """Normalise the name of an op in a log. An op without a namespace is an ``aten`` op."""
    full = text.strip()
    if "::" not in full:
        full = f"{DEFAULT_NAMESPACE}::{full}"
    namespace, _, name = full.rpartition("::")
    return OpName(full, f"{namespace}::{name.partition('.')[0]}")


_TYPES = {
    "BFloat16": "bfloat16",
    "Half": "float16",
    "Float": "float32",
    "Double": "float64",
    "Float8_e5m2": "float8_e5m2",
    "Float8_e4m3fn": "float8_e4m3fn",
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
_TENSOR_TYPE = re.compile(r"(?:HPU|CPU|torch\.hpu\.|torch\.)?(\w+?)(?:Type|Tensor)?$")


def dtype_name(text: str) -> str:
    """Return PyTorch's name for a dtype: ``bfloat16`` for ``HPUBFloat16Type``. Unknown names stay unchanged."""
    match = _TENSOR_TYPE.match(text)
    return _TYPES.get(match[1], text) if match else text
