"""A sentence about how much time of a run on the CPU goes to copies and fills."""

from __future__ import annotations

from collections.abc import Sequence

from perftool.engine.report.causes import cut_name
from perftool.engine.report.functions import place_text
from perftool.engine.rules.sources import Source, launching_lines, longest_function
from perftool.store.trace_store import TraceStore
from perftool.units import format_ratio

# The share of copies and fills in the time of the first rank, and the longest of them.
_MOVES = """
SELECT d.rank, sum(d.dur) / any_value(w."end" - w.ts) AS share,
       arg_min({'ts': d.ts, 'dur': d.dur}, (-d.dur, d.ts), $most) AS longest
FROM device_ops AS d JOIN op_kinds AS k ON k.name = d.op_name
JOIN windows AS w ON w.rank = d.rank AND d.ts >= w.ts AND d.ts < w."end"
WHERE d.valid AND k.kind IN ('copy', 'fill') AND d.rank = (SELECT min(rank) FROM windows) GROUP BY d.rank
"""
# Below this share of the time, there is no sentence.
_LARGE = 0.1
# A line or a function is named if it causes at least this share of the copies and fills.
_MAIN = 0.3
# Only this many of the longest copies and fills are traced to the functions that cause them.
_MOST_PLACED = 5000


def moves_sentence(store: TraceStore) -> str:
    """Return a sentence about the time of the first rank that goes to copies and fills. The result is empty if it is
    small.
    """
    store.build(["device_ops", "op_kinds", "windows"])
    moves = next(iter(store.select(_MOVES, {"most": _MOST_PLACED})), None)
    if moves is None or moves["share"] < _LARGE:
        return ""
    lines = launching_lines(store, moves["rank"], moves["longest"])
    return f"Copies and fills, which compute nothing, take {format_ratio(moves['share'])} of the time{_where(lines)}."


def _where(lines: Sequence[Source]) -> str:
    """Return a clause about the line, or else the function, that causes many of the copies and fills. The result is
    empty if none does.
    """
    if lines and lines[0]["file"] and lines[0]["share"] >= _MAIN:
        file, line, function = (lines[0][name] for name in ("file", "line", "function"))
        return f", {format_ratio(lines[0]['share'])} of it in {cut_name(function)} ({place_text(file, line)})"
    function, caused = longest_function((one["file"], one["function"], one["share"]) for one in lines)
    return f", {format_ratio(caused)} of it in {function}" if caused >= _MAIN else ""
