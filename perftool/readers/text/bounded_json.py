"""Parses JSON files in memory that is in proportion to their length."""

from __future__ import annotations

from typing import Any

import orjson

# An empty list or object takes this many bytes of memory, but three bytes of text.
_LIST, _OBJECT = 64, 200
# Those of real files take less than their text.
_PER_BYTE, _FREE = 8, 16 << 20


def parsed(data: bytes) -> Any:
    """The value of ``data``. Raises ValueError for damaged JSON, or more lists and objects than a real file has."""
    require_few_containers(data)
    return orjson.loads(data)


def require_few_containers(text: bytes | str) -> None:
    """Raise ValueError if ``text`` is JSON with more lists and objects than a real file of its length has."""
    open_list, open_object = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    lists, objects = text.count(open_list), text.count(open_object)  # type: ignore[arg-type]
    if _LIST * lists + _OBJECT * objects > _PER_BYTE * len(text) + _FREE:
        raise ValueError(f"{lists + objects:,} lists and objects, more than any real file of this size has")
