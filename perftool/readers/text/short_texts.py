"""Caches the results of functions of one string, except for long strings."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

Result = TypeVar("Result")
_MOST = 4096
_LONGEST = 1000


def cached_for_short(compute: Callable[[str], Result]) -> Callable[[str], Result]:
    """Cache ``compute`` for strings of up to 1,000 characters. A log line may have a million characters."""
    cached = lru_cache(maxsize=_MOST)(compute)

    @wraps(compute)
    def computed(text: str) -> Result:
        return cached(text) if len(text) <= _LONGEST else compute(text)

    return computed
