"""One analysis: the raw rows of its inputs and every table over them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from perftool.errors import InputError, QueryError, QueryTimeoutError
from perftool.model.inputs import ImportIssue, InputFile
from perftool.readers.files.identity import without_members
from perftool.readers.files.remote import local_copy
from perftool.store import load
from perftool.store.catalog import catalog, macros, names_in, public_tables
from perftool.store.connections import Connections
from perftool.store.deadline import interrupted_after
from perftool.store.given import given_tables
from perftool.store.handover import HANDED_ON, Handover, read_tables, sound_tables, write_tables
from perftool.store.load_csv import is_profiler_csv, load_csv
from perftool.store.ranks import base_time, free_rank, rank_of, rank_taken
from perftool.store.readings import Reading
from perftool.store.room.handed import HandedTables
from perftool.store.room.room import Bounds, Result, Room
from perftool.store.shift import shift_to
from perftool.store.sizing import cache_limit_mb, cores, fits_in_memory, memory_limit_mb, text_size
from perftool.store.tables import Tables
from perftool.store.together import Jobs, SecondThread

if TYPE_CHECKING:
    import pandas as pd

Made = TypeVar("Made")
# Gives the rank to file a trace under from the one it states.
Number = Callable[[int | None], int]
# Makes the rows of a table from those of a store.
Rows = Callable[["TraceStore"], Sequence[tuple[Any, ...]]]
QUERY_TIME_LIMIT_S = 60.0
_ROWS_AT_A_TIME = 10_000


class TraceStore:
    """The tables of one or more traces; use as a context manager.

    Times are integer ns. Missing values are NULL. Tables are made when first asked for.
    """

    def __init__(self, input_bytes: int = 0, replay: Rows | None = None) -> None:
        self._replay = replay
        self.inputs: list[InputFile] = []
        self.metadata: dict[int, dict[str, Any]] = {}
        self.readings: list[Reading] = []
        self.unreadable: list[InputFile] = []
        self._folder = tempfile.TemporaryDirectory(prefix="perftool-")
        self._ready = False
        # What all times count from, in ns since 1970. Files may differ; the first one to name its zero sets everyone's.
        self.base_ns = 0
        limit_mb = memory_limit_mb()
        large = not fits_in_memory(input_bytes, limit_mb)
        place = str(Path(self._folder.name) / "trace.duckdb") if large else ":memory:"
        self._connections = Connections(place)
        self._large = large
        self._connections.use(cores(), side_by_side=True)
        self._second = SecondThread(self._connections.interrupt, lambda: self._connections.side_by_side)
        self._connection.execute("SET temp_directory = $folder", {"folder": self._folder.name})
        # By the sizes DuckDB expects, it would compare a few moments with every stretch of a recording, one by one.
        self._connection.execute("SET asof_loop_join_threshold = 0")
        # Nothing here outlives the process, so there is no point in checkpoints along the way.
        self._connection.execute("SET checkpoint_threshold = '1TB'; PRAGMA disable_checkpoint_on_shutdown")
        if large:
            self._connections.limit(cache_limit_mb(limit_mb))
        folder = Path(self._folder.name) / "handed"
        folder.mkdir()
        self._handed = HandedTables(self._connection, folder)
        self._room = Room(folder, macros(), limit_mb)
        self._tables = Tables(
            self._connections, self._second, self._note, lambda: self._replay(self) if self._replay else ()
        )
        self._connection.execute(load.CREATE_RAW)
        self._connection.execute(macros())

    @classmethod
    def for_files(cls, paths: Sequence[str], replay: Rows | None = None) -> TraceStore:
        """A store sized for the files at ``paths``; ``replay`` makes its tables with the maker REPLAY."""
        return cls(sum(text_size(path) for path in paths), replay)

    def __enter__(self) -> TraceStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up the tables and every temporary file."""
        self._room.close()
        self._second.close()
        self._connections.close()
        self._folder.cleanup()

    def add_trace(self, path: str, progress: load.Progress | None = None, number: Number | None = None) -> InputFile:
        """Read one trace file, here or at a URL. Raises InputError when it cannot be read at all.

        ``number`` gives the rank to file it under from the one it states; the default keeps that if it is free.
        """
        self._require_open()
        with local_copy(path) as place:
            add = self._add_csv if is_profiler_csv(place) else self._add_events
            added = add(place, number or self._free_rank, progress)
        self.inputs.append(replace(added, path=path) if place != path else added)
        return self.inputs[-1]

    def _add_events(self, path: str, number: Number, progress: load.Progress | None) -> InputFile:
        def rank_for(metadata: dict[str, Any]) -> int:
            return number(rank_of(path, metadata))

        try:
            read, metadata = load.load_trace(self._connections.here, self._second.share, path, rank_for, progress)
        except InputError:
            taken = ", ".join(map(str, self.metadata)) or "NULL"
            self._connection.execute(f"DELETE FROM raw WHERE (rank IN ({taken})) IS NOT true")
            raise
        stated = rank_of(path, metadata)
        rank = number(stated)
        self._align(rank, base_time(metadata))
        self.metadata[rank] = without_members(metadata)
        return replace(read, rank=rank, issues=(*read.issues, *rank_taken(stated, rank)))

    def _add_csv(self, path: str, number: Number, _: load.Progress | None) -> InputFile:
        rank = number(rank_of(path, {}))
        added = load_csv(self._connection, path, rank)
        self.metadata[rank] = {}
        return added

    def _align(self, rank: int, base_ns: int) -> None:
        """Count the times of a rank from the same origin as those of the first one, when both name theirs."""
        self.base_ns = self.base_ns or base_ns
        if shift := shift_to(self.base_ns, base_ns, [rank]):
            self._connection.execute(f"UPDATE raw SET ts = {shift.sql('ts')} WHERE rank = {rank}")

    def add_reading(self, reading: Reading) -> None:
        """Add what a log, a metrics file or a configuration says."""
        self._require_open()
        self.readings.append(reading)

    def hand_on(self) -> dict[str, bytes]:
        """The tables of HANDED_ON, each as a Parquet file."""
        self.build(HANDED_ON)
        return write_tables(self._connection, Path(self._folder.name))

    def adopt(self, parts: Sequence[Handover]) -> None:
        """Take the tables that stores over one rank each handed on, instead of making them.

        Raises InputError for tables that are damaged or do not fit together.
        """
        self._require_open()
        with sound_tables():
            read_tables(self._connection, parts, Path(self._folder.name))
        self._tables.adopt(HANDED_ON)

    def limit(self, memory_mb: int, cores: int) -> None:
        """Use at most so much memory (what is beyond it goes to disk) and so many processor cores."""
        self._connections.limit(memory_mb)
        self._connections.use(cores, side_by_side=self._connections.side_by_side)

    def inputs_with_issues(self) -> list[InputFile]:
        """The inputs, with the issues that came to light while the tables were made."""
        issues: dict[str, list[ImportIssue]] = {}
        for row in self.rows("input_issues"):
            issue = ImportIssue(row["kind"], row["count"], row["message"], row["bytes"], row["offset"])
            issues.setdefault(row["path"], []).append(issue)
        inputs = [*self.inputs, *(part.as_input() for part in self.readings)]
        return [replace(read, issues=tuple(issues.get(read.path, ()))) for read in inputs]

    def frame(self, name: str) -> pd.DataFrame:
        """A table as a pandas DataFrame; ``catalog()`` lists the names."""
        return self._select(name).df()

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A table as plain rows."""
        return _as_dicts(self._select(name))

    def select(self, sql: str, params: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Run our own SQL over tables that were built; for the engine and the summary."""
        return _as_dicts(self._connection.execute(sql, params or {}))

    def arrays(self, sql: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The columns of our own SQL as numpy arrays; masked where one holds NULL. Whole numbers have 64 bits.

        What is counted from numbers of fewer bits, such as ranks, would not hold times.
        """
        found = self._connection.execute(sql, dict(params)).fetchnumpy()
        return {
            name: values.astype("int64", copy=False) if values.dtype.kind == "i" else values
            for name, values in found.items()
        }

    def iterate(self, sql: str, params: dict[str, Any] | None = None) -> Iterator[tuple[Any, ...]]:
        """The rows of our own SQL, a few thousand at a time; to be used up before anything else is asked."""
        result = self._connection.execute(sql, params or {})
        while rows := result.fetchmany(_ROWS_AT_A_TIME):
            yield from rows

    def query(
        self, sql: str, params: dict[str, Any] | None = None, time_limit_s: float = QUERY_TIME_LIMIT_S
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run SQL from outside; returns column names and rows. See ``ask`` for the limits and what is raised."""
        result = self.ask(sql, params, Bounds(time_limit_s))
        return result.columns, result.rows

    def ask(self, sql: str, params: dict[str, Any] | None, bounds: Bounds) -> Result:
        """Run SQL from outside: one SELECT over the tables, in a process of its own (``perftool.store.room``).

        Raises QueryError when it is anything else, fails or takes too long, the making of its tables included.
        """
        try:
            sql.encode()
        except UnicodeEncodeError:
            raise QueryError("the SQL is not valid UTF-8") from None
        begun = monotonic()
        with interrupted_after(self._connection, bounds.seconds):
            self.build(names_in(sql))
            files = self._handed.files(sql)
        left = max(bounds.seconds - (monotonic() - begun), 0.001)
        try:
            return self._room.ask(sql, params or {}, files, replace(bounds, seconds=left))
        except QueryTimeoutError:
            raise QueryTimeoutError(bounds.seconds) from None

    def timed(self, sql: str, params: dict[str, Any], time_limit_s: float) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run our own SQL, of the shipped rules; returns column names and rows. Raises QueryError like ``query``."""
        self.build(names_in(sql))

        def rows() -> tuple[list[str], list[tuple[Any, ...]]]:
            result = self._connection.execute(sql, params)
            return [column[0] for column in result.description or []], result.fetchall()

        with interrupted_after(self._connection, time_limit_s):
            return self._connections.with_room(rows)

    def build(self, names: Sequence[str]) -> None:
        """Make the tables ``names`` and all they need; names of anything else are ignored."""
        self._prepare()
        self._tables.make_all(names)

    def side_by_side(self, calls: Sequence[Callable[[], Made]]) -> list[Made]:
        """What ``calls`` return that ask this store and do not need each other, two at a time where there are cores."""
        jobs = Jobs(calls)
        self._second.share(jobs)
        return jobs.results

    def has_rows(self, name: str) -> bool:
        """Whether the table holds anything."""
        self._prepare()
        return self._tables.has_rows(name)

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        return self._connections.here()

    def _select(self, name: str) -> duckdb.DuckDBPyConnection:
        if name not in catalog():
            public = ", ".join(table.name for table in public_tables())
            raise QueryError(f"there is no table {name!r}; there are {public}")
        self.build([name])
        return self._connection.execute(catalog()[name].as_text)

    def _prepare(self) -> None:
        """Take stock, once all inputs are in, of what no query derives."""
        if self._ready:
            return
        if not self.inputs and not self.readings:
            raise InputError("no input was read")
        if self._large:
            # For two tables at a time there is room in memory only. Of events the order counts, of tables it does not.
            self._connections.one_at_a_time()
            self._connection.execute("SET preserve_insertion_order = false")
        self._tables.given = given_tables(self.inputs, self.readings, self.metadata, self.unreadable)
        # Last: several threads may ask.
        self._ready = True

    def _note(self, rank: int, issue: ImportIssue) -> None:
        path = next(read.path for read in self.inputs if read.rank == rank)
        row = [path, issue.kind, issue.count, issue.bytes, issue.offset, issue.message]
        self._connection.execute("INSERT INTO _issues VALUES (?, ?, ?, ?, ?, ?)", row)

    def _require_open(self) -> None:
        if self._ready:
            raise QueryError("inputs must be added before the first table is made")

    def _free_rank(self, stated: int | None) -> int:
        return free_rank(stated, self.metadata)


def _as_dicts(result: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    names = [column[0] for column in result.description or []]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
