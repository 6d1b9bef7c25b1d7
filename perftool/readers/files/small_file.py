"""Reads small files, such as configuration, rules and baselines."""

from __future__ import annotations

import os
import stat
from pathlib import Path

# Larger than any plausible configuration or rule, and hundreds of times the usual size.
MOST_TEXT = 1 << 20
_BLOCK = 1 << 20


def read_small(path: Path, most: int = MOST_TEXT) -> bytes:
    """Read a regular file. Raise OSError for anything else (a device may have no end), or above ``most`` bytes."""
    data = read_beginning(path, most + 1)
    if len(data) > most:
        raise OSError(0, f"larger than {most >> 20} MiB" if most >> 20 else f"larger than {most >> 10} KiB")
    return data


def read_beginning(path: Path, most: int) -> bytes:
    """Read at most the first ``most`` bytes of a regular file. Raise OSError for anything else."""
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "not a regular file")
        # Read in blocks, because a single read would allocate the maximum, which is 64 MiB for a baseline.
        data = b""
        while block := file.read(min(_BLOCK, most - len(data))):
            data += block
    return data


def _without_waiting(path: str, flags: int) -> int:
    """Open ``path`` without waiting for a writer if it is a FIFO, and return the file descriptor."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
