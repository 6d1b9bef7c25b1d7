"""Creates tables that are slow or impossible to derive in SQL: begin/end pairs, the nesting of slices, and the
timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import duckdb

from perftool.model.inputs import ImportIssue
from perftool.store.catalog import catalog
from perftool.store.dictionaries import create_dictionaries
from perftool.store.load import LONGEST_NAME
from perftool.store.nesting import Nested, Nesting, Slices
from perftool.store.pairing import Pairs, pair
from perftool.store.sweep import Sweep
from perftool.units import quantity

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


# The approximate number of slices or intervals to process at a time; each needs about ten numbers in arrays.
MOST_AT_ONCE = 1_000_000
_WRAPPERS = """
SELECT DISTINCT n.name FROM (SELECT DISTINCT name FROM _spans WHERE side = 'host' AND cat = 'cpu_op') AS n
JOIN _vocabulary AS v ON v.subject = 'op' AND v.role = 'wrapper' AND lower(n.name) GLOB v.pattern
"""


# The largest plausible sum of all lengths in a store (4.5 years). With this limit, sums over many ranks fit in 64 bits.
_LONGEST_TOTAL_NS = 2**57

# The phases of the trace event format, including the deprecated ones.
_IS_KNOWN = "contains('BEXiIRCbnestfPNODMVvc()STpF', ph) AND strlen(ph) = 1"

_LENGTHS = """
SELECT rank, pid, tid, dur AS ns FROM raw WHERE ph = 'X' AND ts IS NOT NULL
UNION ALL SELECT r.rank, r.pid, r.tid, p."end" - r.ts FROM _pairs AS p JOIN raw AS r ON r.rowid = p.id
"""

# The arrays and ``part`` have the same rows, in the same order.
_SLICES = """
SELECT s.id, s.rank, s.track, s.side, s.name, s.cat, s.ts, s."end" - s.ts AS dur, s."end", n.depth::INTEGER AS depth,
       nullif(n.parent, -1) AS parent, n.outermost
FROM {part} AS s POSITIONAL JOIN arrays AS n
"""


def pair_slices(connection: duckdb.DuckDBPyConnection) -> list[tuple[int, ImportIssue]]:
    """Create the table ``_pairs`` (id of the begin, end in ns) and the ENUM types that slices use.

    Return (rank, issue) for events that cannot be slices, and for names and inputs that are too long.
    """
    import numpy as np

    longest_name = create_dictionaries(connection) or LONGEST_NAME
    begins: list[int] = []
    ends_ns: list[int] = []
    issues: list[tuple[int, ImportIssue]] = []
    ranks = connection.execute("SELECT DISTINCT rank FROM raw WHERE ph IN ('B', 'E') ORDER BY rank").fetchall()
    for (rank,) in ranks:
        pairs = _pairs_of(connection, rank)
        begins += pairs.begin
        ends_ns += pairs.end_ns
        issues += [(rank, issue) for issue in _unpaired(pairs.unmatched_ends, pairs.unmatched_begins)]
    arrays = {"id": np.asarray(begins, dtype=np.int64), "end": np.asarray(ends_ns, dtype=np.int64)}
    _run(connection, 'CREATE TABLE _pairs AS SELECT id, "end" FROM arrays', arrays)
    _limit_lengths(connection)
    return [
        *issues,
        *_untimed(connection),
        *_unknown(connection),
        *_cut_names(connection, longest_name),
        *_long_inputs(connection),
    ]


def _limit_lengths(connection: duckdb.DuckDBPyConnection) -> None:
    """Lower the limit in ``is_length`` if the sum of all lengths is impossible, because the longest must be wrong."""
    total, count = connection.execute(
        f"SELECT sum(ns), count(*) FROM ({_LENGTHS}) WHERE ns > 0 AND is_length(ns)"
    ).fetchall()[0]
    if count and total > _LONGEST_TOTAL_NS:
        longest = _LONGEST_TOTAL_NS // count
        connection.execute(f"CREATE OR REPLACE MACRO is_length(ns) AS ns BETWEEN 0 AND {longest}")


def nest_slices(connection: duckdb.DuckDBPyConnection) -> Sequence[tuple[int, ImportIssue]]:
    """Create the table ``slices`` from ``_spans`` and the nesting of host spans, period by period. Return no issues."""
    nesting = Nesting()
    periods = periods_of(connection, "_spans WHERE side = 'host'")
    for number, (begin, until) in enumerate(periods):
        part = "_spans"
        if len(periods) > 1:
            part = "_period"
            inside = inside_of("ts >=", begin, until)
            connection.execute(f"CREATE OR REPLACE TEMP TABLE _period AS FROM _spans WHERE {inside}")
        into = "INSERT INTO slices" if number else "CREATE TABLE slices AS"
        _run(connection, into + _SLICES.format(part=part), _nested(connection, nesting, part, until))
    connection.execute("DROP TABLE IF EXISTS _period")
    return ()


def _nested(
    connection: duckdb.DuckDBPyConnection, nesting: Nesting, part: str, until: int | None
) -> dict[str, npt.NDArray[Any]]:
    """Compute the nesting of the slices in the table ``part``, in row order; device slices do not nest."""
    import numpy as np

    # Row ids of an uncommitted table do not start at 0.
    rows, first = connection.execute(f"SELECT count(*), coalesce(min(rowid), 0) FROM {part}").fetchall()[0]
    # Steps (in old traces) and wrappers of compiled code look like ops but contain other ops, so they get their own
    # kinds.
    row, *spans = columns_of(
        connection,
        f"""rowid, id, track, ts, "end",
            (hash(CASE WHEN is_step(name) THEN 'step'
                       WHEN w.name IS NOT NULL AND cat = 'cpu_op' THEN 'wrapper' ELSE cat END) >> 1)::BIGINT AS kind
        FROM {part} LEFT JOIN ({_WRAPPERS}) AS w USING (name) WHERE side = 'host'""",
    )
    nested = nesting.add(Slices(*spans), until)
    arrays = Nested(np.zeros(rows, np.int64), np.full(rows, -1, np.int64), np.ones(rows, np.bool_))
    for every, those in zip(arrays, nested, strict=True):
        every[row - first] = those
    return arrays._asdict()


def periods_of(connection: duckdb.DuckDBPyConnection, rows: str) -> list[tuple[int | None, int | None]]:
    """Divide time into consecutive periods (begin, end), so that at most about a million ``rows`` start in each. The
    begin of the first period and the end of the last are None."""
    (count,) = connection.execute(f"SELECT count(*) FROM {rows}").fetchall()[0]
    parts = count // MOST_AT_ONCE + 1
    if parts == 1:
        return [(None, None)]
    shares = ", ".join(str(part / parts) for part in range(1, parts))
    (cuts,) = connection.execute(f"SELECT approx_quantile(ts, [{shares}]::FLOAT[]) FROM {rows}").fetchall()[0]
    bounds = [None, *sorted(set(map(int, cuts))), None]
    return list(pairwise(bounds))


def inside_of(after: str, begin: int | None, until: int | None) -> str:
    """Return the SQL condition that selects the rows of a period: ``after`` (such as ``ts >=``) followed by ``begin``,
    and ``ts`` before ``until``."""
    return " AND ".join(
        ["true", *([f"{after} {begin}"] * (begin is not None)), *([f"ts < {until}"] * (until is not None))]
    )


def sweep_timeline(connection: duckdb.DuckDBPyConnection) -> Sequence[tuple[int, ImportIssue]]:
    """Create the table ``_timeline`` from ``_activity_intervals`` and the bounds of steps, period by period. Use
    arrays, which are four times as fast as SQL. Return no issues.
    """
    connection.execute(f"CREATE TABLE {catalog()['_timeline'].definition}")
    periods = periods_of(connection, "_activity_intervals")
    edges = 'rank, ts, "end" FROM _step_bounds'
    rank, ts, end = columns_of(connection, edges if len(periods) == 1 else f"{edges} {_EXTENTS}")
    swept = Sweep((rank, ts, end))
    for begin, until in periods:
        inside = inside_of('"end" >', begin, until)
        rank, kind, ts, end = columns_of(connection, f'rank, class, ts, "end" FROM _activity_intervals WHERE {inside}')
        stretches = swept.add(rank, kind, ts, end, begin, until)
        _run(
            connection,
            'INSERT INTO _timeline SELECT rank::INTEGER, ts, "end", mask FROM arrays',
            dict(zip(("rank", "ts", "end", "mask"), stretches, strict=True)),
        )
    return ()


# For each rank, the time from its first to its last event.
_EXTENTS = """
UNION ALL SELECT rank, min(ts), max("end") FROM (
    SELECT rank, ts, "end" FROM _step_bounds UNION ALL SELECT rank, ts, "end" FROM _activity_intervals WHERE "end" > ts
) GROUP BY rank
"""


def columns_of(connection: duckdb.DuckDBPyConnection, wanted: str) -> list[npt.NDArray[np.int64]]:
    """Run ``SELECT {wanted}`` and return its columns as 64-bit integers. The columns must not contain NULL."""
    import numpy as np

    return [
        np.asarray(values, dtype=np.int64) for values in connection.execute(f"SELECT {wanted}").fetchnumpy().values()
    ]


def _pairs_of(connection: duckdb.DuckDBPyConnection, rank: int) -> Pairs:
    events = connection.execute(
        """SELECT rowid, pid, tid, ph, name, ts FROM raw
           WHERE rank = $rank AND ph IN ('B', 'E') AND ts IS NOT NULL ORDER BY ts, rowid""",
        {"rank": rank},
    )
    rows = iter(events.fetchone, None)
    return pair((r[0], (r[1], r[2]), r[3], r[4], r[5]) for r in rows)


def _unpaired(unmatched_ends: int, unmatched_begins: int) -> Iterator[ImportIssue]:
    if unmatched_ends:
        one, many = "slice that began before the recording was", "slices that began before the recording were"
        text = f"{quantity(unmatched_ends, one, many)} left out"
        yield ImportIssue("unmatched ends", unmatched_ends, text)
    if unmatched_begins:
        one, many = (
            "slice without an end is assumed to end with the slice around it",
            "slices without an end are assumed to end with the slices around them",
        )
        text = quantity(unmatched_begins, one, many)
        yield ImportIssue("unmatched begins", unmatched_begins, text)


def _untimed(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[int, ImportIssue]]:
    """Report events without a start, and host slices whose length is missing or impossible. Device events with
    impossible lengths stay in device_ops, marked as invalid."""
    found = connection.execute(
        f"""SELECT r.rank, count(*)
            FROM (SELECT * FROM ({_LENGTHS}) WHERE ns IS NULL OR NOT is_length(ns)
                  UNION ALL SELECT rank, pid, tid, NULL FROM raw
                  WHERE ts IS NULL AND ph <> 'M' AND {_IS_KNOWN}) AS r
            LEFT JOIN tracks AS t ON t.rank = r.rank AND t.pid = coalesce(r.pid, '') AND t.tid = coalesce(r.tid, '')
            WHERE r.ns IS NULL OR t.side = 'host' GROUP BY r.rank ORDER BY r.rank"""
    ).fetchall()
    for rank, count in found:
        words = "with no start time or an invalid duration"
        text = f"{quantity(count, f'event {words} was', f'events {words} were')} left out"
        yield rank, ImportIssue("events without times", count, text)


def _unknown(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[int, ImportIssue]]:
    """Report events that no table contains: those whose phase is not in the trace event format, and slices without a
    name."""
    found = connection.execute(
        f"""SELECT rank, count(*) FROM raw
            WHERE NOT ({_IS_KNOWN}) OR (ph IN ('X', 'B') AND name IS NULL)
            GROUP BY rank ORDER BY rank"""
    ).fetchall()
    for rank, count in found:
        words = "without a known phase or a name"
        text = f"{quantity(count, f'event {words} was', f'events {words} were')} left out"
        yield rank, ImportIssue("unknown events", count, text)


def _cut_names(connection: duckdb.DuckDBPyConnection, longest: int) -> Iterator[tuple[int, ImportIssue]]:
    """Report names that were truncated because they were longer than ``longest`` bytes."""
    found = connection.execute(
        f"SELECT rank, count(*) FROM raw WHERE strlen(name) > {longest} GROUP BY rank ORDER BY rank"
    ).fetchall()
    for rank, count in found:
        text = f"{quantity(count, 'name was', 'names were')} truncated to {longest >> 10} KiB"
        yield rank, ImportIssue("cut names", count, text)


def _long_inputs(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[int, ImportIssue]]:
    """Report inputs of ops that are too long for the table ``ops``."""
    found = connection.execute(
        """SELECT rank, count(*), longest_inputs() FROM (
               SELECT rank, unnest(json_extract_string(args, [
                   '$."Input Dims"', '$."Input dims"', '$."Input type"', '$."Concrete Inputs"'])) AS text
               FROM raw WHERE ph IN ('X', 'B') AND strlen(args) > longest_inputs())
           WHERE strlen(text) > longest_inputs() GROUP BY rank ORDER BY rank"""
    ).fetchall()
    for rank, count, longest in found:
        words = f"of shapes, types or arguments longer than {longest >> 10} KiB"
        text = f"{quantity(count, f'list {words} was', f'lists {words} were')} left out"
        yield rank, ImportIssue("long inputs", count, text)


def _run(connection: duckdb.DuckDBPyConnection, sql: str, arrays: dict[str, Any]) -> None:
    """Run ``sql``, which may read ``arrays`` as a table, because DuckDB finds tables among the local variables."""
    connection.execute(sql)
