"""Converts the JSON of the native Synapse profiler (``hl-prof-config --invoc json``) to the form of Gaudi's bridge.

The native form has one process per kind of engine (``*MME (accel5)``), and begin and end events. Work on an engine may
overlap, and a begin and its end may have different names. So each end is matched with the earliest open begin of the
same engine, recipe, context and node. Arguments have different names; ``arguments`` in the vendor file maps them. The
native form has its own categories, so events with a category of another form stay unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

import duckdb

from perftool.model import vendors
from perftool.model.inputs import ImportIssue
from perftool.readers.nodes import HOST_TRACE
from perftool.units import quantity

# The arguments that identify work on a lane, by the names that the bridge uses.
_IDENTITY = ("recipeId", "contextId", "Unique Node ID")
_OPERATION = "operation"
# Whether an event's category is one of the native profiler's own.
_OWN = "(lower(cat) IN (SELECT unnest($known))) IS NOT true"


def rewrite(connection: duckdb.DuckDBPyConnection, rank: int, path: str) -> list[ImportIssue]:
    """Convert the native profiler's events among the raw events of ``rank``, which were read from ``path``. Leave other
    traces unchanged.

    Return issues for events without a partner.
    """
    processes = _engine_processes(connection, rank)
    if not processes and not path.endswith(HOST_TRACE):
        return []
    connection.execute(
        "UPDATE raw SET cat = 'Runtime' WHERE rank = $rank AND ph IN ('X', 'B', 'E') AND NOT list_contains($pids, pid)"
        f" AND {_OWN}",
        {"rank": rank, "pids": processes, "known": _known_categories()},
    )
    if not processes:
        return []
    return [*_join(connection, rank, processes)]


def _engine_processes(connection: duckdb.DuckDBPyConnection, rank: int) -> list[str]:
    """Return the ids of the processes whose lanes are engines."""
    found = connection.execute(
        "SELECT DISTINCT pid, args ->> 'name' FROM raw WHERE rank = $rank AND ph = 'M' AND name = 'process_name'",
        {"rank": rank},
    ).fetchall()
    patterns = [
        name.pattern
        for vendor in vendors.vendors(vendors.FOLDER)
        for name in vendor.names
        if (name.subject, name.role) == ("process", "native")
    ]
    return sorted({pid for pid, name in found if name and any(fnmatchcase(name.lower(), one) for one in patterns)})


def _known_categories() -> list[str]:
    known = vendors.vendors(vendors.FOLDER)
    return sorted({name.pattern for vendor in known for name in vendor.names if name.subject == "category"})


def _join(connection: duckdb.DuckDBPyConnection, rank: int, processes: list[str]) -> Iterator[ImportIssue]:
    """Combine each begin and its end into a complete event. Drop events without a partner, and report them."""
    params = {"rank": rank, "pids": processes, "known": _known_categories()}
    connection.execute("CREATE OR REPLACE TEMP TABLE _native AS " + _pairs(), params)
    connection.execute(
        """UPDATE raw SET ph = 'X', cat = 'Runtime', dur = n.dur, name = n.name, args = n.args
           FROM _native AS n WHERE raw.rowid = n.id AND n.dur IS NOT NULL"""
    )
    kept = connection.execute(
        "SELECT count_if(ph = 'B' AND dur IS NULL), count_if(ph = 'E' AND dur IS NULL) FROM _native"
    ).fetchall()
    # Keep events without a time, so that they are counted as lost.
    connection.execute(
        f"""DELETE FROM raw
            WHERE rank = $rank AND ph IN ('B', 'E') AND list_contains($pids, pid) AND ts IS NOT NULL AND {_OWN}""",
        params,
    )
    connection.execute("DROP TABLE _native")
    begins, ends = kept[0]
    if begins:
        text = f"{quantity(begins, 'piece of work ends', 'pieces of work end')} after the recording"
        yield ImportIssue("begin without end", begins, text)
    if ends:
        text = f"{quantity(ends, 'piece', 'pieces')} of work began before the recording"
        yield ImportIssue("end without begin", ends, text)


def _pairs() -> str:
    """Return SQL for rows (id, ph, dur, name, args), one per complete event, pair of begin and end, or event without a
    partner."""
    spellings = {key: names for vendor in vendors.vendors(vendors.FOLDER) for key, names in vendor.arguments.items()}
    canonical = ", ".join(f"'{key}', {_value(names)}" for key, names in spellings.items() if key != _OPERATION)
    identity = " || '|' || ".join(f"coalesce({_value(spellings[key])}, '')" for key in _IDENTITY)
    return f"""
WITH events AS (
    SELECT rowid AS id, ph, pid, tid, name, ts, dur, coalesce(args, '{{}}') AS args
    FROM raw WHERE rank = $rank AND ph IN ('B', 'E', 'X') AND list_contains($pids, pid) AND ts IS NOT NULL AND {_OWN}
),
-- An end event has no begin if there are more ends than begins up to it.
counted AS (
    SELECT *, {identity} AS key, count_if(ph = 'B') OVER w AS begun, count_if(ph = 'E') OVER w AS ended
    FROM events WHERE ph <> 'X'
    WINDOW w AS (PARTITION BY pid, tid, {identity} ORDER BY ts, id)
),
balanced AS (
    SELECT *, greatest(max(ended - begun) OVER (PARTITION BY pid, tid, key ORDER BY ts, id), 0) AS early FROM counted
),
followed AS (
    SELECT *, coalesce(lag(early) OVER (PARTITION BY pid, tid, key ORDER BY ts, id), 0) AS early_before FROM balanced
),
ordered AS (
    SELECT *, CASE WHEN ph = 'B' THEN begun WHEN early = early_before THEN ended - early END AS nth FROM followed
),
joined AS (
    SELECT coalesce(b.id, e.id) AS id, coalesce(b.ph, e.ph) AS ph, e.ts - b.ts AS dur, b.name,
           json_merge_patch(b.args, e.args) AS args
    FROM (FROM ordered WHERE ph = 'B') AS b
    FULL JOIN (FROM ordered WHERE ph = 'E') AS e USING (pid, tid, key, nth)
    UNION ALL SELECT id, ph, dur, name, args FROM events WHERE ph = 'X'
)
SELECT id, ph, dur, coalesce(nullif({_value(spellings[_OPERATION])}, ''), name) AS name,
       json_merge_patch(args, json_object('EventName', name, {canonical})) AS args
FROM joined
"""


def _value(names: tuple[str, ...]) -> str:
    """Return SQL for the value of the first of the arguments ``names`` that exists."""
    paths = ", ".join(f"json_extract_string(args, '$.\"{name}\"')" for name in names)
    return f"coalesce({paths})" if len(names) > 1 else paths
