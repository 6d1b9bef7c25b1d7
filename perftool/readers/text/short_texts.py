"""Caches what is computed from a text, without keeping long texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

Result = TypeVar("Result")
_MOST = 4096
_LONGEST = 1000


def cached_for_short(compute: Callable[[str], Result]) -> Callable[[str], Result]:
    """``compute`` with a cache for texts of up to 1,000 characters. A line of a log may have a million."""
    cached = lru_cache(maxsize=_MOST)(compute)

    @wraps(compute)
    def computed(text: str) -> Result:
        return cached(text) if len(text) <= _LONGEST else compute(text)

    return computed
