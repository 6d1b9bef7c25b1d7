"""Combines clock offsets between pairs of ranks into offsets from one rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import duckdb

from perftool.model.inputs import ImportIssue
from perftool.store.catalog import catalog


@dataclass(frozen=True)
class Edge:
    """The clock offset between two ranks: add ``offset_ns`` to times of ``rank`` to compare them with those of
    ``anchor``.

    The offset is the median of ``matches`` differences, half of which are within ``spread_ns`` of the median.
    """

    anchor: int
    rank: int
    offset_ns: int
    matches: int
    spread_ns: int


@dataclass(frozen=True)
class Offset:
    """The clock offset of ``rank`` from the lowest rank, along the chain of pairs with the least total spread.

    ``spread_ns`` is that total; ``matches`` is the minimum over the pairs of the chain.
    """

    rank: int
    offset_ns: int
    matches: int
    spread_ns: int


def align(edges: Iterable[Edge]) -> list[Offset]:
    """Return the offsets of all ranks that ``edges`` connect to the lowest rank, in rank order. The lowest rank has
    offset 0."""
    neighbours: dict[int, list[Edge]] = {}
    for edge in edges:
        neighbours.setdefault(edge.anchor, []).append(edge)
        back = Edge(edge.rank, edge.anchor, -edge.offset_ns, edge.matches, edge.spread_ns)
        neighbours.setdefault(edge.rank, []).append(back)
    if not neighbours:
        return []
    lowest = min(neighbours)
    most = max(edge.matches for edge in neighbours[lowest])
    found: dict[int, Offset] = {}
    # Dijkstra's algorithm with the spread as distance. Ties go to the shorter chain, then to the lower rank.
    waiting = [(0, 0, lowest, 0, most)]
    while waiting:
        spread, hops, rank, offset, matches = heappop(waiting)
        if rank in found:
            continue
        found[rank] = Offset(rank, offset, matches, spread)
        for edge in neighbours[rank]:
            if edge.rank not in found:
                fewest = min(matches, edge.matches)
                chained = (spread + edge.spread_ns, hops + 1, edge.rank, offset + edge.offset_ns, fewest)
                heappush(waiting, chained)
    return [found[rank] for rank in sorted(found)]


def align_clocks(connection: duckdb.DuckDBPyConnection) -> Sequence[tuple[int, ImportIssue]]:
    """Create the table ``_clock_offsets`` from ``_clock_edges``. Return no issues."""
    connection.execute(f"CREATE TABLE {catalog()['_clock_offsets'].definition}")
    rows = connection.execute("SELECT anchor, rank, offset_ns, matches, spread_ns FROM _clock_edges").fetchall()
    offsets = [[one.rank, one.offset_ns, one.matches, one.spread_ns] for one in align(Edge(*row) for row in rows)]
    if offsets:
        connection.executemany("INSERT INTO _clock_offsets VALUES (?, ?, ?, ?)", offsets)
    return ()
