"""Python's search for cycles of garbage, in a program that ends soon."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# New objects between two searches; Python's own number is 700. Imports alone make 50,000, and none of them is garbage.
_OBJECTS = 20_000


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Search less often in here, and where that is safe not at all when the process ends."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *before[1:])
    atexit.register(_end_at_once)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _end_at_once() -> None:
    """Leave all memory to the system, which takes it at once: the last search, of every module, is a sixth of the help.

    DuckDB counts what is alive of its own at the end, and complains of it on stderr.
    """
    if "duckdb" not in sys.modules:
        gc.freeze()
