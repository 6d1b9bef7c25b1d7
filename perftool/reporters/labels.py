"""What people read where the program has a name: the metrics of the summary, and who bounds the step."""

from __future__ import annotations

from collections.abc import Sequence

from perftool.model.replayed import BoundShare
from perftool.model.report import Metric
from perftool.model.words import kind_label
from perftool.units import format_bytes, format_count, format_ns, format_ratio

METRIC_LABELS = {
    "device_busy_ratio": "device busy",
    "device_idle_ratio": "device idle",
    "kernel_busy_ratio": "kernels running",
    "mfu_ratio": "model FLOP/s utilisation (MFU)",
    "hfu_ratio": "hardware FLOP/s utilisation (HFU)",
    "roofline_ratio": "time at the device's best",
    "kernel_time_ms": "compute",
    "collective_time_ms": "collectives",
    "exposed_collective_ratio": "exposed collectives",
    "mme_time_ms": "MME busy (union)",
    "tpc_time_ms": "TPC busy (union)",
    "dma_time_ms": "DMA busy (union)",
    "mme_tpc_overlap_ms": "MME and TPC together",
    "partition_mme_ms": "partition: MME",
    "partition_tpc_ms": "partition: TPC without MME",
    "partition_dma_ms": "partition: DMA alone",
    "partition_idle_ms": "partition: idle",
    "mme_low_precision_ratio": "MME below 32 bit",
    "device_host_overlap_ratio": "host works while device busy",
    "dataloader_ratio": "waiting for data",
    "graph_build_ratio": "building graphs",
    "input_copy_ratio": "copying inputs",
    "compile_ratio": "compiling",
    "compilations": "compilations",
    "fallback_ops": "ops fallen back to the CPU",
    "syncs_per_step": "host waits per step",
    "peak_memory_bytes": "peak device memory",
}
# Only Gaudi has these, so nobody misses them elsewhere.
GAUDI_METRICS = {
    "mme_time_ms", "tpc_time_ms", "dma_time_ms", "mme_tpc_overlap_ms", "partition_mme_ms", "partition_tpc_ms",
    "partition_dma_ms", "partition_idle_ms", "mme_low_precision_ratio", "graph_build_ratio", "fallback_ops",
}  # fmt: skip
# Smaller shares of the step would fill the line with noise.
_NAMED = 0.005


def format_metric(metric: Metric) -> str:
    """The value of ``metric``, which must have one, with its unit."""
    assert metric.value is not None
    if metric.unit == "ratio":
        return format_ratio(metric.value)
    if metric.unit == "ms":
        return format_ns(metric.value * 1e6)
    return format_bytes(metric.value) if metric.unit == "bytes" else format_count(metric.value)


def bounds_text(bounds: Sequence[BoundShare]) -> str:
    """Who bounds the step, in shares of it: ``host 62.0 %, kernels 30.1 %``."""
    return ", ".join(f"{kind_label(b.kind)} {format_ratio(b.share)}" for b in bounds if b.share >= _NAMED)
