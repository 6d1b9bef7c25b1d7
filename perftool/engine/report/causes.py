"""The main reasons why the device does not compute, whether or not a rule covers them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from perftool.model.cut_text import cut_text
from perftool.model.report import Cause, Finding, Location
from perftool.model.rule import Rule
from perftool.store.trace_store import TraceStore
from perftool.units import format_ns, format_ratio, format_times, quantity

# The verdict lists each cause that takes a larger share of the window.
LARGE = 0.2

CLAUSES = {
    "start_up": "one-off start-up calls (context, modules, first launches) keep the device idle",
    "dataloader": "the device waits while the host waits for data",
    "compile": "the device waits while the host compiles",
    "fallback": "the device waits while ops run on the CPU instead",
    "collective": "the device waits while the host is inside process group calls",
    "sync": "the device is idle while the host is inside a call that waits for it",
    "copy": "the device is idle while the host is inside a copy call",
    "graph_build": "the device waits while the host builds graphs",
    "launch_latency": "work has been submitted but has not started",
    "queued": "work is queued on the device, but none of it runs",
    "optimizer": "the device waits while the host runs the optimizer",
    "launch_call": "the device waits while the host is inside calls that submit work",
    "framework_op": "the device waits while the host runs framework ops",
    "python": "the device waits while the host runs Python",
    "queue": "the device waits while the host waits on a queue for the next batch or message",
    "pipe": "the device waits while the host waits for a pipe or a socket",
    "lock": "the device waits while the host waits for a Python lock",
    "sleep": "the device waits while the host sleeps",
    "checkpoint": "the device waits while the host saves a checkpoint",
    "blocked": "no op computes while Python mostly waits for a lock, a file, or another thread or process",
    "no_core": "no substantial op runs while the thread runs Python or small ops, or waits for a core",
    "capture": "the device cannot work while graphs are captured",
    "profiler": "the device waits while the profiler works",
    "autograd": "the device waits while the host is between backward functions",
    "between_ops": "the device is idle between ops, and the recording does not show what the host does in that time",
    "unknown": "the device is idle, and the recording does not show what the host does",
    "exposed_collectives": "collectives run while the device computes nothing",
}
# Clauses for runs on the CPU, which have no separate host.
_ON_CPU = {
    "framework_op": "no op computes while the program is in ops that allocate or describe tensors, or call other ops",
    "collective": "no op computes while the program is in collectives or waits for them",
    "optimizer": "no op computes while the optimizer goes from one parameter to the next",
    "between_ops": "no op runs, and the recording does not show what the program does between its ops",
    "unknown": "no op runs, and the recording does not show why",
    "start_up": "no op computes during one-off start-up calls",
}
# If a cause explains less than this share of the wait for the host, the clause states the share.
_NEARLY_ALL = 0.9
# The longest op name in a sentence, in characters.
_LONGEST_NAME = 60
_WAITING = re.compile("the device (?:waits|is idle) while the host")
_NEEDS = (
    "windows", "steps", "_idle_totals", "_idle_annotations", "_idle_ops", "_gap_neighbours", "_rank_totals", "ops",
)  # fmt: skip
_CAUSES = """
WITH whole AS (SELECT sum(dur) AS ns, sum(steps) AS steps FROM windows),
idle AS (
    SELECT t.name, sum(t.total_ns) AS ns,
           arg_min({
               'ts': t.ts, 'dur': t.longest_ns, 'before': n.before, 'after': n.after
           }, (-t.longest_ns, t.rank, t.ts)) AS longest
    FROM _idle_totals AS t LEFT JOIN _gap_neighbours AS n ON n.rank = t.rank AND n.cause = t.name GROUP BY t.name
    UNION ALL SELECT 'exposed_collectives', sum(exposed_ns), NULL FROM _rank_totals
),
annotated AS (
    SELECT cause, arg_max(annotation, (ns, annotation)) AS name, max(ns) AS ns FROM (
        SELECT cause, annotation, sum(ns) AS ns FROM _idle_annotations GROUP BY cause, annotation
    ) GROUP BY cause
),
pairs AS (
    SELECT cause, arg_max({'before': pair_before, 'after': pair_after, 'times': times, 'ns': ns},
                          (ns, pair_before, pair_after)) AS pair, max(ns) AS ns
    FROM (
        SELECT cause, pair_before, pair_after, sum(pair_times) AS times, sum(pair_ns) AS ns FROM _gap_neighbours
        WHERE pair_times > 1 GROUP BY cause, pair_before, pair_after
    ) GROUP BY cause
),
counted AS (
    SELECT count(*) AS ops
    FROM ops AS o JOIN windows AS t ON t.rank = o.rank AND o.ts >= t.host_ts AND o.ts < t.host_end
),
in_ops AS (
    SELECT cause, arg_max({'name': op, 'calls': calls}, (ns, op)) AS op, max(ns) AS ns FROM (
        SELECT cause, op, sum(ns) AS ns, sum(calls) AS calls FROM _idle_ops GROUP BY cause, op
    ) GROUP BY cause
)
SELECT i.name, n.ops / w.steps AS ops, (i.ns / w.ns)::DOUBLE AS share, (i.ns / w.steps)::BIGINT AS ns_per_step,
       i.longest,
       CASE WHEN a.ns > 0.5 * i.ns THEN a.name END AS within,
       CASE WHEN o.ns > 0.5 * i.ns THEN o.op.name END AS op, (o.op.calls / w.steps)::BIGINT AS calls,
       EXISTS (FROM steps WHERE step IS NOT NULL) AS stepped, CASE WHEN p.ns > 0.3 * i.ns THEN p.pair END AS pair
FROM whole AS w CROSS JOIN counted AS n CROSS JOIN idle AS i LEFT JOIN annotated AS a ON a.cause = i.name
LEFT JOIN in_ops AS o ON o.cause = i.name LEFT JOIN pairs AS p ON p.cause = i.name
WHERE i.ns > $large * w.ns ORDER BY i.ns DESC, i.name
"""


def clause_of(cause: str, device: str | None, ratio: float | None = None) -> str | None:
    """Return a clause about ``cause`` for this type of ``device``, or None if the cause is unknown.

    ``ratio`` is the share of the host-bound idle time that ``cause`` explains.
    """
    clause = CLAUSES.get(cause)
    if clause is None:
        return None
    if device != "cpu" and ratio is not None and ratio < _NEARLY_ALL:
        return _WAITING.sub(f"the device waits for the host, {format_ratio(ratio)} of that time while the host", clause)
    if device != "cpu":
        return clause
    return _ON_CPU.get(cause) or _WAITING.sub("no op computes while the program", clause)


def causes(
    store: TraceStore, findings: Sequence[Finding], rules: Sequence[Rule], device: str | None
) -> tuple[Cause, ...]:
    """Return the main causes of lost time, largest first, each with the codes of the ``findings`` that explain it."""
    store.build(_NEEDS)
    explains = {rule.code: rule.explains for rule in rules}
    return tuple(
        Cause(
            name=row["name"],
            text=(clause_of(row["name"], device) or row["name"]) + _mostly_in(row) + _counted(row, device),
            share=row["share"],
            ns_per_step=row["ns_per_step"],
            codes=tuple(dict.fromkeys(found.code for found in findings if row["name"] in explains.get(found.code, ()))),
            longest=_place(row["longest"], named=row["pair"] is None),
            within=row["within"],
        )
        for row in store.select(_CAUSES, {"large": LARGE})
    )


def cut_name(name: str) -> str:
    """Shorten ``name`` for a sentence."""
    return cut_text(name, _LONGEST_NAME)


def _counted(row: dict[str, Any], device: str | None) -> str:
    """Return a clause about the number of ops, if the cause is op overhead on a CPU and no single op accounts for most
    of it."""
    if row["name"] != "framework_op" or device != "cpu" or _mostly_in(row):
        return ""
    ops = quantity(round(row["ops"]), "op", "ops")
    return f" ({ops}{' a step' if row['stepped'] else ''}: larger batches or fewer ops reduce this)"


def _mostly_in(row: dict[str, Any]) -> str:
    """Return a clause about where most of a cause's time is spent: in one op, or between two ops. The result is empty
    if that is unknown.
    """
    if pair := row["pair"]:
        between = f"{cut_name(pair['before'])} and {cut_name(pair['after'])}"
        return f", much of it between {between} ({format_times(pair['times'])}, {format_ns(pair['ns'])})"
    if not row["op"] or not row["calls"]:
        return ""
    calls = f"{quantity(row['calls'], 'call', 'calls')}{' a step' if row['stepped'] else ''}"
    return f", mostly in {cut_name(row['op'])} ({calls})"


def _place(longest: dict[str, Any] | None, *, named: bool) -> Location | None:
    """Return the place of the ``longest`` stretch. It is named after the ops before and after it if they are known and
    ``named`` is set."""
    if longest is None:
        return None
    known = named and longest["before"] and longest["after"]
    name = f"between {cut_name(longest['before'])} and {cut_name(longest['after'])}" if known else None
    return Location(None, None, longest["ts"], longest["dur"], name)
