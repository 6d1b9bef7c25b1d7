"""The report section on the time that modules take, and the parts of the work that the program names."""

from __future__ import annotations

from perftool.model.modules import ModuleTime, Part
from perftool.store.trace_store import TraceStore

# Ranks of one run have the same modules, so the first rank represents all.
_MODULES = """
SELECT * FROM modules WHERE rank = (SELECT min(rank) FROM modules WHERE depth > 0) ORDER BY depth = 0, path
"""

# Work on small pieces of a recording has many annotations; the largest say enough.
_ANNOTATIONS = """
SELECT annotation AS name, share FROM _annotation_work WHERE rank = (SELECT min(rank) FROM _annotation_work)
ORDER BY share DESC, name LIMIT 3
"""


def modules(store: TraceStore) -> tuple[ModuleTime, ...]:
    """The modules of the first rank that recorded any, each after the module around it; work outside modules last."""
    store.build(["modules"])
    return tuple(ModuleTime(**row) for row in store.select(_MODULES))


def annotated_work(store: TraceStore) -> tuple[Part, ...]:
    """The annotations of the program with most of the work of the first rank that has any, largest first."""
    store.build(["_annotation_work"])
    return tuple(Part(row["name"], row["share"]) for row in store.select(_ANNOTATIONS))


# The device ops of one name, by the outermost op around them; autograd runs those of the backward pass.
_ENCLOSING = """
WITH outer_ops AS (SELECT o.track, o.name, o.ts, o."end" FROM ops AS o JOIN slices AS s USING (id) WHERE s.outermost),
work AS (
    SELECT d.dur, d.id, l.track, l.ts, i.input_dims FROM device_ops AS d JOIN launches AS l ON l.id = d.launch
    JOIN ops AS i ON i.id = d.op JOIN windows AS w ON w.rank = d.rank AND d.ts >= w.ts AND d.ts < w."end"
    WHERE d.valid AND d.name = $name
)
SELECT o.name, sum(w.dur)::BIGINT AS ns, arg_max(w.input_dims, (w.dur, -w.id))->>'$[0]' AS dims
FROM work AS w ASOF LEFT JOIN outer_ops AS o ON o.track = w.track AND w.ts >= o.ts
GROUP BY o.name ORDER BY ns DESC, o.name
"""
_FUNCTION = "autograd::engine::evaluate_function: "


def enclosing_call(store: TraceStore, op: str) -> str:
    """A clause on the outermost op that most of the work of ``op`` on a CPU is in, and the largest shape there."""
    rows = store.select(_ENCLOSING, {"name": op})
    if not rows or not rows[0]["name"] or 2 * rows[0]["ns"] <= sum(row["ns"] for row in rows):
        return ""
    name, dims = rows[0]["name"].removeprefix(_FUNCTION), rows[0]["dims"]
    shape = f", on shapes such as {dims}" if dims and dims != "[]" else ""
    # The backward functions of PyTorch's own ops end in a number and say no more than the op.
    return shape if name == op or name[-1:].isdigit() else f", mostly inside {name}{shape}"


# A backward pass ends where the program runs an op that records gradients again.
_BACKWARD_PASSES = """
WITH calls AS (
    SELECT o.rank, o.track, o.ts, o.id, starts_with(o.name, 'autograd::engine::evaluate_function') AS backward,
           coalesce(o.sequence >= 0, false) AS numbered
    FROM ops AS o JOIN slices AS s USING (id)
    JOIN windows AS w ON w.rank = o.rank AND o.ts >= w.host_ts AND o.ts < w.host_end WHERE s.outermost
),
passes AS (
    SELECT rank, track, backward,
           count_if(numbered AND NOT backward) OVER (PARTITION BY track ORDER BY ts, id) AS before
    FROM calls
)
SELECT count(DISTINCT (p.track, p.before)) / w.steps AS passes
FROM passes AS p JOIN windows AS w USING (rank) WHERE p.backward GROUP BY p.rank, w.steps ORDER BY p.rank LIMIT 1
"""


def backward_passes(store: TraceStore) -> float | None:
    """The number of backward passes in a step of the first rank that has any."""
    rows = store.select(_BACKWARD_PASSES)
    return rows[0]["passes"] if rows else None
