"""The child process of the sandbox: reads requests from stdin and answers on stdout.

Before it reads any SQL, it gives up its access to files, the network, other processes, more memory and settings.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from perftool.store.sandbox.allowed import RefusedError, check, first_line
from perftool.store.sandbox.wire import OUT_OF_MEMORY, encoded, packed, receive, send

if TYPE_CHECKING:
    import duckdb

_ROWS_AT_A_TIME = 500
_SIMPLE = frozenset(
    ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
     "FLOAT", "DOUBLE", "VARCHAR")
)  # fmt: skip
# Additional memory for threads, allocators and everything else that DuckDB does not count.
_SLACK_MB = 512
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000


def main() -> None:
    """Answer requests until the pipe is closed."""
    requests, answers = _take_pipe()
    setup = receive(requests)
    if setup is None:
        return
    connection = _closed_connection(setup)
    tables: set[str] = set()
    while (request := receive(requests)) is not None:
        _hold(request["seconds"], setup["threads"])
        try:
            for name, file in request["tables"].items():
                _attach_table(connection, name, file)
                tables.add(name)
            _answer(connection, request, tables, answers)
        except MemoryError:
            send(answers, encoded({"error": OUT_OF_MEMORY}))
        finally:
            _release()


def _take_pipe() -> tuple[BinaryIO, BinaryIO]:
    """Reserve stdin and stdout for the protocol, and redirect all other use of the standard streams to the null
    device."""
    pipe = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    return os.fdopen(pipe[0], "rb"), os.fdopen(pipe[1], "wb")


def _closed_connection(setup: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
    """Open a connection that can only read the folder with the tables, and lock down the process."""
    from perftool.store.database import literal, open_database

    leave_network()
    connection = open_database(":memory:")
    folder = literal(setup["folder"])
    for statement in (
        f"SET memory_limit = '{setup['memory_mb']}MB'", f"SET threads = {setup['threads']}", "SET temp_directory = ''",
        "SET enable_progress_bar = false", "SET autoinstall_known_extensions = false",
        "SET autoload_known_extensions = false", "SET allow_community_extensions = false",
        "SET allow_persistent_secrets = false", f"SET allowed_directories = [{folder}]", setup["macros"],
        # Start the threads and initialise the parser while this is still allowed.
        "SELECT count(*) FROM range(1000000) WHERE hash(range) % 7 = 0",
        "SET enable_external_access = false", "SET lock_configuration = true",
    ):  # fmt: skip
        connection.execute(statement)
    _limit_resources(setup["memory_mb"])
    return connection


def leave_network() -> bool:
    """Try to move into a network namespace without interfaces; return whether the system allowed it."""
    if sys.platform != "linux":
        return False
    import ctypes

    return bool(ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0)


def _limit_resources(memory_mb: int) -> None:
    """Set limits that the kernel enforces on memory, files, new processes and core dumps."""
    if sys.platform == "win32":
        return
    import resource

    most = (memory_mb + _SLACK_MB) << 20
    limits = {resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0, resource.RLIMIT_DATA: most}
    # This limit also prevents new threads, but keeps existing ones. It does not apply to root.
    limits[resource.RLIMIT_NPROC] = 0
    for what, limit in limits.items():
        limit = _allowed(limit, resource.getrlimit(what)[1])
        resource.setrlimit(what, (limit, limit))


def _allowed(limit: int, hard: int) -> int:
    """Return ``limit``, or the existing ``hard`` limit (``ulimit -H``) if that is lower, because a process cannot raise
    it.
    """
    return limit if hard < 0 else min(limit, hard)


def _hold(seconds: float, threads: int) -> None:
    """Limit the CPU time and the wall time of this process, in case its parent fails to kill it."""
    if sys.platform == "win32":
        return
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime + (seconds + 1) * threads) + 1
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (_allowed(most, hard), hard))
    signal.setitimer(signal.ITIMER_REAL, seconds + 2)


def _release() -> None:
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, 0)


def _attach_table(connection: duckdb.DuckDBPyConnection, name: str, file: str) -> None:
    from perftool.store.database import literal

    connection.execute(f'ATTACH {literal(file)} AS "exported {name}" (READ_ONLY)')
    connection.execute(f'CREATE VIEW "{name}" AS SELECT * FROM "exported {name}".main."{name}"')


def _answer(
    connection: duckdb.DuckDBPyConnection, request: Mapping[str, Any], tables: set[str], answers: BinaryIO
) -> None:
    import duckdb

    try:
        check(connection, request["sql"], tables)
        connection.execute("BEGIN TRANSACTION READ ONLY")
        try:
            sql = f"EXPLAIN ANALYZE {request['sql']}" if request["explain"] else request["sql"]
            _send_rows(connection.execute(sql, request["params"] or None), request, answers)
        finally:
            connection.execute("ROLLBACK")
    except (RefusedError, duckdb.Error) as error:
        send(answers, encoded({"error": first_line(error)}))


def _send_rows(result: duckdb.DuckDBPyConnection, request: Mapping[str, Any], answers: BinaryIO) -> None:
    """Send the columns, then the rows in batches, and finally whether any rows were left out."""
    description = result.description or []
    simple = all(str(column[1]) in _SIMPLE for column in description)
    send(answers, encoded({"columns": [column[0] for column in description]}))
    rows_left, bytes_left = request["rows"], request["bytes"]
    cut = False
    while not cut and (rows := result.fetchmany(min(_ROWS_AT_A_TIME, rows_left + 1))):
        kept = rows[:rows_left]
        data = encoded({"rows": kept} if simple else {"packed": [[packed(value) for value in row] for row in kept]})
        cut = len(rows) > len(kept) or len(data) > bytes_left
        if len(data) <= bytes_left:
            send(answers, data)
        rows_left -= len(kept)
        bytes_left -= len(data)
    send(answers, encoded({"done": True, "cut": cut}))
