"""What an input may cost: an oracle for inputs that crash nothing and still take too much.

Costs are counted, so that the same input costs the same everywhere: the bytes that mending looked at, and the most
memory that Python objects took, each with a part for every byte of input.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from perftool.readers.trace import mend

_WORK_PER_BYTE = 3 * (mend.MOST_WORK + 40)
_MEMORY_PER_BYTE = 400
_FREE_WORK = 8 << 20
# Modules that are imported on the way count too.
_FREE_MEMORY = 64 << 20


@contextmanager
def bounded(size: int) -> Iterator[None]:
    """Raises AssertionError when what is done in here costs more than an input of ``size`` bytes may."""
    work = 0
    plain = mend.mend_events

    def counted(data: bytes, start: int = 0) -> mend.Mended:
        nonlocal work
        found = plain(data, start)
        work += found.work
        return found

    own = not tracemalloc.is_tracing()
    if own:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        with mock.patch.object(mend, "mend_events", counted):
            yield
        _, most = tracemalloc.get_traced_memory()
    finally:
        if own:
            tracemalloc.stop()
    assert work <= _WORK_PER_BYTE * size + _FREE_WORK, f"{work:,} bytes looked at for {size:,}"
    assert most - before <= _MEMORY_PER_BYTE * size + _FREE_MEMORY, f"{most - before:,} bytes of memory for {size:,}"
