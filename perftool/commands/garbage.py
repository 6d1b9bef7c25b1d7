"""Python's search for cycles of garbage, in a program that ends soon."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

# New objects between two searches; Python's own number is 700. Imports alone make 50,000, and none of them is garbage.
_OBJECTS = 20_000


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Search less often in here, and not at all when the process ends: then the system takes all memory at once.

    That last search, through every module, is a tenth of the analysis of a small trace.
    """
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *before[1:])
    atexit.register(gc.freeze)
    try:
        yield
    finally:
        gc.set_threshold(*before)
