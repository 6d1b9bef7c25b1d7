"""Makes the tables of a store, each once, when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import duckdb

from perftool.model.inputs import ImportIssue
from perftool.store.catalog import Table, Witness, catalog
from perftool.store.deadline import whole_or_not
from perftool.store.makers import GIVEN, MAKERS, REPLAY, fill


class Tables:
    """The tables made so far in ``connection``.

    ``given`` are the rows of tables that no query derives, ``replay`` makes those of the tables that a replay tells.
    What comes to light on the way goes to ``note``, with its rank.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        note: Callable[[int, ImportIssue], None],
        replay: Callable[[], Sequence[tuple[Any, ...]]],
    ) -> None:
        self._connection, self._note, self._replay = connection, note, replay
        self.given: Mapping[str, Sequence[tuple[Any, ...]]] = {}
        self._made: set[str] = set()
        self._filled: dict[str, bool] = {}
        self._values: dict[tuple[str, str], set[Any]] = {}

    def adopt(self, names: Iterable[str]) -> None:
        """Take the tables ``names`` as they are: somebody else made them."""
        self._made.update(names)

    def make(self, name: str) -> None:
        """Make the table ``name`` and what it takes to make it; a name of anything else is ignored."""
        if name in self._made or name not in catalog():
            return
        table = catalog()[name]
        empty = self.lacks_a_witness(table)
        for need in () if empty else table.needs:
            self.make(need)
        # A statement by itself is whole or not anyway.
        with whole_or_not(self._connection) if table.maker or table.drops else nullcontext():
            if empty:
                self._connection.execute(f"CREATE TABLE {table.definition}")
                self._filled[name] = False
            else:
                self._fill(table)
            for unneeded in table.drops:
                self._connection.execute(f'DROP TABLE IF EXISTS "{unneeded}"')
        self._made.add(name)

    def has_rows(self, name: str) -> bool:
        """Whether the table ``name`` holds anything."""
        self.make(name)
        if name not in self._filled:
            self._filled[name] = bool(self._connection.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone())
        return self._filled[name]

    def lacks_a_witness(self, table: Table) -> bool:
        """Whether what ``table`` is made from shows that it has no rows, before it is made."""
        return any(not any(map(self._holds, group)) for group in table.empty_without)

    def _fill(self, table: Table) -> None:
        if table.maker is None:
            made = self._connection.execute(f'CREATE TABLE "{table.name}" AS {table.sql}').fetchall()
            self._filled[table.name] = made[0][0] > 0
        elif table.maker == GIVEN:
            fill(self._connection, table, self.given[table.name])
        elif table.maker == REPLAY:
            fill(self._connection, table, self._replay())
        else:
            for rank, issue in MAKERS[table.maker](self._connection):
                self._note(rank, issue)

    def _holds(self, witness: Witness) -> bool:
        if witness.column is None or not self.has_rows(witness.table):
            return self.has_rows(witness.table)
        values = self._values_of(witness.table, witness.column)
        if witness.value is not None:
            return witness.value in values
        return any(value is not None and value is not False for value in values)

    def _values_of(self, table: str, column: str) -> set[Any]:
        if (table, column) not in self._values:
            listed = next(known.type for known in catalog()[table].columns if known.name == column).endswith("[]")
            value = f'unnest("{column}")' if listed else f'"{column}"'
            rows = self._connection.execute(f'SELECT DISTINCT {value} FROM "{table}"').fetchall()
            self._values[table, column] = {row[0] for row in rows}
        return self._values[table, column]
