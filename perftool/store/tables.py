"""Makes the tables of a store, each once, when somebody asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from perftool.model.inputs import ImportIssue
from perftool.store.catalog import Table, Witness, catalog
from perftool.store.connections import Connections
from perftool.store.deadline import whole_or_not
from perftool.store.makers import GIVEN, MAKERS, REPLAY, fill
from perftool.store.together import Making, SecondThread

# Nearly every other table needs these, so none is made beside them.
_FIRST = {"tracks", "_pairs", "_spans", "slices"}


class Tables:
    """The tables made so far over ``connections``; any thread may ask for one.

    ``given`` are the rows of tables that no query derives, ``replay`` makes those of the tables that a replay tells.
    What comes to light on the way goes to ``note``, with its rank.
    """

    def __init__(
        self,
        connections: Connections,
        second: SecondThread,
        note: Callable[[int, ImportIssue], None],
        replay: Callable[[], Sequence[tuple[Any, ...]]],
    ) -> None:
        self._connections, self._second, self._note, self._replay = connections, second, note, replay
        self.given: Mapping[str, Sequence[tuple[Any, ...]]] = {}
        self._made: set[str] = set()
        self._making: set[str] = set()
        self._changed = threading.Condition()
        self._filled: dict[str, bool] = {}
        self._values: dict[tuple[str, str], set[Any]] = {}

    def adopt(self, names: Iterable[str]) -> None:
        """Take the tables ``names`` as they are: somebody else made them."""
        self._made.update(names)

    def make_all(self, names: Iterable[str]) -> None:
        """Make the tables ``names`` and what it takes to make them, two at a time; other names are ignored."""
        wanted = [name for name in names if self.missing(name) is not None]
        if wanted:
            self._second.share(Making(self, wanted))

    def make(self, name: str) -> None:
        """Make the table ``name`` and what it takes to make it; a name of anything else is ignored."""
        while (missing := self.missing(name)) is not None:
            if missing:
                self.make(missing[0])
            else:
                with self._alone(name) as first:
                    if first:
                        self._connections.with_room(partial(self._make, catalog()[name]))

    def missing(self, name: str) -> list[str] | None:
        """What has to be made before the table ``name`` can be; None when it is made, or the name of anything else.

        Whether it has rows may have to be known first, and then what it needs is not known yet.
        """
        if name in self._made or name not in catalog():
            return None
        table = catalog()[name]
        for group in table.empty_without:
            # No more of them than it takes to know.
            for witness in group:
                if witness.table in catalog() and witness.table not in self._made:
                    return [witness.table]
                if self._holds(witness):
                    break
            else:
                return []
        return [need for need in table.needs if need not in self._made]

    @contextmanager
    def _alone(self, name: str) -> Iterator[bool]:
        """Nobody else makes the table ``name`` in here; whether it is still to be made."""
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
        # A statement by itself is whole or not anyway.
        with cores, whole_or_not(connection) if table.maker or table.drops else nullcontext():
            if self.lacks_a_witness(table):
                connection.execute(f"CREATE TABLE {table.definition}")
                self._filled[table.name] = False
            else:
                self._fill(table)
            for unneeded in table.drops:
                connection.execute(f'DROP TABLE IF EXISTS "{unneeded}"')
        self._made.add(table.name)

    def has_rows(self, name: str) -> bool:
        """Whether the table ``name`` holds anything."""
        self.make(name)
        if name not in self._filled:
            self._filled[name] = bool(self._connections.here().execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone())
        return self._filled[name]

    def lacks_a_witness(self, table: Table) -> bool:
        """Whether what ``table`` is made from shows that it has no rows, before it is made."""
        return any(not any(map(self._holds, group)) for group in table.empty_without)

    def _fill(self, table: Table) -> None:
        if table.maker is None:
            made = self._connections.here().execute(f'CREATE TABLE "{table.name}" AS {table.sql}').fetchall()
            self._filled[table.name] = made[0][0] > 0
        elif table.maker == GIVEN:
            fill(self._connections.here(), table, self.given[table.name])
        elif table.maker == REPLAY:
            fill(self._connections.here(), table, self._replay())
        else:
            for rank, issue in MAKERS[table.maker](self._connections.here()):
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
            rows = self._connections.here().execute(f'SELECT DISTINCT {value} FROM "{table}"').fetchall()
            self._values[table, column] = {row[0] for row in rows}
        return self._values[table, column]
