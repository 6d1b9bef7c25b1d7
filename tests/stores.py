"""Stores over inline events for property tests, where a fixture would live too long: for all examples of a test."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from events import Event, document

from perftool.engine.analysis import analysed
from perftool.engine.rules.pack import shipped_rules
from perftool.model.report import Finding
from perftool.model.rule import Rule
from perftool.readers.discover import find_inputs
from perftool.store.trace_store import TraceStore

# The type of the fixture ``rows``, which returns the rows of a table built from events given in the test.
Rows = Callable[..., list[dict[str, Any]]]
# The type of the fixture ``rows_of_ranks``.
RowsOfRanks = Callable[..., list[list[dict[str, Any]]]]


@contextmanager
def store_over(
    *traces: list[Event], replay: Callable[[TraceStore, str], Sequence[tuple[Any, ...]]] | None = None
) -> Iterator[TraceStore]:
    """Yield a store with a rank for each of ``traces``."""
    with tempfile.TemporaryDirectory() as folder, TraceStore(replay=replay) as store:
        for number, events in enumerate(traces):
            path = Path(folder) / f"rank{number}.json"
            path.write_bytes(document(events))
            store.add_trace(str(path))
        yield store


def steps_in(path: str | Path) -> list[dict[str, Any]]:
    """Return the steps of the trace at ``path``. A whole analysis with every rule would take three times as long."""
    with TraceStore() as store:
        store.add_trace(str(path))
        return store.rows("steps")


def findings_of(paths: Sequence[str], rules: Sequence[Rule] | None = None) -> tuple[Finding, ...]:
    """Return what ``rules`` (by default all) find in the files at ``paths``. A whole report would take twice as
    long.
    """
    with analysed(find_inputs(list(paths)), shipped_rules() if rules is None else rules) as run:
        return run.outcome.findings
