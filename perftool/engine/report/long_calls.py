"""Sentences about modules, functions and ops that spend most of their time in a few of their calls, for runs on a
CPU."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from perftool.engine.report.causes import cut_name
from perftool.model.own_code import Line
from perftool.store.trace_store import TraceStore

# The smallest set of calls in a step that takes more than half of the time, and the number of all calls, on the first
# rank. Calls in different steps are matched by their place in the step. A call counts with its shortest time in any
# step, so that a call that was interrupted in some steps does not appear long.
_LONG_CALLS = """
WITH calls AS ({calls}),
outermost AS (
    SELECT track, ts, "end" FROM (SELECT *, max("end") OVER before AS last_end FROM calls
    WINDOW before AS (PARTITION BY track ORDER BY ts, "end" DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
    WHERE last_end IS NULL OR ts >= last_end
),
bounds AS (SELECT host_ts, host_end FROM _step_bounds WHERE NOT partial AND rank = (SELECT min(rank) FROM windows)),
placed AS (
    SELECT c.ts, c."end", row_number() OVER (PARTITION BY b.host_ts ORDER BY c.ts) AS place
    FROM outermost AS c ASOF JOIN bounds AS b ON c.ts >= b.host_ts WHERE c.ts < b.host_end
),
places AS (
    SELECT place, min("end" - ts) AS ns, sum("end" - ts) AS all_ns, list([ts, "end"] ORDER BY ts) AS spans
    FROM placed GROUP BY place HAVING 2 * count(*) > (SELECT count(*) FROM bounds)
),
longest_first AS (
    SELECT *, count(*) OVER () AS calls, sum(ns) OVER () AS whole_ns, sum(ns) OVER longer - ns AS longer_ns
    FROM places WINDOW longer AS (ORDER BY ns DESC, place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
)
SELECT place, spans, calls FROM longest_first WHERE 2 * longer_ns <= whole_ns
QUALIFY 2 * sum(all_ns) OVER () > (SELECT sum("end" - ts) FROM placed) ORDER BY place
"""
# A call that delegates its work to other ops is not among the device ops, so nothing is said about such an op.
_CALLS_OF_OP = """
SELECT track, ts, "end" FROM device_ops WHERE valid AND name = $name AND rank = (SELECT min(rank) FROM windows)
    AND (SELECT count(*) FROM ops WHERE name = $name AND id NOT IN (SELECT op FROM device_ops WHERE op IS NOT NULL)) = 0
"""
_CALLS_OF_FUNCTION = """
SELECT track, ts, "end" FROM frames
WHERE stack IS NULL AND "end" > ts AND rank = (SELECT min(rank) FROM windows) AND {which}
"""
_CALLS_OF_MODULE = _CALLS_OF_FUNCTION.format(
    which="file IS NULL AND regexp_replace(function, '_\\d+$', '') = 'nn.Module: ' || $name"
)
_CALLS_OF_LINE = _CALLS_OF_FUNCTION.format(which="file = $file AND line = $line AND function = $function")
# A sentence is given if at most this share of the calls take more than half of the time. The layers of a model rarely
# differ so much.
_FEW = 0.2


@dataclass(frozen=True)
class LongCalls:
    """Sentences about a few calls that take most of the time, and the ``module`` or function of these calls."""

    module: str | None = None
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Few:
    """A few calls of ``name`` that take most of its time, with their starts and ends in ns, and a sentence about
    them."""

    name: str
    spans: Sequence[tuple[int, int]]
    sentence: str

    def around(self, other: _Few) -> bool:
        """Whether most calls of ``other`` are inside these calls."""
        begins = [ts for ts, _ in self.spans]
        around = ((bisect_right(begins, ts) - 1, end) for ts, end in other.spans)
        return 2 * sum(at >= 0 and end <= self.spans[at][1] for at, end in around) > len(other.spans)


def long_calls(
    store: TraceStore, op: str, modules: Sequence[str], functions: Sequence[Line], has_steps: bool
) -> LongCalls:
    """Return sentences about a module or function, and about ``op``, if most of their time is in a few calls.

    Only the first such module or function in ``modules`` and ``functions`` is mentioned. ``op`` is left out if most of
    its long calls are inside those of the module or function. If the machine was overloaded, there are no sentences,
    because calls are then delayed at random.
    """
    store.build(["device_ops", "ops", "windows", "frames", "_step_bounds", "machine_loads"])
    if store.select("SELECT 1 FROM machine_loads WHERE overloaded LIMIT 1"):
        return LongCalls()
    of_module = (_few(store, name, _CALLS_OF_MODULE, {"name": name}, has_steps) for name in modules)
    of_function = (
        _few(store, function, _CALLS_OF_LINE, {"file": file, "line": line, "function": function}, has_steps)
        for file, line, function in functions
    )
    of_code = next(filter(None, chain(of_module, of_function)), None)
    of_op = _few(store, op, _CALLS_OF_OP, {"name": op}, has_steps)
    if of_code and of_op and of_code.around(of_op):
        of_op = None
    return LongCalls(of_code.name if of_code else None, tuple(one.sentence for one in (of_code, of_op) if one))


def _few(store: TraceStore, name: str, calls_sql: str, params: dict[str, object], has_steps: bool) -> _Few | None:
    """Return the few calls that take most of the time, or None if the time is spread over more calls."""
    rows = store.select(_LONG_CALLS.format(calls=calls_sql), params)
    if not rows or len(rows) > _FEW * rows[0]["calls"]:
        return None
    long = "the first" if [row["place"] for row in rows] == [1] else f"{len(rows):,}"
    counts = f"{long} of {rows[0]['calls']:,} calls{' a step' if has_steps else ''}"
    spans = sorted((ts, end) for row in rows for ts, end in row["spans"])
    return _Few(name, spans, f"{cut_name(name)} spends more than half of its time in {counts}.")
