"""The report section on the rates that ops reach, compared with the peaks of the device."""

from __future__ import annotations

from perftool.model.efficiency import AssumedPeak, Efficiency, OpRate
from perftool.store.trace_store import TraceStore

EFFICIENCY_TABLES = (
    "_efficiency_top",
    "_efficiency_ops",
    "_efficiency_peaks",
    "_efficiency_totals",
    "device_facts",
    "machines",
    "machine_loads",
)
# A report lists this many ops: those with the longest kernels.
MOST_OPS = 60
# If a number is known for less than this share of the work, it is not representative.
KNOWN = 0.5
# The ops of all ranks together; the table op_efficiency lists each rank. Numbers are added in a fixed order, because a
# floating-point sum depends on the order.
_OPS = """
WITH merged AS (
    SELECT name, source, engine, kind, input_dims, input_types,
           sum(calls)::BIGINT AS calls, sum(kernel_ns)::BIGINT AS kernel_ns,
           CASE WHEN count(flops) = count(*) THEN sum(flops ORDER BY flops) END AS flops,
           CASE WHEN count(bytes) = count(*) THEN sum(bytes ORDER BY bytes) END AS bytes,
           CASE WHEN count(best_ns) = count(*) THEN sum(best_ns ORDER BY best_ns) END AS best_ns,
           CASE WHEN count(DISTINCT bound) = 1 THEN min(bound) END AS bound
    FROM _efficiency_top GROUP BY ALL
)
SELECT name, source, engine, kind, input_dims, input_types, calls, kernel_ns,
       flops / calls AS flops, bytes / calls AS bytes,
       flops / nullif(kernel_ns, 0) / 1e3 AS tflops, bytes / nullif(kernel_ns, 0) / 1e3 AS tbytes, bound,
       best_ns / nullif(kernel_ns, 0) AS roofline_ratio
FROM merged ORDER BY kernel_ns DESC, name, source, engine, input_dims, input_types LIMIT $top
"""
_PEAKS = """
SELECT p.device, p.dtype, p.unit, p.rate, b.value AS bandwidth, min(f.source) AS source, bool_or(f.estimate) AS estimate
FROM _efficiency_peaks AS p
JOIN device_facts AS f ON f.device = p.device AND f.fact = p.unit || ' peak ' || p.dtype AND f.value = p.rate
JOIN device_facts AS b ON b.device = p.device AND b.fact = 'memory_bandwidth'
GROUP BY ALL ORDER BY sum(p.work_ns) DESC, p.device, p.dtype
"""
_TOTALS = """
SELECT coalesce(sum(work_ns), 0)::BIGINT AS work_ns, coalesce(sum(bounded_ns), 0)::BIGINT AS bounded_ns,
       sum(best_ns ORDER BY best_ns) AS best_ns,
       coalesce(sum(op_ns), 0)::BIGINT AS op_ns, coalesce(sum(shaped_ns), 0)::BIGINT AS shaped_ns,
       coalesce(sum(sized_ns), 0)::BIGINT AS sized_ns, coalesce(sum(graph_ns), 0)::BIGINT AS graph_ns
FROM _efficiency_totals
"""
# The mean rate of an op that the recorder called again, compared with the peak of matmuls, if most of its time was in
# calls with the same shapes.
_REPEATED = """
SELECT sum(e.flops * e.calls ORDER BY e.input_dims)
       / sum(s.fp32_ns * e.calls * f.value / 1e9 ORDER BY e.input_dims) AS reached
FROM (FROM op_efficiency WHERE name = $name AND flops IS NOT NULL) AS e
JOIN op_speeds AS s ON s.rank = e.rank AND s.name = e.name AND s.input_dims = replace(e.input_dims, ' ', '')
JOIN machines AS m ON m.rank = e.rank JOIN device_facts AS f ON f.device = m.device AND f.fact = 'matrix peak fp32'
WHERE e.kind IN ('product', 'convolution')
HAVING sum(e.kernel_ns) > $known * (SELECT sum(kernel_ns) FROM op_efficiency WHERE name = $name)
"""
NO_SHAPES = "Shapes were not recorded; record_shapes=True adds FLOP/s, bytes/s and the distance from the peak."
UNKNOWN_DEVICE = (
    "devices.toml does not list the device named in the trace, so rates are not compared with its peak. "
    "--device NAME selects one."
)
UNKNOWN_CPU = (
    "The recording does not contain the peak rates of its machine, so ops are not compared with them. `record` and "
    "`perftool.profile` measure them if cores are free."
)
BUSY_CPU = (
    "The peak rates of this machine were measured while its cores were busy, so ops are not compared with them. Record "
    "again on free cores."
)
OVERLOADED_CPU = (
    "The machine was overloaded, so the times of ops include waits for a core, and ops are not compared with its peak."
)
IN_GRAPHS = "Most kernels run in captured graphs, which have no shapes: --capture FILE adds the ops of the capture."
IN_GRAPHS_OF_A_STRANGER = (
    f"{IN_GRAPHS} Their peak rates also depend on the device, which the trace does not name: pass --device NAME."
)
LITTLE_KNOWN = "Ops without a cost model take most of the time, so there is no figure for the whole run."


def efficiency(store: TraceStore, device: str | None) -> Efficiency | None:
    """Return the rates that ops achieve, or None if the input shows no device work."""
    store.build(list(EFFICIENCY_TABLES))
    (totals,) = store.select(_TOTALS)
    ops = tuple(OpRate(**row) for row in store.select(_OPS, {"top": MOST_OPS}))
    if not ops:
        return None
    peaks = tuple(AssumedPeak(**row) for row in store.select(_PEAKS))
    missing = _missing(store, totals, bool(totals["bounded_ns"]), device)
    return Efficiency(ops, peaks, totals["work_ns"], totals["bounded_ns"], totals["best_ns"], missing)


def repeated_rate(store: TraceStore, name: str) -> float | None:
    """Return the share of the CPU's peak that the matmul or convolution ``name`` reached when the recorder called it
    again, or None if the recorder did not call it. Unlike the times in the recording, this rate was measured on a quiet
    core."""
    store.build(["op_efficiency", "op_speeds", "machines", "device_facts"])
    rows = store.select(_REPEATED, {"name": name, "known": KNOWN})
    return rows[0]["reached"] if rows else None


def _missing(store: TraceStore, totals: dict[str, int], bounded: bool, device: str | None) -> str:
    if totals["graph_ns"] > KNOWN * totals["work_ns"]:
        return IN_GRAPHS_OF_A_STRANGER if totals["sized_ns"] and not bounded else IN_GRAPHS
    if totals["op_ns"] and totals["shaped_ns"] < KNOWN * totals["op_ns"]:
        return NO_SHAPES
    if totals["sized_ns"] and not bounded:
        if device != "cpu":
            return UNKNOWN_DEVICE
        if not store.select("SELECT 1 FROM machines WHERE device IS NOT NULL LIMIT 1"):
            return UNKNOWN_CPU
        return OVERLOADED_CPU if store.select("SELECT 1 FROM machine_loads WHERE overloaded LIMIT 1") else BUSY_CPU
    return LITTLE_KNOWN if totals["bounded_ns"] < KNOWN * totals["work_ns"] and bounded else ""
