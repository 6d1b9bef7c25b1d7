"""Creates the tables of a store, each once, on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from perftool.model.inputs import ImportIssue
from perftool.store.catalog import Precondition, Table, catalog
from perftool.store.connections import Connections
from perftool.store.database import parsed
from perftool.store.deadline import one_transaction
from perftool.store.makers import GIVEN, MAKERS, REPLAY, fill
from perftool.store.together import SecondThread, TableScheduler

# These tables are created on all cores, because nearly all other tables wait for them.
_FIRST = {"tracks", "_pairs", "_spans", "slices"}


class Tables:
    """The tables of a store, created on ``connections``. Any thread may request a table.

    ``source_rows`` contains the rows of the tables that are not derived; ``replay`` returns the rows of a table that is
    derived by replay. ``note`` is called with the rank and each issue.
    """

    def __init__(
        self,
        connections: Connections,
        second: SecondThread,
        note: Callable[[int, ImportIssue], None],
        replay: Callable[[str], Sequence[tuple[Any, ...]]],
    ) -> None:
        self._connections, self._second, self._note, self._replay = connections, second, note, replay
        self.source_rows: Mapping[str, Sequence[tuple[Any, ...]]] = {}
        self._made: set[str] = set()
        self._making: set[str] = set()
        self._changed = threading.Condition()
        self._filled: dict[str, bool] = {}
        self._values: dict[tuple[str, str], set[Any]] = {}

    def import_tables(self, names: Iterable[str]) -> None:
        """Record that the tables ``names`` were imported."""
        self._made.update(names)

    def make_all(self, names: Iterable[str]) -> None:
        """Create the tables ``names`` and the tables that they need, up to two at a time. Ignore unknown names."""
        wanted = [name for name in names if self.missing(name) is not None]
        if wanted:
            self._second.share(TableScheduler(self, wanted))

    def make(self, name: str) -> None:
        """Create the table ``name`` and the tables that it needs. Ignore unknown names."""
        while (missing := self.missing(name)) is not None:
            if missing:
                self.make(missing[0])
            else:
                with self._alone(name) as first:
                    if first:
                        self._connections.with_room(partial(self._make, catalog()[name]))

    def missing(self, name: str) -> list[str] | None:
        """Return the tables to make before the table ``name``, or None if it already exists or is unknown.

        Until the preconditions can be checked, list only their tables, because the table may not need the others.
        """
        if name in self._made or name not in catalog():
            return None
        table = catalog()[name]
        for group in table.empty_without:
            # One precondition per group is enough.
            for precondition in group:
                if precondition.table in catalog() and precondition.table not in self._made:
                    return [precondition.table]
                if self._holds(precondition):
                    break
            else:
                return []
        return [need for need in table.needs if need not in self._made]

    @contextmanager
    def _alone(self, name: str) -> Iterator[bool]:
        """Lock the table ``name``, and yield whether it still has to be created."""
        with self._changed:
            while name in self._making:
                self._changed.wait()
            first = name not in self._made
            self._making.add(name)
        try:
            yield first
        finally:
            with self._changed:
                self._making.discard(name)
                self._changed.notify_all()

    def _make(self, table: Table) -> None:
        connection = self._connections.here()
        cores = self._connections.all_cores() if table.name in _FIRST else nullcontext()
        # A single statement is already atomic.
        with cores, one_transaction(connection) if table.maker or table.drops else nullcontext():
            if self.known_empty(table):
                connection.execute(f"CREATE TABLE {table.definition}")
                self._filled[table.name] = False
            else:
                self._fill(table)
            for unneeded in table.drops:
                connection.execute(f'DROP TABLE IF EXISTS "{unneeded}"')
        self._made.add(table.name)

    def has_rows(self, name: str) -> bool:
        """Create the table ``name``, and return whether it has rows."""
        self.make(name)
        if name not in self._filled:
            self._filled[name] = bool(self._connections.here().execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone())
        return self._filled[name]

    def known_empty(self, table: Table) -> bool:
        """Whether the preconditions of ``table`` show that it will have no rows."""
        return any(not any(map(self._holds, group)) for group in table.empty_without)

    def _fill(self, table: Table) -> None:
        if table.maker is None:
            connection = self._connections.here()
            (statement,) = parsed(connection, f'CREATE TABLE "{table.name}" AS {table.sql}')
            self._filled[table.name] = connection.execute(statement).fetchall()[0][0] > 0
        elif table.maker == GIVEN:
            fill(self._connections.here(), table, self.source_rows[table.name])
        elif table.maker == REPLAY:
            fill(self._connections.here(), table, self._replay(table.name))
        else:
            for rank, issue in MAKERS[table.maker](self._connections.here()):
                self._note(rank, issue)

    def _holds(self, precondition: Precondition) -> bool:
        if precondition.column is None or not self.has_rows(precondition.table):
            return self.has_rows(precondition.table)
        values = self._values_of(precondition.table, precondition.column)
        if precondition.value is not None:
            return precondition.value in values
        return any(value is not None and value is not False for value in values)

    def _values_of(self, table: str, column: str) -> set[Any]:
        if (table, column) not in self._values:
            listed = next(known.type for known in catalog()[table].columns if known.name == column).endswith("[]")
            value = f'unnest("{column}")' if listed else f'"{column}"'
            rows = self._connections.here().execute(f'SELECT DISTINCT {value} FROM "{table}"').fetchall()
            self._values[table, column] = {row[0] for row in rows}
        return self._values[table, column]
