"""The report section on recurring sequences of kernels."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from perftool.model.chains import Chain, ChainPlace
from perftool.store.trace_store import TraceStore

# Only the first rank is shown, because ranks usually have the same layers (except in a pipeline).
_CHAINS = """
SELECT * FROM chains WHERE rank = (SELECT min(rank) FROM chains) ORDER BY chain, place
"""


def chains(store: TraceStore) -> tuple[Chain, ...]:
    """Return the chains of the first rank that has any, in step order."""
    store.build(["chains"])
    return tuple(_chain(list(rows)) for _, rows in groupby(store.select(_CHAINS), key=lambda row: row["chain"]))


def _chain(rows: list[dict[str, Any]]) -> Chain:
    first = rows[0]
    columns = ("op", "kernel", "input_dims", "ns", "share", "roofline_ratio")
    places = tuple(ChainPlace(**{name: row[name] for name in columns}) for row in rows)
    return Chain(
        first["rank"], first["repeats"], sum(place.ns for place in places), first["step_share"], first["ts"], places
    )
