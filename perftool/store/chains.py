"""Finds sequences of kernels that repeat back to back, such as the layers of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
from numpy.typing import NDArray

from perftool.model.inputs import ImportIssue
from perftool.store.catalog import catalog

Ints = NDArray[np.int64]
# Limits on the length of a unit (longer units are not layers), and on the number of lengths to try.
_LONGEST, _MOST_PERIODS = 400, 12
_FEWEST_TIMES = 3
# A unit with only one or two kinds of work is a loop over tensors, as in an optimizer, rather than a layer.
_FEWEST_KINDS = 3
_MOST_CHAINS = 3
# Shorter chains, as a share of the total work, are ignored.
_LEAST_SHARE = 0.05
# A longer period must cover more time than a shorter one by this factor, because a multiple of the right period may
# cover slightly more by chance.
_CLEARLY = 1.05


@dataclass(frozen=True)
class Repeat:
    """``times`` consecutive units of ``period`` pieces of work each, beginning with piece ``start``."""

    start: int
    period: int
    times: int

    @property
    def end(self) -> int:
        """The position after the last piece."""
        return self.start + self.period * self.times


def find_chains(connection: duckdb.DuckDBPyConnection) -> Sequence[tuple[int, ImportIssue]]:
    """Create the table ``_chain_places`` from ``_chained_work``. Return no issues."""
    table = catalog()["_chain_places"]
    connection.execute(f"CREATE TABLE {table.definition}")
    work = connection.execute("SELECT rank, kind, dur, id FROM _chained_work ORDER BY rank, ts, id").fetchnumpy()
    rows: list[tuple[int, ...]] = []
    for rank in np.unique(work["rank"]):
        here = work["rank"] == rank
        kinds, lengths, ids = (np.asarray(work[name][here], dtype=np.int64) for name in ("kind", "dur", "id"))
        for number, found in enumerate(repeats(kinds, lengths), 1):
            rows += _places(int(rank), number, found, lengths, ids)
    if rows:
        marks = ", ".join(["unnest(?)"] * len(table.columns))
        columns = [list(column) for column in zip(*rows, strict=True)]
        connection.execute(f"INSERT INTO _chain_places SELECT {marks}", columns)
    return []


def _places(rank: int, number: int, found: Repeat, lengths: Ints, ids: Ints) -> list[tuple[int, ...]]:
    units, work = lengths[found.start : found.end].reshape(found.times, found.period), int(lengths.sum())
    return [
        (rank, number, place + 1, int(ids[found.start + place]), found.times, int(ns), work)
        for place, ns in enumerate(units.sum(axis=0))
    ]


def repeats(kinds: Ints, lengths: Ints) -> list[Repeat]:
    """Find the repeating sequences in ``kinds`` that take the most time, without overlaps. ``lengths`` contains the
    duration of each piece."""
    kinds, found = kinds.copy(), []
    for _ in range(_MOST_CHAINS):
        best = _longest(kinds, lengths)
        if best is None or lengths[best.start : best.end].sum() < _LEAST_SHARE * lengths.sum():
            break
        found.append(best)
        # Pieces of this chain must not match again.
        kinds[best.start : best.end] = -1 - np.arange(best.start, best.end)
    return sorted(found, key=lambda one: one.start)


def _longest(kinds: Ints, lengths: Ints) -> Repeat | None:
    """Return the repeat that takes the most time. If several take nearly the same time, the shortest period wins."""
    summed = np.concatenate([[0], np.cumsum(lengths)])
    best, most = None, 0.0
    for period in _periods(kinds):
        for repeat in _runs(kinds, period):
            time = float(summed[repeat.end] - summed[repeat.start])
            distinct = len(np.unique(kinds[repeat.start : repeat.start + period]))
            if distinct >= _FEWEST_KINDS and time > _CLEARLY * most:
                best, most = repeat, time
    return best


def _periods(kinds: Ints) -> list[int]:
    """Return the most frequent distances between consecutive pieces of the same kind, in ascending order."""
    order = np.argsort(kinds, kind="stable")
    distances = np.diff(order)[kinds[order][1:] == kinds[order][:-1]]
    counts = np.bincount(distances[distances <= _LONGEST], minlength=_LONGEST + 1)
    counts[:_FEWEST_KINDS] = 0
    likely = np.argsort(-counts, kind="stable")[:_MOST_PERIODS]
    return sorted(int(period) for period in likely if counts[period])


def _runs(kinds: Ints, period: int) -> list[Repeat]:
    """Return the stretches that repeat with ``period`` at least three times."""
    same = np.concatenate([[False], kinds[:-period] == kinds[period:], [False]])
    edges = np.flatnonzero(np.diff(same.astype(np.int8)))
    runs = [(int(start), int(end - start) + period) for start, end in edges.reshape(-1, 2)]
    return [Repeat(start, period, length // period) for start, length in runs if length >= _FEWEST_TIMES * period]
