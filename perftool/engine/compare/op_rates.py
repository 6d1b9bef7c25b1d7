"""Matches the ops of two runs by what they compute, across devices and libraries."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perftool.model.diff import RateChange
from perftool.model.efficiency import OpRate

# The same op has different names in vendor libraries and in device-specific variants of the framework.
_LIBRARY = re.compile(r"^aten::_?(cudnn|miopen|mkldnn|native|thnn|slow)_|^aten::")
_ATTENTION = re.compile(r"^_?(scaled_dot_product_)?(flash|efficient|cudnn)?_?attention(_forward)?$")
_MOST = 200


def rate_changes(base: Sequence[OpRate], new: Sequence[OpRate]) -> tuple[RateChange, ...]:
    """Match the ops of both sides: by name, shapes and dtypes where all three agree; otherwise by name, with the shapes
    merged.

    Kernels without an op are left out, because their names differ between devices. The largest change in time comes
    first.
    """
    before, after = _launched(base), _launched(new)
    exact = _paired(_by_shapes(before), _by_shapes(after))
    matched = {op_name(change.base) for change in exact}
    changes = [*exact, *_paired(_by_name(before, matched), _by_name(after, matched))]
    return tuple(sorted(changes, key=lambda change: (-abs(change.delta_ns), change.name, change.shapes))[:_MOST])


def _launched(ops: Sequence[OpRate]) -> list[OpRate]:
    return [op for op in ops if op.source == "op" and op.kind != "collective"]


def _by_shapes(ops: Sequence[OpRate]) -> dict[object, OpRate]:
    return {_key(op): op for op in _merged(ops, shapes=True)}


def _by_name(ops: Sequence[OpRate], matched: set[str]) -> dict[object, OpRate]:
    """Return the ops merged by name, without the names in ``matched``."""
    return {op_name(op): op for op in _merged(ops, shapes=False) if op_name(op) not in matched}


def _paired(base: dict[object, OpRate], new: dict[object, OpRate]) -> list[RateChange]:
    return [RateChange(op_name(one), one.input_dims or "", one, new[key]) for key, one in base.items() if key in new]


def _key(op: OpRate) -> object:
    return op_name(op), op.input_dims, op.input_types


def op_name(op: OpRate) -> str:
    """Return the name of an op without the library or device that ran it."""
    name = _LIBRARY.sub("", op.name)
    return "attention" if _ATTENTION.match(name) else name


def _merged(ops: Sequence[OpRate], shapes: bool) -> list[OpRate]:
    """Merge ops with the same name, and combine their rates. With ``shapes``, only ops with the same shapes and dtypes
    are merged, and ops without recorded shapes are left out."""
    groups: dict[object, list[OpRate]] = {}
    for op in ops:
        if not shapes or op.input_dims:
            groups.setdefault(_key(op) if shapes else op_name(op), []).append(op)
    return [_merged_rate(group, shapes) for group in groups.values()]


def _merged_rate(ops: Sequence[OpRate], shapes: bool) -> OpRate:
    first, ns = ops[0], sum(op.kernel_ns for op in ops)
    calls = sum(op.calls for op in ops)
    flops = _sum([op.flops and op.flops * op.calls for op in ops])
    size = _sum([op.bytes and op.bytes * op.calls for op in ops])
    best = _sum([op.roofline_ratio and op.roofline_ratio * op.kernel_ns for op in ops])
    bounds = {op.bound for op in ops}
    return OpRate(
        first.name, first.source, first.engine, first.kind, first.input_dims if shapes else None,
        first.input_types if shapes else None, calls, flops and flops / max(calls, 1), size and size / max(calls, 1),
        ns,
        flops / ns / 1e3 if flops and ns else None, size / ns / 1e3 if size and ns else None,
        bounds.pop() if len(bounds) == 1 else None, best / ns if best and ns else None,
    )  # fmt: skip


def _sum(values: Sequence[float | None]) -> float | None:
    """Return the sum, or None if any value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
