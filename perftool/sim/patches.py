"""Replaces attributes and modules while a simulation runs."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

_MISSING = object()


@contextmanager
def attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set ``owner.name`` to ``value`` within the block."""
    before = vars(owner).get(name, _MISSING)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextmanager
def item(table: MutableMapping[str, Any], key: str, value: Any) -> Iterator[None]:
    """Set ``table[key]`` to ``value`` within the block."""
    before = table.get(key, _MISSING)
    table[key] = value
    try:
        yield
    finally:
        if before is _MISSING:
            del table[key]
        else:
            table[key] = before
