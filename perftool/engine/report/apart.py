"""A sentence about the time in a recording before its first step or op, and after its last."""

from __future__ import annotations

from perftool.engine.rules.sources import mostly_in
from perftool.store.trace_store import TraceStore
from perftool.units import format_ns

# Stretches with a smaller share of the recording are not mentioned.
_WEIGHTY = 0.1
_STRETCHES = """
SELECT rank, work, before, recorded_ns, sum("end" - ts)::BIGINT AS ns,
       list({'ts': ts, 'end': "end"} ORDER BY ts) AS spans
FROM _apart_stretches WHERE rank = (SELECT min(rank) FROM windows)
-- A stretch shorter than a step may be part of a truncated step.
GROUP BY rank, work, before, recorded_ns, longest_ns HAVING ns > greatest($weighty * recorded_ns, longest_ns)
ORDER BY before DESC
"""
_PLACES = {
    ("step", True): "before the first complete step",
    ("step", False): "after the last complete step",
    ("loop", True): "before the repeated ops",
    ("loop", False): "after the repeated ops",
    ("op", True): "before the first op",
    ("op", False): "after the last op",
}


def apart_sentence(store: TraceStore) -> str:
    """Return a sentence about the time the first rank spends before its first step or op and after its last one, and
    about the user's function that takes most of that time. It is empty if that time is short, or shorter than a step.
    """
    store.build(["_apart_stretches", "windows"])
    clauses: list[str] = []
    recorded_ns = 0
    for row in store.select(_STRETCHES, {"weighty": _WEIGHTY}):
        recorded_ns = row["recorded_ns"]
        function = mostly_in(store, row["rank"], [(span["ts"], span["end"]) for span in row["spans"]])
        spent = f"{format_ns(row['ns'])} {'' if clauses else 'pass '}{_PLACES[row['work'], row['before']]}"
        clauses.append(f"{spent}, mostly in {function}" if function else spent)
    return f"Of the {format_ns(recorded_ns)} recorded, {', and '.join(clauses)}." if clauses else ""
