"""Limits the time and memory of all third-party rules together. Each rule also has its own limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from weakref import WeakKeyDictionary

from perftool.errors import QueryError
from perftool.store.trace_store import TraceStore

MOST_SECONDS = 120.0
MOST_BYTES = 64 << 20
# The least memory that a row takes in this process, in bytes. The sandbox may send fewer bytes for a small row.
_ROW_BYTES = 50


class SpentError(QueryError):
    """Earlier rules used up the allowance that all third-party rules share."""

    def __init__(self) -> None:
        super().__init__(f"third-party rules may use {MOST_SECONDS:.0f} s and {MOST_BYTES >> 20} MiB in total")


@dataclass
class Allowance:
    """The time and memory that third-party rules have used so far on a store."""

    seconds: float = 0.0
    bytes: int = 0

    def add_rows(self, rows: int, row_bytes: int = _ROW_BYTES) -> None:
        """Add the memory of ``rows`` rows of ``row_bytes`` each."""
        self.bytes += rows * row_bytes


_ALLOWANCES: WeakKeyDictionary[TraceStore, Allowance] = WeakKeyDictionary()


def taken(store: TraceStore) -> Allowance:
    """Return the allowance of ``store``, with what third-party rules have used so far."""
    return _ALLOWANCES.setdefault(store, Allowance())


@contextmanager
def charged(store: TraceStore) -> Iterator[Allowance]:
    """Charge the time of the block to third-party rules. Raise SpentError if the allowance is already used up."""
    allowance = taken(store)
    if allowance.seconds >= MOST_SECONDS or allowance.bytes >= MOST_BYTES:
        raise SpentError
    start = monotonic()
    try:
        yield allowance
    finally:
        allowance.seconds += monotonic() - start
