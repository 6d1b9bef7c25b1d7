"""Each op with a twentieth of the device's work has a model, or says why it has none."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest

from perftool.model.efficiency import OpRate
from perftool.model.unmodelled import NO_MODEL, why_no_model
from perftool.store.trace_store import TraceStore

RECORDED = sorted(Path(os.environ.get("PERFTOOL_VERDICT_TRACES", "/nowhere")).glob("*.json.gz"))
_SHARE = 0.05


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_each_large_op_has_a_model_or_a_reason(path: Path) -> None:
    assert unexplained(path) == []


def unexplained(path: Path) -> list[str]:
    """Names of the ops and kernels with a twentieth of the work, over all shapes, that have neither."""
    with TraceStore() as store:
        store.add_trace(str(path))
        rows = store.rows("op_efficiency")
    columns = [field.name for field in fields(OpRate)]
    ops = [OpRate(**{name: row[name] for name in columns}) for row in rows]
    work = sum(op.kernel_ns for op in ops)
    unknown: dict[str, int] = {}
    for op in ops:
        if op.bytes is None and op.kind != "collective" and why_no_model(op) in ("", NO_MODEL):
            unknown[op.name] = unknown.get(op.name, 0) + op.kernel_ns
    return [name for name, ns in unknown.items() if ns > _SHARE * work]
