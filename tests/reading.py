"""The result of a reader for one file, as plain values."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import orjson
from events import Event

from perftool.model.inputs import InputFile
from perftool.store.load import CREATE_RAW, load_trace

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Reading:
    """What a reader read. ``rows``: (ph, cat, name, pid, tid, ts ns, dur ns, id, args). ``issues``: (kind, count,
    offset).
    """

    rows: list[Row]
    issues: list[tuple[str, int, int | None]]
    status: str
    metadata: dict[str, Any]

    @property
    def names(self) -> list[str]:
        return [row[2] for row in self.rows]

    @property
    def times(self) -> list[tuple[int | None, int | None]]:
        return [(row[5], row[6]) for row in self.rows]


def read(data: bytes) -> Reading:
    """Read ``data`` as a trace file. Raise InputError if the reader does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(data)
        return read_path(str(path))


def read_path(path: str) -> Reading:
    """Read the trace file at ``path``, or stdin if it is '-'."""
    read_file, metadata = load(path)
    found = _connection().execute("SELECT * EXCLUDE (rank) FROM raw ORDER BY rowid").fetchall()
    issues = [(issue.kind, issue.count, issue.offset) for issue in read_file.issues]
    assert read_file.events == len(found)
    return Reading([(*row[:-1], _args(row[-1])) for row in found], issues, read_file.status, metadata)


def load(path: str) -> tuple[InputFile, dict[str, Any]]:
    """Return the reader's messages about the trace file at ``path``, and the file's metadata."""
    _connection().execute(CREATE_RAW.replace("CREATE", "CREATE OR REPLACE"))
    return load_trace(_connection, lambda work: work.do(), path, lambda metadata: 0)


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """Return a single database for all readings, because opening a database takes longer than reading a small file."""
    # DuckDB complains about connections that are still open when Python exits.
    atexit.register(_connection.cache_clear)
    return duckdb.connect()


def rows_of(events: Iterable[Event]) -> list[Row]:
    """Return the rows that should result from ``events``, whose times are whole microseconds."""
    return [
        (
            event["ph"],
            event.get("cat"),
            event.get("name"),
            _text(event.get("pid")),
            _text(event.get("tid")),
            _ns(event.get("ts")),
            _ns(event.get("dur")),
            _text(event.get("id")),
            event.get("args"),
        )
        for event in events
    ]


def _args(text: str | None) -> Any:
    """Return the arguments as values. Text that only DuckDB accepts as JSON (nan, inf) stays text."""
    try:
        return None if text is None else orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _ns(micros: int | None) -> int | None:
    return None if micros is None else micros * 1000
