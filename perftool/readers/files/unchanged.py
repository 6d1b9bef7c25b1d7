"""Caches the results of reading files until the files change."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

Read = TypeVar("Read")
# Enough for a run with ten thousand ranks.
_MOST = 16_384


def once_per_file(read: Callable[[str], Read]) -> Callable[[str], Read]:
    """Cache the results of ``read``. It runs again if the size or times of a regular file change, and always for other
    paths."""

    @lru_cache(maxsize=_MOST)
    def remembered(path: str, _: tuple[int, ...]) -> Read:
        return read(path)

    @wraps(read)
    def once(path: str) -> Read:
        try:
            now = os.stat(path)
        except (OSError, ValueError):
            return read(path)
        if not stat.S_ISREG(now.st_mode):
            return read(path)
        return remembered(path, (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns))

    return once
