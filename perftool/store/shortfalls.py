"""Creates the table ``op_shortfalls``: ops that take much longer than the device needs, and the reasons."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

import duckdb

from perftool.model.inputs import ImportIssue
from perftool.model.shortfalls import Unexplained, attainable, generation_of, parts_of, shortfalls, tile_of
from perftool.op_costs.sizes import Sizes, sizes_of
from perftool.store.catalog import Table, catalog
from perftool.units import format_bytes, format_ns, format_ratio

# Starting and draining a kernel takes 2 to 5 us on current devices.
_LEAST_CALL_NS = 2000
# An op must take at least this many times the attainable time. Clocks and the order of calls cause smaller differences.
_CLEARLY = 1.1
_ENOUGH_CALLS = 10
_OTHER_SHAPES = "the peak itself, because the fix uses other shapes, whose attainable share is unknown"
_MOST_NUMBER = 2**62
_BITS = {"fp64": 64, "fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8}
_PLACEHOLDER = re.compile(r"\{(\w+)(?::(\w+))?\}")
_SHAPE = re.compile(r"\[\d")
_FORMATS: Mapping[str | None, Callable[[Any], str]] = {
    None: str, "percent": format_ratio, "time": format_ns, "bytes": format_bytes,
}  # fmt: skip


def judge_ops(connection: duckdb.DuckDBPyConnection) -> Sequence[tuple[int, ImportIssue]]:
    """Create the table ``op_shortfalls`` from ``_slow_ops``. Return no issues."""
    table = catalog()["op_shortfalls"]
    connection.execute(f"CREATE TABLE {table.definition}")
    cursor = connection.execute("SELECT * FROM _slow_ops")
    names = [column[0] for column in cursor.description or ()]
    rows = [row for values in cursor.fetchall() if (row := _judged(dict(zip(names, values, strict=True))))]
    _insert(connection, table, rows)
    if rows:
        reasons = connection.execute(f"SELECT {holding_sql()} FROM op_shortfalls ORDER BY rowid").fetchall()
        explained = [row | _explained(row, found) for row, (found,) in zip(rows, reasons, strict=True)]
        connection.execute("DELETE FROM op_shortfalls")
        _insert(connection, table, explained)
    return []


def holding_sql() -> str:
    """Return SQL that lists the names of the reasons that apply to a row of ``op_shortfalls``, in the order of
    shortfalls.toml."""
    cases = ", ".join(f"CASE WHEN {reason.condition} THEN '{reason.name}' END" for reason in shortfalls().reason)
    return f"list_filter([{cases}], lambda name: name IS NOT NULL)"


def _insert(connection: duckdb.DuckDBPyConnection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        values = [[row.get(column.name) for row in rows] for column in table.columns]
        marks = ", ".join(f"unnest(?::{column.type}[])" for column in table.columns)
        connection.execute(f'INSERT INTO "{table.name}" SELECT {marks}', values)


def _explained(row: Mapping[str, Any], found: Sequence[str]) -> dict[str, Any]:
    """Return the columns with the reasons ``found`` for ``row``, and with the messages of the first reason."""
    reason = next((reason for reason in shortfalls().reason if reason.name in found[:1]), None)
    if reason is None:
        fixes = {"short_fix": rest.short_fix, "fix": rest.fix} if (rest := _unexplained(row["bound"])) else {}
        return {"reasons": [], **fixes}
    texts = {name: _filled(getattr(reason, name), row) for name in ("because", "short_fix", "fix")}
    return {"reason": reason.name, "reasons": list(found), **texts, **(_at_peak(row) if reason.reshapes else {})}


def _at_peak(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attainable time of ``row`` if its operations can run on other shapes: their time at the device's
    peak.
    """
    return {
        "attainable_ns": row["best_ns"], "lost_ns": row["kernel_ns"] - row["best_ns"],
        "attainable_ratio": 1.0, "attainable_source": _OTHER_SHAPES,
    }  # fmt: skip


def _unexplained(bound: str) -> Unexplained | None:
    return next((rest for rest in shortfalls().unexplained if rest.bound == bound), None)


def _filled(template: str, row: Mapping[str, Any]) -> str:
    return _PLACEHOLDER.sub(lambda found: _FORMATS[found[2]](row[found[1]]), template)


def _judged(op: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the row for ``op``, or None if the device cannot run it much faster, or if the attainable rate is
    unknown.
    """
    by_compute = op["compute_ns"] > op["memory_ns"]
    compute = attainable(op["device"], op["kind"] or "", op["dtype"])
    memory = attainable(op["device"], "memory")
    if memory is None:
        return None
    reached = compute if by_compute and compute else memory
    computing_ns = op["compute_ns"] / (compute.share if compute else 1)
    attainable_ns = max(computing_ns, op["memory_ns"] / memory.share, op["calls"] * _LEAST_CALL_NS)
    if op["kernel_ns"] < _CLEARLY * attainable_ns:
        return None
    found = sizes_of(
        op["name"], op["input_dims"], op["input_types"], op["concrete_inputs"], op["outer_dims"],
        around=op["around"], grids=op["grids"],
    )  # fmt: skip
    sizes = Sizes(**_small(vars(found)))
    call_ns = op["kernel_ns"] / op["calls"]
    return {
        **op, **vars(sizes), **_small(_launched(op, sizes)),
        "shape": shape_text(sizes, op["input_dims"]),
        "best_ns": round(max(op["compute_ns"], op["memory_ns"])), "attainable_ns": round(attainable_ns),
        "attainable_ratio": reached.share, "attainable_source": reached.source,
        "lost_ns": round(op["kernel_ns"] - attainable_ns), "call_ns": round(call_ns),
        "each_ns": round(op["kernel_ns"] / max(op["kernels"], 1)),
        "spread": op["slowest_ns"] / max(op["fastest_ns"], 1) if op["calls"] >= _ENOUGH_CALLS else None,
        "written_bytes": _written(op),
        "intensity": round(op["flops"] / max(op["bytes"], 1)) if op["flops"] else None,
        "kernel_capability": generation_of(op["kernel"]), "layout_ratio": op["layout_ns"] / max(op["kernel_ns"], 1),
        "bits": _BITS.get(op["dtype"] or ""),
    }  # fmt: skip


def _small(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``sizes``, with None in place of numbers that are too large for a column."""
    return {name: None if isinstance(size, int) and size > _MOST_NUMBER else size for name, size in sizes.items()}


def _launched(op: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Return the columns that show how the kernel divides its work: grid, tile, and how well they fill the compute
    units.
    """
    try:
        args = json.loads(op["args"] or "{}")
    except (ValueError, RecursionError):
        args = {}
    args = args if isinstance(args, dict) else {}
    threads, grid = _count(args.get("block")), _count(args.get("grid"))
    tile = tile_of(op["kernel"])
    blocks = grid
    if grid and threads and tile and tile[0].counts_threads and grid % threads == 0:
        blocks = grid // threads
    tiles, padding = blocks, None
    if op["kind"] == "product" and tile and sizes.m and sizes.n:
        tiles, padding = _tiles(sizes, tile[1], tile[2], parts_of(op["kernel"]), blocks)
    units = op["units"]
    waves = ceil(tiles / units) if tiles and units else None
    occupancy = args.get("est. achieved occupancy %")
    return {
        "blocks": blocks, "threads": threads, "registers": _number(args.get("registers per thread")),
        "shared_bytes": _number(args.get("shared memory")),
        "occupancy": occupancy / 100 if isinstance(occupancy, (int, float)) and 0 < occupancy <= 100 else None,
        "tile_m": tile[1] if tile else None, "tile_n": tile[2] if tile else None, "tiles": tiles, "waves": waves,
        "wave_ratio": tiles / (waves * units) if tiles and waves and tile else None,
        "idle_units": max(units - tiles, 0) if tiles and units else None, "padding_ratio": padding,
    }  # fmt: skip


def _written(op: Mapping[str, Any]) -> int | None:
    """Return the minimum number of bytes that a call must write, given the total that it reads and writes. The result
    of a pointwise op is at least as large as each operand."""
    if op["kind"] == "pointwise":
        parts = 1 + len(_SHAPE.findall(op["input_dims"]))
    else:
        parts = {"fill": 1, "copy": 2}.get(op["kind"], 0)
    return round(op["bytes"] / op["calls"] / parts) if parts else None


def _tiles(sizes: Sizes, rows: int, columns: int, parts: int, blocks: int | None) -> tuple[int, float]:
    """Return the number of tiles that cover the result, and the ratio of the area that they cover to the area of the
    result.

    Column-major libraries swap rows and columns, so use the order that matches the grid or, failing that, the order
    that needs fewer tiles. Each of the ``parts`` of the inner dimension has its own tiles. If there are more blocks
    than tiles, the kernel splits the inner dimension further.
    """
    assert sizes.m is not None
    assert sizes.n is not None
    batch = (sizes.batch or 1) * parts
    counts = [
        (batch * ceil(sizes.m / tall) * ceil(sizes.n / wide), tall, wide)
        for tall, wide in ((rows, columns), (columns, rows))
    ]
    tiles, tall, wide = next((found for found in counts if found[0] == blocks), min(counts))
    padding = ceil(sizes.m / tall) * tall * ceil(sizes.n / wide) * wide / (sizes.m * sizes.n)
    return max(tiles, blocks or 0), padding


def shape_text(sizes: Sizes, input_dims: str) -> str:
    """Describe ``sizes`` briefly. Return the shapes ``input_dims`` if no size is known."""
    if sizes.heads is not None:
        return f"{sizes.batch} x {sizes.heads} heads, {sizes.queries} x {sizes.keys}, head size {sizes.head_size}"
    if sizes.channels is not None:
        parts = [f"{sizes.channels} channels, {sizes.m} positions x {sizes.n} filters of {sizes.k}"]
        parts += [f"{sizes.groups} groups"] if sizes.groups and sizes.groups > 1 else []
        return ", ".join(parts)
    if sizes.m is not None:
        text = f"{sizes.m} x {sizes.k} x {sizes.n}"
        if sizes.groups:
            return f"{sizes.groups} groups of {text}"
        return text if sizes.batch in (None, 1) else f"{sizes.batch} x {text}"
    # The look-behind lets a match begin only at the first of several empty shapes, so long strings take linear time.
    text = re.sub(r"(?<!,\[\])(?:,\[\])+(?=\]$)", "", input_dims.replace(" ", ""))
    return text if len(text) <= _LONGEST_SHAPE else f"{text[: _LONGEST_SHAPE - 1]}…"


_LONGEST_SHAPE = 60


def _count(sizes: object) -> int | None:
    """Return the number of blocks in a grid, or of threads in a block, from its ``sizes`` in up to three dimensions, or
    None if they are invalid."""
    if not isinstance(sizes, list) or not sizes or not all(type(size) is int and 0 < size < 2**31 for size in sizes):
        return None
    product = 1
    for size in sizes[:3]:
        product *= size
    return product if product < _MOST_NUMBER else None


def _number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < _MOST_NUMBER else None
