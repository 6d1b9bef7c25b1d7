"""Builds heat maps that show which rank waits for which, and how each rank differs from the median rank, by cause and
by step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from perftool.model.pictures import HeatMap
from perftool.model.words import kind_label
from perftool.store.trace_store import TraceStore
from perftool.units import ranks_text

# With more steps, the rows would be too thin to distinguish.
_MOST_STEPS = 48
_LEAST = 0.02
# If there are more ranks than this, each row shows a block of neighbouring ranks, usually of one host.
_MOST_BLOCKS = 64
# How long a rank in one block waits for the ranks in another block, on average, as a share of a mean step.
_WAITS = """
WITH length AS (SELECT avg(dur / steps) AS ns FROM windows),
sizes AS (SELECT rank // $size AS block, count(*) AS ranks FROM windows GROUP BY block)
SELECT s.block, w.last_rank // $size AS last_block, sum(w.exposed_ns) / any_value(s.ranks) / any_value(g.ns) AS share
FROM waits_for AS w JOIN sizes AS s ON s.block = w.rank // $size CROSS JOIN length AS g GROUP BY s.block, last_block
"""
_CAUSES = """
WITH length AS (SELECT avg(dur / steps) AS ns FROM windows)
SELECT e.cause AS name, e.rank, greatest(e.excess_ns, 0) / g.ns AS share
FROM rank_excess AS e CROSS JOIN length AS g ORDER BY e.cause, e.rank
"""
_STEPS = """
WITH length AS (SELECT avg(dur / steps) AS ns FROM windows),
work AS (SELECT rank, step, compute_ns + copy_ns + dataloader_ns + compile_ns + host_ns AS ns FROM _step_work),
compared AS (SELECT *, ns - quantile_disc(ns, 0.5) OVER (PARTITION BY step) AS more_ns FROM work)
SELECT step::VARCHAR AS name, rank, greatest(c.more_ns, 0) / g.ns AS share
FROM compared AS c CROSS JOIN length AS g
WHERE step IN (SELECT DISTINCT step FROM _step_work ORDER BY step LIMIT $most) ORDER BY step, rank
"""
_EXCESS = "how much longer than the median rank"
_LABELS = {"compute": "kernels", "host": "the host", "link": "collectives"}


def heat_maps(store: TraceStore) -> tuple[HeatMap, ...]:
    """Return the heat maps of a run whose ranks differ. The result is empty if they do not, or if there is only one
    rank.
    """
    store.build(["rank_excess", "_step_work", "waits_for", "windows"])
    causes = _map(store, "cause", "By cause, mean over the steps", _CAUSES, {})
    steps = _map(store, "step", "By step, excluding time spent waiting for other ranks", _STEPS, {"most": _MOST_STEPS})
    return tuple(found for found in (_waiting_map(store), causes, steps) if found is not None)


def _waiting_map(store: TraceStore) -> HeatMap | None:
    ranks = [row["rank"] for row in store.select("SELECT rank FROM windows ORDER BY rank")]
    size = block_size(ranks)
    blocks = {block: tuple(same) for block, same in groupby(ranks, lambda rank: rank // size)}
    shares = {(row["block"], row["last_block"]): row["share"] for row in store.select(_WAITS, {"size": size})}
    if max(shares.values(), default=0.0) < _LEAST:
        return None
    columns = tuple(map(ranks_text, blocks.values()))
    rows = tuple(f"rank{'s' if size > 1 else ''} {label}" for label in columns)
    cells = tuple(tuple(shares.get((row, column), 0.0) for column in blocks) for row in blocks)
    note = f"how long a row waits for a column: mean over the {'ranks and ' if size > 1 else ''}steps"
    return HeatMap("waits", "Who waits for whom", columns, rows, cells, note)


def block_size(ranks: Sequence[int]) -> int:
    """Return the number of neighbouring ranks that share a row. It is a power of two, like the number of ranks on most
    hosts, so that a block is either part of a host or several whole hosts."""
    size = 1
    while len({rank // size for rank in ranks}) > _MOST_BLOCKS:
        size *= 2
    return size


def _map(store: TraceStore, name: str, title: str, sql: str, params: dict[str, int]) -> HeatMap | None:
    shares: dict[str, dict[int, float]] = {}
    for row in store.select(sql, params):
        shares.setdefault(row["name"], {})[row["rank"]] = row["share"]
    ranks = tuple(sorted({rank for of_rank in shares.values() for rank in of_rank}))
    shown = {key: row for key, row in shares.items() if name == "step" or max(row.values()) >= _LEAST}
    if len(ranks) < 2 or not any(share >= _LEAST for row in shown.values() for share in row.values()):
        return None
    rows = tuple(_LABELS.get(key) or (f"step {key}" if name == "step" else kind_label(key)) for key in shown)
    cells = tuple(tuple(row.get(rank, 0.0) for rank in ranks) for row in shown.values())
    return HeatMap(name, title, tuple(f"rank {rank}" for rank in ranks), rows, cells, _EXCESS)
