"""Parses untrusted TOML."""

from __future__ import annotations

import re
from typing import Any

import tomli

# tomli's time and memory grow with the square of the number of parts in a key. Real keys have up to five parts.
_MOST_PARTS = 10
# Unclosed strings also match, so that the text is scanned only once.
_STRING_OR_COMMENT = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"{3,5}|\Z)|' r"'''.*?(?:'{3,5}|\Z)|" r'"(?:[^"\\\n]|\\.)*"?|' r"'[^'\n]*'?|#[^\n]*",
    re.DOTALL,
)
_AROUND_KEYS = re.compile(r"[\n=,\[\]{}]")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse ``text``. Raise ValueError with the reason if it is not valid TOML, nests too deeply, or contains a key of
    too many parts or an integer of more than 64 bits."""
    bare = _STRING_OR_COMMENT.sub("", text)
    if any(key.count(".") >= _MOST_PARTS for key in _AROUND_KEYS.split(bare)):
        raise ValueError(f"a key has more than {_MOST_PARTS} parts")
    try:
        found = tomli.loads(text)
    except RecursionError:
        raise ValueError("values nest too deeply") from None
    waiting: list[Any] = [found]
    while waiting:
        value = waiting.pop()
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            # Python refuses to print such integers if they are very long.
            raise ValueError("an integer has more than 64 bits")
        if isinstance(value, (dict, list)):
            waiting += value.values() if isinstance(value, dict) else value
    return found
