"""Parses JSON files with memory proportional to their length."""

from __future__ import annotations

from typing import Any

import orjson

# An empty list or object takes this many bytes of memory, but only three bytes of text.
_LIST, _OBJECT = 64, 200
# Lists and objects may take _PER_BYTE times the text, plus _FREE. Those of real files take less than the text.
_PER_BYTE, _FREE = 8, 16 << 20


def parsed(data: bytes) -> Any:
    """Parse ``data``. Raise ValueError if it is damaged, or contains more lists and objects than a real file."""
    require_few_containers(data)
    return orjson.loads(data)


def require_few_containers(text: bytes | str) -> None:
    """Raise ValueError if the JSON ``text`` contains more lists and objects than a real file of its length."""
    open_list, open_object = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    lists, objects = text.count(open_list), text.count(open_object)  # type: ignore[arg-type]
    if _LIST * lists + _OBJECT * objects > _PER_BYTE * len(text) + _FREE:
        raise ValueError(f"{lists + objects:,} lists and objects, more than any real file of this size has")
