"""How much text an input will give, before it is read."""

from __future__ import annotations

import os

from perftool.readers.remote import is_url

# Text grows this much when gzip or zstd is undone, about.
_COMPRESSION = 12
# Better a database on disk for little than one in memory for a lot.
_UNKNOWN = 1 << 40


def text_size(path: str) -> int:
    """About how much text a file will give."""
    if is_url(path):
        return _UNKNOWN
    try:
        size = os.path.getsize(path)
    except OSError:
        return 0
    with open(path, "rb") as file:
        compressed = file.read(2) in (b"\x1f\x8b", b"\x28\xb5")
    return size * _COMPRESSION if compressed else size
