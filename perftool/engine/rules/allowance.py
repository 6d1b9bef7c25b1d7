"""What the rules of packs may take together, however many they are: each by itself is bounded as well."""

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
# What a row becomes in this process, at least, whatever its length on the way.
_ROW_BYTES = 50


class SpentError(QueryError):
    """The rules before this one took what all of them may take."""

    def __init__(self) -> None:
        super().__init__(f"the rules of packs may take {MOST_SECONDS:.0f} s and {MOST_BYTES >> 20} MB together")


@dataclass
class Allowance:
    """What the rules of packs took so far, of one store."""

    seconds: float = 0.0
    bytes: int = 0

    def add_rows(self, rows: int, row_bytes: int = _ROW_BYTES) -> None:
        """Count so many rows, each of so many bytes of memory or output."""
        self.bytes += rows * row_bytes


_TAKEN: WeakKeyDictionary[TraceStore, Allowance] = WeakKeyDictionary()


def taken(store: TraceStore) -> Allowance:
    """What the rules of packs took so far of ``store``."""
    return _TAKEN.setdefault(store, Allowance())


@contextmanager
def charged(store: TraceStore) -> Iterator[Allowance]:
    """What is done in here is done for a rule of a pack, and its time counts. Raises SpentError when none is left."""
    allowance = taken(store)
    if allowance.seconds >= MOST_SECONDS or allowance.bytes >= MOST_BYTES:
        raise SpentError
    begun = monotonic()
    try:
        yield allowance
    finally:
        allowance.seconds += monotonic() - begun
