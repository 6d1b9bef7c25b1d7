"""How much text an input will give, before it is read."""

from __future__ import annotations

import os

# Text grows this much when gzip or zstd is undone, about.
_COMPRESSION = 12


def text_size(path: str) -> int:
    """About how much text a file will give."""
    try:
        size = os.path.getsize(path)
    except OSError:
        return 0
    with open(path, "rb") as file:
        compressed = file.read(2) in (b"\x1f\x8b", b"\x28\xb5")
    return size * _COMPRESSION if compressed else size
