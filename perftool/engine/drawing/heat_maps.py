"""Shows where ranks differ from the median rank, by cause and by step."""

from __future__ import annotations

from perftool.model.pictures import HeatMap
from perftool.model.words import kind_label
from perftool.store.trace_store import TraceStore

# More steps would make the rows too thin to distinguish.
_MOST_STEPS = 48
_LEAST = 0.02
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
_LABELS = {"compute": "kernels", "host": "the host", "link": "collectives"}


def heat_maps(store: TraceStore) -> tuple[HeatMap, ...]:
    """The heat maps of a run with differing ranks; empty if they do not differ, or there is only one."""
    store.build(["rank_excess", "_step_work", "windows"])
    causes = _map(store, "cause", "By cause, mean of the steps", _CAUSES, {})
    steps = _map(store, "step", "By step, without what a rank waits for others", _STEPS, {"most": _MOST_STEPS})
    return tuple(found for found in (causes, steps) if found is not None)


def _map(store: TraceStore, name: str, title: str, sql: str, params: dict[str, int]) -> HeatMap | None:
    shares: dict[str, dict[int, float]] = {}
    for row in store.select(sql, params):
        shares.setdefault(row["name"], {})[row["rank"]] = row["share"]
    ranks = tuple(sorted({rank for of_rank in shares.values() for rank in of_rank}))
    telling = {key: row for key, row in shares.items() if name == "step" or max(row.values()) >= _LEAST}
    if len(ranks) < 2 or not any(share >= _LEAST for row in telling.values() for share in row.values()):
        return None
    rows = tuple(_LABELS.get(key) or (f"step {key}" if name == "step" else kind_label(key)) for key in telling)
    return HeatMap(
        name, title, ranks, rows, tuple(tuple(row.get(rank, 0.0) for rank in ranks) for row in telling.values())
    )
