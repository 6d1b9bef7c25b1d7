"""Runs untrusted SQL in a child process, and kills the process if a query takes too long."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from perftool.errors import QueryError, QueryTimeoutError
from perftool.store.sandbox.wire import (
    OUT_OF_MEMORY,
    BrokenFrameError,
    decoded,
    encoded,
    read_frame,
    send,
    unpacked_rows,
)

# The child gets this process's module path explicitly, because it starts in isolated mode and with few variables.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from perftool.store.sandbox.inside import main; main()"
)
# Variables that Python needs to start, or that set the time zone and locale of results.
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TZ", "LANG", "LC_ALL")
_MOST_THREADS = 4
_LONGEST_SQL = 1 << 20
# The size limit for the column names in an answer.
_MOST_HEADER_BYTES = 16 << 20
_LONGEST_ERROR = 2_000


@dataclass(frozen=True)
class Bounds:
    """Limits on a query's run time and result size. With ``explain``, the result is the query plan with timings."""

    seconds: float
    rows: int = 1_000_000
    bytes: int = 256 << 20
    explain: bool = False


@dataclass(frozen=True)
class Result:
    """The rows of a query within its bounds. ``cut``: whether there were more; ``bytes``: the size received."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    cut: bool
    bytes: int = 0


class Sandbox:
    """Runs queries over tables exported as DuckDB files to ``folder``; the first query starts the process."""

    def __init__(self, folder: Path, macros: str, memory_mb: int) -> None:
        self._folder = folder
        self._macros = macros
        self._memory_mb = memory_mb
        self._child: subprocess.Popen[bytes] | None = None
        self._attached: set[str] = set()

    def ask(self, sql: str, params: Mapping[str, Any], tables: Mapping[str, Path], bounds: Bounds) -> Result:
        """Run ``sql``, which may use ``tables`` (each in its own file) and the tables of earlier calls.

        Raise QueryError if the query fails.
        """
        if len(sql) > _LONGEST_SQL:
            raise QueryError(f"the SQL is longer than {_LONGEST_SQL:,} characters")
        used, begin = self._child is not None, time.monotonic()
        result = self._ask(sql, params, tables, bounds)
        if result == OUT_OF_MEMORY:
            # Retry in a new process, because earlier queries may still occupy memory.
            self.close()
            left = bounds.seconds - (time.monotonic() - begin)
            if used and left > 0:
                result = self._ask(sql, params, tables, replace(bounds, seconds=left))
        if isinstance(result, str):
            raise QueryError(result)
        return result

    def _ask(self, sql: str, params: Mapping[str, Any], tables: Mapping[str, Path], bounds: Bounds) -> Result | str:
        """Return the result, or the error message that the process sends. Raise QueryError if it sends neither."""
        child = self._child or self._start()
        new = {name: str(path) for name, path in tables.items() if name not in self._attached}
        request = {
            "sql": sql, "params": dict(params), "tables": new, "seconds": bounds.seconds, "rows": bounds.rows,
            "bytes": bounds.bytes, "explain": bounds.explain,
        }  # fmt: skip
        result: Result | str | None = None
        try:
            with _killed_after(child, bounds.seconds) as late, contextlib.suppress(OSError, BrokenFrameError):
                send(_pipe(child.stdin), encoded(request))
                result = read_result(_pipe(child.stdout), bounds)
        finally:
            if result is None:
                # Close the process after Ctrl-C, too, because the next query would otherwise read this answer.
                self.close()
        if late.is_set():
            self.close()
            raise QueryTimeoutError(bounds.seconds)
        if result is None:
            raise QueryError(f"the query crashed the process that ran it; its memory limit is {self._memory_mb:,} MB")
        self._attached |= set(new)
        return result

    def close(self) -> None:
        """End the process; the next query starts a new process."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            for pipe in (self._child.stdin, self._child.stdout):
                # Unsent data no longer matters.
                with contextlib.suppress(OSError):
                    _pipe(pipe).close()
        self._child = None
        self._attached = set()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path)]
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        setup = {
            "folder": str(self._folder), "macros": self._macros, "memory_mb": self._memory_mb,
            "threads": min(_MOST_THREADS, os.cpu_count() or 1),
        }  # fmt: skip
        try:
            # In a new session, the child does not receive Ctrl-C; this process ends the child.
            child: subprocess.Popen[bytes] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=kept,
                cwd=self._folder, start_new_session=True,
            )  # fmt: skip
            self._child = child
            send(_pipe(child.stdin), encoded(setup))
        except OSError as error:
            raise QueryError(f"the query process cannot be started ({error.strerror or error})") from None
        return child


@contextlib.contextmanager
def _killed_after(child: subprocess.Popen[bytes], seconds: float) -> Iterator[threading.Event]:
    """Kill ``child`` and set the event if the block takes longer than ``seconds``."""
    late = threading.Event()

    def kill() -> None:
        late.set()
        child.kill()

    timer = threading.Timer(seconds, kill)
    # A daemon thread, because Python waits for other threads before it exits.
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


def _pipe(pipe: Any) -> BinaryIO:
    assert pipe is not None
    return pipe  # type: ignore[no-any-return]


def read_result(pipe: BinaryIO, bounds: Bounds) -> Result | str | None:
    """Read the result, or an error message, from ``pipe``. Return None if the answer ends early.

    The author of the SQL may have taken over the process at the other end. Raise BrokenFrameError if it sends anything
    else, or more than ``bounds`` allow.
    """
    columns: list[str] = []
    rows: list[tuple[Any, ...]] = []
    most = bounds.bytes + _MOST_HEADER_BYTES
    left = most
    while (data := read_frame(pipe, left)) is not None:
        left -= len(data)
        message = decoded(data)
        if not isinstance(message, dict):
            raise BrokenFrameError("a message that is not an object")
        if "error" in message:
            return str(message["error"])[:_LONGEST_ERROR]
        if "columns" in message:
            columns = _names(message["columns"])
        elif "done" in message:
            return Result(columns, rows, bool(message.get("cut")), most - left)
        else:
            rows += unpacked_rows(message, len(columns))
        if len(rows) > bounds.rows:
            raise BrokenFrameError("more rows than requested")
    return None


def _names(columns: Any) -> list[str]:
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise BrokenFrameError("columns without names")
    return columns
