"""Parses untrusted TOML."""

from __future__ import annotations

from typing import Any

import tomli


def parse_toml(text: str) -> dict[str, Any]:
    """The tables in ``text``. Raises ValueError with the reason, even for values that nest too deeply."""
    try:
        return tomli.loads(text)
    except RecursionError:
        raise ValueError("values nest too deeply") from None
