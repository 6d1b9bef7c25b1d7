"""Large inputs take a different code path but yield the same tables. Running short of memory is covered, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from events import Event, document, launch, step, x
from stores import store_over

from perftool.errors import OutOfMemoryError
from perftool.store import connections, derive
from perftool.store.connections import Connections
from perftool.store.trace_store import TraceStore

TABLES = ("slices", "_timeline", "steps", "gap_causes", "ops")


def _training(steps: int) -> list[Event]:
    events: list[Event] = []
    for at in range(steps):
        begin = 1000 * at
        events += [step(at, begin, 1000), x("outer", begin + 10, 900), x("inner", begin + 20, 300)]
        events += launch(at + 1, begin + 30, 5, begin + 100, 200)
    return events


def _tables(events: list[Event]) -> dict[str, list[dict[str, Any]]]:
    with store_over(events, events) as store:
        return {name: sorted(store.rows(name), key=repr) for name in TABLES}


def test_large_inputs_give_the_same_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _tables(_training(8))
    monkeypatch.setattr(derive, "MOST_AT_ONCE", 7)
    assert _tables(_training(8)) == whole


def test_a_query_that_runs_out_of_memory_is_retried_with_twice_the_memory() -> None:
    database = Connections(":memory:")
    database.limit(100)
    asked = []

    def ask() -> str:
        (limit,) = database.here().execute("SELECT current_setting('memory_limit')").fetchall()[0]
        asked.append(limit)
        if len(asked) < 3:
            raise duckdb.OutOfMemoryException("more, please")
        return "made"

    assert database.with_room(ask) == "made"
    assert len(set(asked)) == 3
    database.close()


def test_running_out_of_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "free_memory_mb", lambda: 50)
    database = Connections(":memory:")
    database.limit(100)

    def ask() -> None:
        raise duckdb.OutOfMemoryException("more, please")

    with pytest.raises(OutOfMemoryError, match="need more memory than the 100 MB available to them"):
        database.with_room(ask)
    database.close()


def test_a_lack_of_memory_is_no_damage_of_the_trace(tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    trace.write_bytes(document([x("aten::mm", 10 * at, 5) for at in range(50_000)]))
    with TraceStore.for_files([str(trace)]) as store:
        store.limit(8, 1)
        with pytest.raises(OutOfMemoryError):
            store.add_trace(str(trace))
