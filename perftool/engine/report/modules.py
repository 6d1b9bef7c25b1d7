"""The report section on the time spent in modules, and the annotations and ops with the most work."""

from __future__ import annotations

import re

from perftool.engine.report.causes import cut_name
from perftool.model.modules import ModuleTime, OpLoop, Part
from perftool.store.trace_store import TraceStore

# Only the first rank is shown, because the ranks of a run usually have the same modules.
_MODULES = """
SELECT * FROM modules WHERE rank = (SELECT min(rank) FROM modules WHERE depth > 0) ORDER BY depth = 0, path
"""

# The three annotations or ops with the most work; a program may have many small ones.
_PARTS = """
SELECT {column} AS name, share, backward FROM {table} WHERE rank = (SELECT min(rank) FROM {table})
ORDER BY share DESC, name LIMIT 3
"""


def modules(store: TraceStore) -> tuple[ModuleTime, ...]:
    """Return the modules of the first rank that has any, each after its parent. Work outside modules comes last."""
    store.build(["modules"])
    return tuple(ModuleTime(**row) for row in store.select(_MODULES))


def annotated_work(store: TraceStore) -> tuple[Part, ...]:
    """Return the program's annotations with the most work, on the first rank that has any, largest first."""
    return _parts(store, "_annotation_work", "annotation")


def called_ops(store: TraceStore) -> tuple[Part, ...]:
    """Return the ops with the most work among those that the program calls, on the first rank that has any, largest
    first.
    """
    return _parts(store, "_called_op_work", "op")


def _parts(store: TraceStore, table: str, column: str) -> tuple[Part, ...]:
    store.build([table])
    return tuple(Part(**row) for row in store.select(_PARTS.format(table=table, column=column)))


# The call that contains most of the time of the op $name on all ranks, and its shapes.
_ENCLOSING = """
SELECT call, sum(ns) AS ns, arg_max(dims, (ns, -rank)) AS dims, sum(sum(ns)) OVER () AS whole_ns
FROM _enclosing_calls WHERE name = $name GROUP BY call ORDER BY ns DESC, call LIMIT 1
"""
_FUNCTION = "autograd::engine::evaluate_function: "


def enclosing_call(store: TraceStore, op: str) -> str:
    """Return a clause that names the outermost op containing more than half of the CPU work of ``op``, with that outer
    op's most common shapes."""
    store.build(["_enclosing_calls"])
    rows = store.select(_ENCLOSING, {"name": op})
    if not rows or not rows[0]["call"] or 2 * rows[0]["ns"] <= rows[0]["whole_ns"]:
        return ""
    name, dims = rows[0]["call"].removeprefix(_FUNCTION), rows[0]["dims"]
    inside = "" if _says_no_more(name, op) else f"mostly inside {cut_name(name)}"
    return ", ".join(filter(None, (inside, f"on shapes such as {cut_name(dims)}" if dims and dims != "[]" else "")))


def _says_no_more(function: str, op: str) -> bool:
    """Whether the name of ``function`` adds nothing to the name of ``op``: it is the same op, or the backward pass of a
    similar one, such as AddmmBackward0 for aten::mm, or ConvolutionBackward0 for aten::convolution_backward.
    """
    differentiated = re.fullmatch(r"(\w+?)Backward\d*", function)
    if differentiated is None:
        return function == op
    plain = op.removeprefix("aten::").replace("_", "").removesuffix("backward")
    return plain in differentiated[1].lower() or differentiated[1].lower() in plain


def backward_passes(store: TraceStore) -> tuple[float, int] | None:
    """Return the mean number of backward passes in a series on the first rank that has any, and the number of such
    series.
    """
    store.build(["repeated_passes"])
    rows = store.select("SELECT passes, runs FROM repeated_passes ORDER BY rank LIMIT 1")
    return (rows[0]["passes"], rows[0]["runs"]) if rows else None


def op_loop(store: TraceStore) -> OpLoop | None:
    """Return the most time-consuming loop of ops on the first rank that has one."""
    store.build(["_op_loops"])
    rows = store.select("SELECT length, times, share, names FROM _op_loops ORDER BY rank LIMIT 1")
    return OpLoop(**rows[0]) if rows else None
