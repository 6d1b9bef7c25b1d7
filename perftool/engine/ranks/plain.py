"""Converts our dataclasses to plain JSON values and back, by the declared types of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

Made = TypeVar("Made")
_DECIMAL = "$decimal"
_MOST_DIGITS = 38


def to_plain(value: Any) -> Any:
    """Convert ``value`` to plain JSON: mappings with text keys, lists, text, numbers, true, false and null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(part) for key, part in value.items()}
    if isinstance(value, (frozenset, set)):
        return sorted(map(to_plain, value))
    if isinstance(value, (list, tuple)):
        return list(map(to_plain, value))
    if isinstance(value, Decimal):
        return {_DECIMAL: str(value)}
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def from_plain(kind: type[Made], value: Any) -> Made:
    """Rebuild an object of type ``kind`` from the output of ``to_plain``. Raise ValueError or TypeError for any other
    value."""
    return cast(Made, _made(kind, value))


def _made(kind: Any, value: Any) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return _free(value)
    if origin in (Union, UnionType):
        return (
            None
            if value is None and NoneType in args
            else _made(next(arg for arg in args if arg is not NoneType), value)
        )
    if origin is Literal:
        if value not in args:
            raise ValueError(f"{value!r} is not one of {', '.join(map(repr, args))}")
        return value
    if origin in (tuple, frozenset):
        return origin(_made(args[0], part) for part in _of_type(list, value))
    if origin is not None and issubclass(origin, Mapping):
        return {_made_key(args[0], key): _made(args[1], part) for key, part in _of_type(dict, value).items()}
    if is_dataclass(kind):
        hints = _hints(cast(type, kind))
        mapping = _of_type(dict, value)
        if unknown := set(mapping) - set(hints):
            raise ValueError(f"unknown field {min(unknown)}")
        return cast(type, kind)(**{name: _made(hints[name], part) for name, part in mapping.items()})
    return _of_type((int, float) if kind is float else kind, value)


def _made_key(kind: Any, key: str) -> Any:
    return int(key) if kind is int else key


def _of_type(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind not in (bool, object)):
        raise TypeError(f"{type(value).__name__} in the wrong place")
    return _bounded(value, 63)


def _bounded(value: Any, bits: int) -> Any:
    if isinstance(value, int) and value.bit_length() > bits:
        raise ValueError(f"a number with {value.bit_length()} bits")
    return value


def _free(value: Any) -> Any:
    """Return a value of any type, as a query returned it."""
    if isinstance(value, dict):
        return (
            _decimal(value[_DECIMAL]) if set(value) == {_DECIMAL} else {key: _free(one) for key, one in value.items()}
        )
    return list(map(_free, value)) if isinstance(value, list) else _bounded(value, 127)


def _decimal(text: Any) -> Decimal:
    """Return a number from a query, with at most 38 digits, because an int such as 1E+999999999 would exhaust
    memory.
    """
    number = Decimal(_of_type(str, text))
    if number.is_finite() and abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError(f"{text[:20]} is not a number from a query")
    return number


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
