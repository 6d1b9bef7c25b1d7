"""Finds the op that launched each kernel in a trace recorded while device graphs were captured."""

from __future__ import annotations

import os

from perftool.errors import InputError
from perftool.model.records import CapturedKernel, LogReading
from perftool.store.readings import Reading
from perftool.store.trace_store import TraceStore

# Captured kernels do not run, so their launches may have no device work. On ROCm, the launch itself names the kernel.
# Only the first kernel of each op gets the op's inputs: an op may launch thousands of kernels, and its inputs may be
# 100 kB of text.
_KERNELS = """
WITH named AS (
    SELECT r.id, r.ts, r.parent, coalesce(d.name, arg(w.args, 'kernel')) AS kernel
    FROM _runtime AS r JOIN raw AS w ON w.rowid = r.id LEFT JOIN device_ops AS d ON d.launch = r.id AND d.valid
),
numbered AS (
    SELECT n.kernel, n.ts, n.id, o.id AS called, o.name AS op_name, dense_rank() OVER (ORDER BY o.ts, o.id) AS op,
           row_number() OVER (PARTITION BY o.id ORDER BY n.ts, n.id) = 1 AS is_first
    FROM named AS n JOIN ops AS o ON o.id = n.parent WHERE n.kernel IS NOT NULL
)
SELECT n.kernel, n.op, n.op_name, f.input_dims, f.input_types, f.concrete_inputs
FROM numbered AS n LEFT JOIN ops AS f ON f.id = CASE WHEN n.is_first THEN n.called END ORDER BY n.ts, n.id
"""


def read_capture(path: str) -> Reading:
    """Read the kernels of the trace at ``path`` with their ops. Raise InputError if the trace names no kernel."""
    with TraceStore.for_files([path]) as store:
        read = store.add_trace(path)
        store.build(["_runtime", "device_ops", "ops"])
        kernels = tuple(CapturedKernel(**row) for row in store.select(_KERNELS))
    if not kernels:
        raise InputError(f"{path}: no op in this trace launches a kernel whose name is recorded")
    return Reading(
        read.path,
        os.path.getsize(path) if os.path.exists(path) else read.bytes,
        LogReading(captured=kernels, kind="capture"),
    )
