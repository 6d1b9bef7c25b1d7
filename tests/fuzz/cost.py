"""Limits for finding inputs that crash nothing but cost too much. Tests count the bytes that repairs examine and the
peak memory of Python objects, so that an input costs the same on every machine. The fuzzer also measures the memory of
the process and its CPU time, which it compares with that of good inputs. Each limit grows with the number of input
bytes.
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
# Covers the modules that are imported during the run.
_FREE_MEMORY = 64 << 20
# More than was measured: 20 s per megabyte of input, and a gigabyte of memory per megabyte.
_SECONDS_PER_BYTE = 20e-6
_GROWTH_PER_BYTE = 1000
_TIMES_GOOD, _FREE_S = 5, 1.5
_FREE_GROWTH = 400 << 20


class TooMuchError(AssertionError):
    """Raised if an input costs too much ``what`` (time or memory)."""

    def __init__(self, what: str, text: str) -> None:
        super().__init__(text)
        self.what = what


def may_cost(size: int, cpu_s: float, grown: int, good_s: float) -> None:
    """Raise TooMuchError if an input of ``size`` bytes took too much time or memory."""
    most_s = _FREE_S + _TIMES_GOOD * good_s + _SECONDS_PER_BYTE * size
    if cpu_s > most_s:
        raise TooMuchError("time", f"{cpu_s:.1f} s of CPU for {size:,} bytes; good inputs take {good_s:.2f} s")
    if grown > _FREE_GROWTH + _GROWTH_PER_BYTE * size:
        raise TooMuchError("memory", f"{grown >> 20:,} MB of memory for {size:,} bytes")


@contextmanager
def bounded(size: int, memory: bool = True) -> Iterator[None]:
    """Raise AssertionError if the body costs more than an input of ``size`` bytes may cost.

    With ``memory``, the memory of Python objects counts too, which doubles the running time.
    """
    work = longest = 0
    plain = mend.mend_events

    def counted(data: bytes, start: int = 0) -> mend.Mended:
        nonlocal work, longest
        found = plain(data, start)
        work, longest = work + found.work, max(longest, len(data))
        return found

    own = memory and not tracemalloc.is_tracing()
    if own:
        tracemalloc.start()
    before = most = 0
    if memory:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
    try:
        with mock.patch.object(mend, "mend_events", counted):
            yield
        if memory:
            _, most = tracemalloc.get_traced_memory()
    finally:
        if own:
            tracemalloc.stop()
    # For a compressed input, the uncompressed length counts.
    most_work = _WORK_PER_BYTE * max(size, longest) + _FREE_WORK
    assert work <= most_work, f"{work:,} bytes looked at for {size:,}"
    assert most - before <= _MEMORY_PER_BYTE * size + _FREE_MEMORY, f"{most - before:,} bytes of memory for {size:,}"
