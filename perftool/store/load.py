"""Loads trace files into the raw table: a row per event, with times in ns."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from perftool.errors import InputError, OutOfMemoryError
from perftool.model.annotations import CATEGORY, RANKS_KEY
from perftool.model.inputs import ImportIssue, InputFile, InputStatus
from perftool.readers.files.stream import STDIN
from perftool.readers.trace.ahead import Ahead
from perftool.readers.trace.chrome_trace import ChromeTrace, Chunk
from perftool.store.deadline import one_transaction
from perftool.store.together import Sequencer, StoppedError, Work

# Most of the text consists of arguments. For these, zstd is faster than DuckDB's default compression and takes half the
# space.
CREATE_RAW = """
CREATE TABLE raw (rank INTEGER, ph VARCHAR, cat VARCHAR, name VARCHAR, pid VARCHAR, tid VARCHAR,
                  ts BIGINT, dur BIGINT, id VARCHAR, args JSON USING COMPRESSION zstd)
"""
# The number of chunks that one statement reads. This limits the size of the spool folder, which contains the chunks of
# at most four statements.
_BATCH = 6
_COLUMNS = {
    "ph": "VARCHAR",
    "cat": "VARCHAR",
    "name": "VARCHAR",
    "pid": "VARCHAR",
    "tid": "VARCHAR",
    "id": "VARCHAR",
}
# The keys that are read from an event.
_KEYS = (*_COLUMNS, "ts", "dur", "args")
# The largest plausible time, in the year 2043. A base, a start and a length of at most this size add up to less than
# 2**63 ns.
_MOST_US = 2**61 // 1000
# Converts microseconds to ns. A double is exact up to 2**53 ns; the reader writes larger times as text.
_FAST_TIME = "trunc({0})::BIGINT * 1000 + round(({0} - trunc({0})) * 1000)::BIGINT"
_EXACT_TIME = "(try_cast({0} AS DECIMAL(38, 6)) * 1000)::BIGINT"

# Longer names are truncated, because names are matched against many patterns and copied into rows. The longest known
# names, those of template kernels, take 5 kB.
LONGEST_NAME = 6 << 10
# Elements without a phase get an empty phase, which is later reported as unknown. ``_remove_blank`` removes and counts
# elements that also have no name and no times. _IS_EVENT skips counters and flows that ``annotate`` added, and
# ``_without_annotations`` removes the other events that it added.
_IS_EVENT = f"cat IS DISTINCT FROM '{CATEGORY}' OR coalesce(ph, '') NOT IN ('C', 's', 'f')"
_IS_BLANK = "ph = '' AND coalesce(name, ts::VARCHAR, dur::VARCHAR) IS NULL"
_CUT_NAME = "CASE WHEN strlen({0}) > " + f"{LONGEST_NAME} THEN left({{0}}, {LONGEST_NAME}) || '…' ELSE {{0}} END"

Progress = Callable[[int], None]
RankFor = Callable[[dict[str, Any]], int]


def load_trace(
    here: Callable[[], duckdb.DuckDBPyConnection],
    share: Callable[[Work], None],
    path: str,
    rank_for: RankFor,
    progress: Progress | None = None,
) -> tuple[InputFile, dict[str, Any]]:
    """Append the events of the trace file at ``path`` to the raw table; return its input record and its metadata.

    ``here`` returns the connection of the calling thread; ``share`` runs work on one or more threads. ``rank_for``
    returns the rank for the metadata read so far; it is called after the head of the file, and again at the end.
    ``progress`` is called with the number of bytes of text loaded so far. Raise InputError if the file is not a trace.
    """
    # Ignore errors in the cleanup: after a failure, the thread that splits the file may still be writing a chunk.
    with tempfile.TemporaryDirectory(prefix="perftool-", ignore_cleanup_errors=True) as spool:
        trace = ChromeTrace(path, Path(spool))
        batches = _Batches(trace, rank_for)
        with Ahead(batches, 1) as ahead:
            loading = _Loading(here, trace, ahead, progress)
            share(loading)
    trace.finish()
    if RANKS_KEY in trace.metadata:
        raise InputError(f"{path}: a timeline of several ranks, written by annotate; pass the traces of the ranks")
    rank = rank_for(trace.metadata)
    _settle_rank(here(), batches.rank, rank)
    if trace.bare and not _has_phase(here(), rank):
        raise InputError(f"{trace.path}: a JSON array without a single trace event")
    events = loading.events - _without_annotations(here(), rank)
    status: InputStatus = "truncated" if trace.truncated else "repaired" if trace.issues else "ok"
    shown = "<stdin>" if path == STDIN else path
    issues = (*_origin(trace.metadata), *trace.issues)
    return InputFile(shown, "trace", None, trace.size, events, status, issues, trace.events_end), trace.metadata


def _origin(metadata: dict[str, Any]) -> list[ImportIssue]:
    """Return issues that mark a trace as hand-made, simulated or interrupted in every output."""
    notes = {"handMade": "made by hand, not recorded on a device", "simulated": "simulated, not recorded on a device"}
    issues = [ImportIssue(key, 1, text) for key, text in notes.items() if metadata.get(key)]
    early = metadata.get("interrupted")
    return [*issues, ImportIssue("interrupted", 1, f"ends early: {early}")] if isinstance(early, str) else issues


class _Batch(NamedTuple):
    number: int
    chunks: list[Chunk]
    rank: int


class _Batches:
    """The chunks of a trace, in batches that are each read by one statement, and their rank."""

    def __init__(self, trace: ChromeTrace, rank_for: RankFor) -> None:
        self._trace, self._rank_for = trace, rank_for
        self.rank: int | None = None

    def __iter__(self) -> Iterator[_Batch]:
        chunks = self._trace.chunks()
        for number in count():
            if not (batch := list(islice(chunks, _BATCH))):
                return
            if self.rank is None:
                self.rank = self._rank_for(self._trace.metadata)
            yield _Batch(number, batch, self.rank)


class _Loading:
    """Loads the chunks of a trace into the raw table; each thread loads one batch at a time.

    Batches are committed in file order, because repairs and row ids depend on it.
    """

    def __init__(
        self,
        here: Callable[[], duckdb.DuckDBPyConnection],
        trace: ChromeTrace,
        batches: Ahead[_Batch],
        progress: Progress | None,
    ) -> None:
        self._here, self._trace, self._batches, self._progress = here, trace, batches, progress
        self._turns = Sequencer()
        self._done = 0
        self.events = 0

    def do(self) -> None:
        """Load batches until none is left or ``stop`` is called."""
        with contextlib.suppress(StoppedError):
            for batch in self._batches:
                self._load(batch)

    def stop(self) -> None:
        """Load no further batches."""
        self._batches.stop()
        self._turns.stop()

    def _load(self, batch: _Batch) -> None:
        connection = self._here()
        try:
            with one_transaction(connection):
                events = _insert(connection, batch.chunks, batch.rank, exact=any(chunk.exact for chunk in batch.chunks))
                blank, empty = _remove_blank(connection, batch.chunks)
                self._turns.wait(batch.number)
                if self._trace.ended:
                    raise _AfterEndError
            events -= blank
            self._trace.without_event += blank - empty
        except _AfterEndError:
            events = 0
        except duckdb.Error:
            self._turns.wait(batch.number)
            events = sum(_load_damaged(connection, self._trace, chunk, batch.rank) for chunk in batch.chunks)
        for chunk in batch.chunks:
            chunk.path.unlink(missing_ok=True)
        self.events += events
        self._done += sum(chunk.size for chunk in batch.chunks)
        if self._progress:
            self._progress(self._done)
        self._turns.end()


class _AfterEndError(Exception):
    """An earlier batch reached the end of the events."""


def _settle_rank(connection: duckdb.DuckDBPyConnection, rank: int | None, final: int) -> None:
    if rank is not None and final != rank:
        # Updating all rows is slow but rarely needed, because the rank usually precedes the events.
        connection.execute(f"UPDATE raw SET rank = {final} WHERE rank = {rank}")


def _load_damaged(connection: duckdb.DuckDBPyConnection, trace: ChromeTrace, chunk: Chunk, rank: int) -> int:
    if trace.ended:
        return 0
    try:
        events = _insert(connection, [chunk], rank, exact=chunk.exact)
        return events - _count_blank(connection, trace, chunk)
    except duckdb.OutOfMemoryException:
        # The chunk may be intact, and repairing it would drop events.
        raise OutOfMemoryError(None) from None
    except duckdb.Error:
        pass
    repaired = trace.repair(chunk)
    if repaired is None:
        return 0
    try:
        trace.not_objects += _count_others(connection, repaired)
        trace.repeated_keys += _count_repeated(connection, repaired)
        events = _insert_values(connection, repaired, rank)
        return events - _count_blank(connection, trace, repaired)
    except duckdb.Error as error:
        trace.lost(repaired, str(error).splitlines()[0])
        return 0


def _insert(connection: duckdb.DuckDBPyConnection, chunks: list[Chunk], rank: int, *, exact: bool) -> int:
    return insert_events(connection, [chunk.path for chunk in chunks], rank, exact=exact)


def insert_events(connection: duckdb.DuckDBPyConnection, files: list[Path], rank: int, *, exact: bool) -> int:
    """Append the events of JSON array files as events of ``rank``; return their number. With ``exact``, times are read
    as text."""
    form = _EXACT_TIME if exact else _FAST_TIME
    # Read times as VARCHAR, because DOUBLE would turn the time ``true`` into 1 us.
    columns = {**_COLUMNS, "ts": "VARCHAR", "dur": "VARCHAR", "args": "JSON"}
    read = "*" if exact else "* REPLACE (try_cast(ts AS DOUBLE) AS ts, try_cast(dur AS DOUBLE) AS dur)"
    name = _CUT_NAME.format("name")
    statement = f"""
        INSERT INTO raw
        SELECT {rank}, coalesce(ph, ''), cat, {name}, pid, tid, {_to_ns(form, "ts")}, {_to_ns(form, "dur")}, id, args
        FROM (SELECT {read} FROM read_json($files, format = 'array', columns = $columns))
        WHERE {_IS_EVENT}
    """
    inserted = connection.execute(statement, {"files": [str(file) for file in files], "columns": columns})
    return int(inserted.fetchall()[0][0])


def _insert_values(connection: duckdb.DuckDBPyConnection, chunk: Chunk, rank: int) -> int:
    """Insert the events of a chunk that DuckDB cannot read as rows; return their number. Skip elements that are not
    objects, and accept repeated keys."""
    fields = ", ".join(f"json ->> '{key}' AS {key}" for key in (*_COLUMNS, "ts", "dur"))
    keys = ", ".join(_CUT_NAME.format(key) for key in ("cat", "name", "pid", "tid"))
    ts, dur = (_to_ns(_EXACT_TIME, key) for key in ("ts", "dur"))
    statement = f"""
        INSERT INTO raw
        SELECT {rank}, {_CUT_NAME.format("coalesce(ph, '')")}, {keys}, {ts}, {dur}, id, args
        FROM (SELECT {fields}, json -> 'args' AS args FROM read_json_objects($file, format = 'array')
              WHERE json_type(json) = 'OBJECT')
        WHERE {_IS_EVENT}
    """
    inserted = connection.execute(statement, {"file": str(chunk.path)})
    return int(inserted.fetchall()[0][0])


def _count_blank(connection: duckdb.DuckDBPyConnection, trace: ChromeTrace, chunk: Chunk) -> int:
    """Remove the elements of ``chunk`` that are not events, and return their number."""
    blank, empty = _remove_blank(connection, [chunk])
    trace.without_event += blank - empty
    return blank


def _remove_blank(connection: duckdb.DuckDBPyConnection, chunks: Sequence[Chunk]) -> tuple[int, int]:
    """Remove the elements of ``chunks`` that are not events. Return how many there were, and how many of them were
    empty, because some writers end the array with ``{}``.
    """
    removed = int(connection.execute(f"DELETE FROM raw WHERE {_IS_BLANK}").fetchall()[0][0])
    if not removed:
        return 0, 0
    empty = "json_type(json) = 'NULL' OR json_type(json) = 'OBJECT' AND len(json_keys(json)) = 0"
    statement = f"SELECT count(*) FROM read_json_objects($files, format = 'array') WHERE {empty}"
    found = connection.execute(statement, {"files": [str(chunk.path) for chunk in chunks]}).fetchall()
    return removed, min(removed, int(found[0][0]))


def _count_others(connection: duckdb.DuckDBPyConnection, chunk: Chunk) -> int:
    """Count the elements of ``chunk`` that are neither objects nor null."""
    kinds = "json_type(json) NOT IN ('OBJECT', 'NULL')"
    statement = f"SELECT count(*) FROM read_json_objects($file, format = 'array') WHERE {kinds}"
    return int(connection.execute(statement, {"file": str(chunk.path)}).fetchall()[0][0])


def _count_repeated(connection: duckdb.DuckDBPyConnection, chunk: Chunk) -> int:
    """Count the events of ``chunk`` that contain any of ``_KEYS`` more than once."""
    keys = ", ".join(f"'{key}'" for key in _KEYS)
    statement = f"""
        SELECT count(DISTINCT id) FROM (
            SELECT id, key FROM (
                SELECT row_number() OVER () AS id, unnest(json_keys(json)) AS key
                FROM read_json_objects($file, format = 'array') WHERE json_type(json) = 'OBJECT')
            WHERE key IN ({keys}) GROUP BY id, key HAVING count(*) > 1)
    """
    return int(connection.execute(statement, {"file": str(chunk.path)}).fetchall()[0][0])


def _to_ns(form: str, source: str) -> str:
    """Return SQL that converts the time ``source`` from microseconds to ns; NULL if the time is impossible."""
    possible = f"try_cast({source} AS DOUBLE) BETWEEN {-_MOST_US} AND {_MOST_US}"
    return f"CASE WHEN {possible} THEN {form.format(source)} END"


def _without_annotations(connection: duckdb.DuckDBPyConnection, rank: int) -> int:
    """Remove the slices and metadata that ``annotate`` added to the trace of ``rank``; return the number of events.

    The slices are in a separate process that ``annotate`` named. Slices of the same category in other processes belong
    to the run.
    """
    ours = f"rank = {rank} AND cat = '{CATEGORY}'"
    if not connection.execute(f"SELECT 1 FROM raw WHERE {ours} AND ph IN ('B', 'E', 'M') LIMIT 1").fetchall():
        return 0
    named = f"SELECT pid FROM raw WHERE {ours} AND ph = 'M' AND name = 'process_name' AND pid IS NOT NULL"
    others = f"SELECT pid FROM raw WHERE rank = {rank} AND cat IS DISTINCT FROM '{CATEGORY}' AND pid IS NOT NULL"
    connection.execute(f"CREATE TEMPORARY TABLE own_process AS ({named} EXCEPT {others})")
    own = "pid IN (FROM own_process)"
    removed = connection.execute(
        f"DELETE FROM raw WHERE {ours} AND (ph = 'M' OR ph IN ('B', 'E') AND {own})"
    ).fetchall()
    connection.execute("DROP TABLE own_process")
    return int(removed[0][0])


def _has_phase(connection: duckdb.DuckDBPyConnection, rank: int) -> bool:
    """Return whether any event of ``rank`` has a phase. If not, remove the rows of ``rank``."""
    if connection.execute(f"SELECT 1 FROM raw WHERE rank = {rank} AND ph <> '' LIMIT 1").fetchall():
        return True
    connection.execute(f"DELETE FROM raw WHERE rank = {rank}")
    return False
