"""The store of one analysis: the raw rows of its inputs, and the tables derived from them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic, process_time
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from perftool.errors import UNFORESEEN, InputError, QueryError, QueryTimeoutError
from perftool.model.inputs import ImportIssue, InputFile
from perftool.readers.files.remote import local_copy, shown_path
from perftool.readers.identity import without_members
from perftool.readers.nodes import as_trace
from perftool.readers.trace.memory_snapshot import snapshot_as_trace
from perftool.readers.trace.profiler_csv import is_profiler_csv
from perftool.store import load, native
from perftool.store.catalog import catalog, macros, names_in, no_table
from perftool.store.connections import Connections
from perftool.store.database import as_dicts, parsed
from perftool.store.deadline import interrupted_after
from perftool.store.export import Writer
from perftool.store.load_csv import load_csv
from perftool.store.rank_export import EXPORTED, ExportedTables, corrupt_as_input_error, read_tables, write_tables
from perftool.store.ranks import base_time, free_rank, rank_of, rank_taken
from perftool.store.readings import Reading
from perftool.store.sandbox.sandbox import Bounds, Result, Sandbox
from perftool.store.sandbox.table_files import SandboxTables
from perftool.store.shift import shift_to
from perftool.store.sizing import cache_limit_mb, cores, fits_in_memory, in_memory_limit_mb, memory_limit_mb, text_size
from perftool.store.source_tables import source_tables
from perftool.store.tables import Tables
from perftool.store.together import ParallelCalls, SecondThread

if TYPE_CHECKING:
    import pandas as pd

Made = TypeVar("Made")
# Maps the rank that a trace states to the rank that it is assigned.
Number = Callable[[int | None], int]
# Derives the rows of the named table from other tables of a store.
Rows = Callable[["TraceStore", str], Sequence[tuple[Any, ...]]]
QUERY_TIME_LIMIT_S = 60.0
_ROWS_AT_A_TIME = 10_000


class TraceStore:
    """The tables of one or more traces. Use it as a context manager.

    Times are integer ns. Missing values are NULL. Tables are created on first use.
    """

    def __init__(self, input_bytes: int = 0, replay: Rows | None = None) -> None:
        self.input_bytes = input_bytes
        self._replay = replay
        self.inputs: list[InputFile] = []
        self.metadata: dict[int, dict[str, Any]] = {}
        self.readings: list[Reading] = []
        self.unreadable: list[InputFile] = []
        self._folder = tempfile.TemporaryDirectory(prefix="perftool-")
        self._ready = False
        # The origin of all times, in ns since 1970, from the first file that states an origin.
        self.base_ns = 0
        limit_mb = memory_limit_mb()
        large = not fits_in_memory(input_bytes, limit_mb)
        place = str(Path(self._folder.name) / "trace.duckdb") if large else ":memory:"
        self._connections = Connections(place)
        self._large = large
        self._connections.use(cores(), side_by_side=True)
        self._second = SecondThread(self._connections.interrupt, lambda: self._connections.side_by_side)
        self._connection.execute("SET temp_directory = $folder", {"folder": self._folder.name})
        # The database is temporary, so it needs no checkpoints.
        self._connection.execute("SET checkpoint_threshold = '1TB'; PRAGMA disable_checkpoint_on_shutdown")
        self._connections.limit(cache_limit_mb(limit_mb) if large else in_memory_limit_mb(input_bytes, limit_mb))
        folder = Path(self._folder.name) / "sandbox_tables"
        folder.mkdir()
        self._sandbox_tables = SandboxTables(self._connection, folder)
        self._sandbox = Sandbox(folder, macros(), limit_mb)
        self._tables = Tables(
            self._connections, self._second, self._note, lambda table: self._replay(self, table) if self._replay else ()
        )
        self._connection.execute(load.CREATE_RAW)
        for statement in parsed(self._connection, macros()):
            self._connection.execute(statement)

    @classmethod
    def for_files(cls, paths: Sequence[str], replay: Rows | None = None) -> TraceStore:
        """Create a store sized for the files at ``paths``. ``replay`` returns the rows of tables whose maker is
        REPLAY."""
        return cls(sum(text_size(path) for path in paths), replay)

    def __enter__(self) -> TraceStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Discard the tables and all temporary files."""
        self._sandbox.close()
        self._second.close()
        self._connections.close()
        self._folder.cleanup()

    def add_trace(self, path: str, progress: load.Progress | None = None, number: Number | None = None) -> InputFile:
        """Read one trace file, on this machine or at a URL. Raise InputError if nothing can be read.

        ``number`` maps the rank that the trace states to the rank that it is assigned. By default, the trace keeps the
        stated rank if it is free.
        """
        self._require_open()
        with local_copy(path) as place, as_trace(place) as native, snapshot_as_trace(native) as events:
            add = self._add_csv if is_profiler_csv(events) else self._add_events
            added = add(events, number or self._free_rank, progress)
            size = added.bytes if events == place else Path(place).stat().st_size
        self.inputs.append(added if events == path else replace(added, path=shown_path(path), bytes=size))
        return self.inputs[-1]

    def _add_events(self, path: str, number: Number, progress: load.Progress | None) -> InputFile:
        def rank_for(metadata: dict[str, Any]) -> int:
            return number(rank_of(path, metadata))

        try:
            read, metadata = load.load_trace(self._connections.here, self._second.share, path, rank_for, progress)
        except (InputError, *UNFORESEEN):
            used = ", ".join(map(str, self.metadata)) or "NULL"
            self._connection.execute(f"DELETE FROM raw WHERE (rank IN ({used})) IS NOT true")
            raise
        stated = rank_of(path, metadata)
        rank = number(stated)
        unpaired = native.rewrite(self._connection, rank, path)
        self._align(rank, base_time(metadata))
        self.metadata[rank] = without_members(metadata)
        return replace(read, rank=rank, issues=(*read.issues, *unpaired, *rank_taken(stated, rank)))

    def _add_csv(self, path: str, number: Number, _: load.Progress | None) -> InputFile:
        rank = number(rank_of(path, {}))
        added = load_csv(self._connection, path, rank)
        self.metadata[rank] = {}
        return added

    def _align(self, rank: int, base_ns: int) -> None:
        """Shift the times of a rank to the origin of the first rank, if both are known."""
        self.base_ns = self.base_ns or base_ns
        if shift := shift_to(self.base_ns, base_ns, [rank]):
            self._connection.execute(f"UPDATE raw SET ts = {shift.sql('ts')} WHERE rank = {rank}")

    def add_reading(self, reading: Reading) -> None:
        """Add the contents of a log, a metrics file or a configuration."""
        self._require_open()
        self.readings.append(reading)

    def export_ranks(self) -> dict[str, bytes]:
        """Create the tables of EXPORTED, and return each as the bytes of a Parquet file, by table."""
        self.build(EXPORTED)
        return write_tables(self._connection, Path(self._folder.name))

    def import_ranks(self, parts: Sequence[ExportedTables]) -> None:
        """Import tables that per-rank stores exported, instead of creating them.

        Raise InputError if the tables are corrupt or do not fit together.
        """
        self._require_open()
        with corrupt_as_input_error():
            read_tables(self._connection, parts, Path(self._folder.name))
        self._tables.import_tables(EXPORTED)

    def limit(self, memory_mb: int, cores: int) -> None:
        """Limit DuckDB to ``memory_mb``, beyond which it spills to disk, and to ``cores`` processor cores."""
        self._connections.limit(memory_mb)
        self._connections.use(cores, side_by_side=self._connections.side_by_side)

    def inputs_with_issues(self) -> list[InputFile]:
        """Return the inputs with all their issues, including those found while the tables were created."""
        issues: dict[str, list[ImportIssue]] = {}
        for row in self.rows("input_issues"):
            issue = ImportIssue(row["kind"], row["count"], row["message"], row["bytes"], row["offset"])
            issues.setdefault(row["path"], []).append(issue)
        inputs = [*self.inputs, *(part.as_input() for part in self.readings)]
        return [replace(read, issues=tuple(issues.get(read.path, ()))) for read in inputs]

    def frame(self, name: str) -> pd.DataFrame:
        """Return a table as a pandas DataFrame; ``catalog()`` lists the names."""
        return self._select(name).df()

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a table, each keyed by column name."""
        return as_dicts(self._select(name))

    def select(self, sql: str, params: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Run SQL that this program ships, over tables that already exist; return its rows."""
        return self._connections.with_room(lambda: as_dicts(self._connection.execute(sql, params or {})))

    def arrays(self, sql: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run SQL that this program ships; return its columns as numpy arrays. A column that contains NULL is masked.

        Integers are widened to 64 bits, so that narrow columns, such as ranks, can be combined with times.
        """
        found = self._connection.execute(sql, dict(params)).fetchnumpy()
        return {
            name: values.astype("int64", copy=False) if values.dtype.kind == "i" else values
            for name, values in found.items()
        }

    def iterate(self, sql: str, params: dict[str, Any] | None = None) -> Iterator[tuple[Any, ...]]:
        """Run SQL that this program ships, and yield its rows in batches. Read all rows before the next query."""
        result = self._connection.execute(sql, params or {})
        while rows := result.fetchmany(_ROWS_AT_A_TIME):
            yield from rows

    def query(
        self, sql: str, params: dict[str, Any] | None = None, time_limit_s: float = QUERY_TIME_LIMIT_S
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run untrusted SQL; return column names and rows. See ``ask`` for limits and errors."""
        result = self.ask(sql, params, Bounds(time_limit_s))
        return result.columns, result.rows

    def ask(self, sql: str, params: dict[str, Any] | None, bounds: Bounds) -> Result:
        """Run untrusted SQL: one SELECT over the tables, in the sandbox process (``perftool.store.sandbox``).

        Raise QueryError if the SQL is not allowed, fails, or takes too long, including the time to create its tables.
        """
        try:
            sql.encode()
        except UnicodeEncodeError:
            raise QueryError("the SQL is not valid UTF-8") from None
        start = monotonic()
        with interrupted_after(self._connection, bounds.seconds):
            self.build(names_in(sql))
            files = self._sandbox_tables.files(sql)
        left = max(bounds.seconds - (monotonic() - start), 0.001)
        try:
            return self._sandbox.ask(sql, params or {}, files, replace(bounds, seconds=left))
        except QueryTimeoutError:
            raise QueryTimeoutError(bounds.seconds) from None

    def timed(self, sql: str, params: dict[str, Any], time_limit_s: float) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run the SQL of a shipped rule; return column names and rows. Raise QueryError like ``query``.

        Limit the CPU time rather than the wall time, so that no rule fails because the machine is busy.
        """
        self.build(names_in(sql))

        def rows() -> tuple[list[str], list[tuple[Any, ...]]]:
            (statement,) = parsed(self._connection, sql)
            result = self._connection.execute(statement, params)
            return [column[0] for column in result.description or []], result.fetchall()

        with interrupted_after(self._connection, time_limit_s, process_time):
            return self._connections.with_room(rows)

    def export(self, names: Sequence[str], writer: Writer, place: Path) -> list[str]:
        """Write the tables ``names`` to ``place`` with ``writer``. Return a sentence for everything that did not
        fit."""
        self.build(names)
        return writer(self._connection, [catalog()[name] for name in names], place)

    def build(self, names: Sequence[str]) -> None:
        """Create the tables ``names`` and the tables that they need. Ignore unknown names."""
        self._prepare()
        self._tables.make_all(names)

    def side_by_side(self, calls: Sequence[Callable[[], Made]]) -> list[Made]:
        """Make independent ``calls`` on this store, two at a time if there are enough cores; return their results in
        order."""
        work = ParallelCalls(calls)
        self._second.share(work)
        return work.results

    def has_rows(self, name: str) -> bool:
        """Create the table ``name``, and return whether it has rows."""
        self._prepare()
        return self._tables.has_rows(name)

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        return self._connections.here()

    def _select(self, name: str) -> duckdb.DuckDBPyConnection:
        if name not in catalog():
            raise QueryError(no_table(name))
        self.build([name])
        return self._connection.execute(catalog()[name].as_text)

    def _prepare(self) -> None:
        """Collect the rows of tables that are not derived by queries, once all inputs are read."""
        if self._ready:
            return
        if not self.inputs and not self.readings:
            raise InputError("no input was read")
        if self._large:
            # The memory of a database on disk is too small for two tables at a time. The order of raw events matters,
            # but the order of table rows does not.
            self._connections.one_at_a_time()
            self._connection.execute("SET preserve_insertion_order = false")
        self._tables.source_rows = source_tables(self.inputs, self.readings, self.metadata, self.unreadable)
        # Set this last, because other threads may check it.
        self._ready = True

    def _note(self, rank: int, issue: ImportIssue) -> None:
        path = next(read.path for read in self.inputs if read.rank == rank)
        row = [path, issue.kind, issue.count, issue.bytes, issue.offset, issue.message]
        self._connection.execute("INSERT INTO _issues VALUES (?, ?, ?, ?, ?, ?)", row)

    def _require_open(self) -> None:
        if self._ready:
            raise QueryError("inputs must be added before the first table is created")

    def _free_rank(self, stated: int | None) -> int:
        return free_rank(stated, self.metadata)
