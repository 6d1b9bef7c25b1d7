"""The total allowance for all rules of packs together; each rule also has its own limits."""

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
# Minimum memory of a row in this process, whatever its size in transit.
_ROW_BYTES = 50


class SpentError(QueryError):
    """Earlier rules used up the shared allowance."""

    def __init__(self) -> None:
        super().__init__(f"the rules of packs may use {MOST_SECONDS:.0f} s and {MOST_BYTES >> 20} MiB in all")


@dataclass
class Allowance:
    """What the rules of packs have used so far on one store."""

    seconds: float = 0.0
    bytes: int = 0

    def add_rows(self, rows: int, row_bytes: int = _ROW_BYTES) -> None:
        """Count ``rows`` rows of ``row_bytes`` each, in memory or output."""
        self.bytes += rows * row_bytes


_ALLOWANCES: WeakKeyDictionary[TraceStore, Allowance] = WeakKeyDictionary()


def taken(store: TraceStore) -> Allowance:
    """What the rules of packs have used so far on ``store``."""
    return _ALLOWANCES.setdefault(store, Allowance())


@contextmanager
def charged(store: TraceStore) -> Iterator[Allowance]:
    """Charges the time of its block to the rules of packs. Raises SpentError when the allowance is used up."""
    allowance = taken(store)
    if allowance.seconds >= MOST_SECONDS or allowance.bytes >= MOST_BYTES:
        raise SpentError
    start = monotonic()
    try:
        yield allowance
    finally:
        allowance.seconds += monotonic() - start
