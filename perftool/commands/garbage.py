"""Python's search for cycles of garbage, in a program that ends soon."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# New objects between two searches; Python's own number is 700. Imports alone make 50,000, and none of them is garbage.
_OBJECTS = 100_000


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Search less often in here."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
