"""What takes a large part of the window while the device does not compute, whether or not a rule covers it."""

from __future__ import annotations

from collections.abc import Sequence

from perftool.model.report import Cause, Finding, Location
from perftool.model.rule import Rule
from perftool.store.trace_store import TraceStore

# A fifth of the window: what takes more must have a name in every report.
LARGE = 0.2

CLAUSES = {
    "start_up": "one-off calls of the start-up (context, modules, first launches) keep the device idle",
    "dataloader": "the device waits while the host waits for data",
    "compile": "the device waits while the host compiles",
    "fallback": "the device waits while ops run on the CPU instead",
    "collective": "the device waits while the host is inside calls of the process group",
    "sync": "the device stands idle while the host is inside a call that waits for it",
    "copy": "the device stands idle while the host is inside a copy call",
    "graph_build": "the device waits while the host builds graphs",
    "launch_latency": "work has been submitted and has not started",
    "queued": "work is queued on the device and none of it runs",
    "optimizer": "the device waits while the host runs the optimizer",
    "launch_call": "the device waits while the host is inside calls that submit work",
    "framework_op": "the device waits while the host runs framework ops",
    "python": "the device waits while the host runs Python",
    "autograd": "the device waits while the host is between backward functions",
    "between_ops": "the device waits while the host is between ops",
    "unknown": "the device stands idle and the host shows nothing",
    "exposed_collectives": "collectives run while the device computes nothing",
}
_CAUSES = """
WITH whole AS (SELECT sum(dur) AS ns, sum(steps) AS steps FROM windows),
idle AS (
    SELECT name, sum(total_ns) AS ns, arg_min({'ts': ts, 'dur': longest_ns}, (-longest_ns, rank, ts)) AS longest
    FROM _idle_totals GROUP BY name
    UNION ALL SELECT 'exposed_collectives', sum(exposed_ns), NULL FROM _rank_totals
)
SELECT i.name, (i.ns / w.ns)::DOUBLE AS share, (i.ns / w.steps)::BIGINT AS ns_per_step, i.longest
FROM idle AS i, whole AS w WHERE i.ns > $large * w.ns ORDER BY i.ns DESC, i.name
"""


def causes(store: TraceStore, findings: Sequence[Finding], rules: Sequence[Rule]) -> tuple[Cause, ...]:
    """The large causes, the largest first, each with the codes of the ``findings`` that account for it."""
    store.build(["windows", "_idle_totals", "_rank_totals"])
    explains = {rule.code: rule.explains for rule in rules}
    return tuple(
        Cause(
            name=row["name"],
            text=CLAUSES[row["name"]],
            share=row["share"],
            ns_per_step=row["ns_per_step"],
            codes=tuple(dict.fromkeys(found.code for found in findings if row["name"] in explains.get(found.code, ()))),
            longest=_place(row["longest"]),
        )
        for row in store.select(_CAUSES, {"large": LARGE})
    )


def _place(longest: dict[str, int] | None) -> Location | None:
    return Location(None, None, longest["ts"], longest["dur"]) if longest else None
