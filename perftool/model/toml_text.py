"""Parses untrusted TOML."""

from __future__ import annotations

import re
from typing import Any

import tomli

# tomli needs time and memory for each pair of parts of a key. Real keys have up to five parts.
_MOST_PARTS = 10
# Each kind matches even if it is not closed, so that all of the text is read only once.
_STRING_OR_COMMENT = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"{3,5}|\Z)|' r"'''.*?(?:'{3,5}|\Z)|" r'"(?:[^"\\\n]|\\.)*"?|' r"'[^'\n]*'?|#[^\n]*",
    re.DOTALL,
)
_AROUND_KEYS = re.compile(r"[\n=,\[\]{}]")


def parse_toml(text: str) -> dict[str, Any]:
    """The tables in ``text``. Raises ValueError with the reason, even for values that nest too deeply."""
    bare = _STRING_OR_COMMENT.sub("", text)
    if any(key.count(".") >= _MOST_PARTS for key in _AROUND_KEYS.split(bare)):
        raise ValueError(f"a key has more than {_MOST_PARTS} parts")
    try:
        return tomli.loads(text)
    except RecursionError:
        raise ValueError("values nest too deeply") from None
