"""Truncates long strings."""

from __future__ import annotations

# The mark where a string was truncated. It shows --redact where a string may end in the middle of a secret.
CUT = "…"


def cut_text(text: str, most: int) -> str:
    """Return ``text``, or its start and a mark if it is longer than ``most`` characters. The SQL macro of this name
    does the same.
    """
    return text if len(text) <= most else text[: most - 1] + CUT
