"""Makes the rows of tables that come from a replay. The store calls ``replayed_rows``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perftool.replay.path_rows import critical_path_rows
from perftool.replay.ranks.culprits import culprit_rows
from perftool.replay.ranks.stage_rows import stage_rows
from perftool.store.trace_store import TraceStore

_MAKERS: dict[str, Callable[[TraceStore], Sequence[tuple[Any, ...]]]] = {
    "critical_path": critical_path_rows,
    "culprits": culprit_rows,
    "stages": stage_rows,
}


def replayed_rows(store: TraceStore, table: str) -> Sequence[tuple[Any, ...]]:
    """Return the rows of ``table``, which must be one of the tables that come from a replay."""
    return _MAKERS[table](store)
