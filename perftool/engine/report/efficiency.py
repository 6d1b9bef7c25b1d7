"""The part of the report on what ops reached of what the device could do."""

from __future__ import annotations

from perftool.model.devices import known_devices
from perftool.model.efficiency import AssumedPeak, Efficiency, OpRate
from perftool.store.trace_store import TraceStore

EFFICIENCY_TABLES = ("_efficiency_top", "_efficiency_peaks", "_efficiency_totals")
_TOP = 60
# Work of which less than this is known does not stand for the rest.
_KNOWN = 0.5
# The same op on several ranks is one; means hide ranks that differ, and the table op_efficiency has them all.
_OPS = """
WITH merged AS (
    SELECT name, source, engine, kind, input_dims, input_types,
           sum(calls)::BIGINT AS calls, sum(kernel_ns)::BIGINT AS kernel_ns,
           CASE WHEN count(flops) = count(*) THEN sum(flops) END AS flops,
           CASE WHEN count(bytes) = count(*) THEN sum(bytes) END AS bytes,
           CASE WHEN count(best_ns) = count(*) THEN sum(best_ns) END AS best_ns,
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
SELECT device, dtype, unit, rate FROM _efficiency_peaks GROUP BY ALL ORDER BY sum(work_ns) DESC, device, dtype
"""
_TOTALS = """
SELECT coalesce(sum(work_ns), 0)::BIGINT AS work_ns, coalesce(sum(bounded_ns), 0)::BIGINT AS bounded_ns,
       sum(best_ns) AS best_ns,
       coalesce(sum(op_ns), 0)::BIGINT AS op_ns, coalesce(sum(shaped_ns), 0)::BIGINT AS shaped_ns,
       coalesce(sum(sized_ns), 0)::BIGINT AS sized_ns, coalesce(sum(graph_ns), 0)::BIGINT AS graph_ns
FROM _efficiency_totals
"""
NO_SHAPES = "Shapes are not recorded: record_shapes=True adds FLOP/s, bytes/s and the distance from the device's best."
UNKNOWN_DEVICE = (
    "devices.toml does not know the device by the name that the trace gives: rates without shares of its best."
)
IN_GRAPHS = (
    "Most kernels run in captured graphs, which have no shapes: --capture FILE joins the ops of a trace of the capture."
)
LITTLE_KNOWN = "Ops without a model take most of the time, so that no share speaks for the whole."


def efficiency(store: TraceStore) -> Efficiency | None:
    """What ops reached, or None where the input shows no work of a device."""
    store.build(list(EFFICIENCY_TABLES))
    (totals,) = store.select(_TOTALS)
    ops = tuple(OpRate(**row) for row in store.select(_OPS, {"top": _TOP}))
    if not ops:
        return None
    peaks = tuple(filter(None, (_peak(**row) for row in store.select(_PEAKS))))
    missing = _missing(totals, bool(totals["bounded_ns"]))
    return Efficiency(ops, peaks, totals["work_ns"], totals["bounded_ns"], totals["best_ns"], missing)


def _missing(totals: dict[str, int], bounded: bool) -> str:
    if totals["graph_ns"] > _KNOWN * totals["work_ns"]:
        return IN_GRAPHS
    if totals["op_ns"] and totals["shaped_ns"] < _KNOWN * totals["op_ns"]:
        return NO_SHAPES
    if totals["sized_ns"] and not bounded:
        return UNKNOWN_DEVICE
    return LITTLE_KNOWN if totals["bounded_ns"] < _KNOWN * totals["work_ns"] and bounded else ""


def _peak(device: str, dtype: str, unit: str, rate: float) -> AssumedPeak | None:
    for known in known_devices():
        for peak in known.peaks:
            if (known.name, peak.dtype, peak.unit, peak.rate) == (device, dtype, unit, rate):
                bandwidth = known.memory_bandwidth
                return AssumedPeak(device, dtype, unit, rate, bandwidth, peak.source, peak.estimate)
    return None
