"""Costs of host calls, compilations, kernels and copies on the simulated device."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import tomli

from perftool.errors import PerfToolError
from perftool.model.devices import DeviceFacts, known_devices
from perftool.units import NS_PER_MS, NS_PER_S, NS_PER_US

_FILE = Path(__file__).parent / "costs.toml"
DEVICE_NAMES = {"gaudi": "GAUDI", "gaudi2": "GAUDI2", "gaudi3": "GAUDI3"}
# Only Gaudi 3's vector rate is published; the others' rates are scaled by their number of TPCs.
_VECTOR_DEVICE = "GAUDI3"


@dataclass(frozen=True)
class Costs:
    """The constants of ``costs.toml``. Each field is named GROUP_NAME; the name includes the unit."""

    host_op_us: float
    host_view_us: float
    host_plain_op_us: float
    host_bytes_per_us: float
    host_call_us: float
    host_fused_op_us: float
    graph_build_us: float
    graph_build_per_op_us: float
    graph_compile_ms: float
    graph_compile_per_op_ms: float
    graph_eager_compile_ms: float
    graph_launch_us: float
    graph_replay_us: float
    device_matrix_share: float
    device_memory_share: float
    device_kernel_us: float
    device_recipe_gap_us: float
    device_start_us: float
    copies_call_us: float
    copies_setup_us: float
    copies_link_share: float
    copies_pageable_bytes_per_us: float
    copies_wake_us: float
    links_setup_us: float
    links_share: float
    loader_start_ms: float
    loader_receive_us: float


@cache
def default_costs() -> Costs:
    """Return the constants of ``costs.toml``."""
    groups: dict[str, dict[str, dict[str, Any]]] = tomli.loads(_FILE.read_text(encoding="utf-8"))
    flat = {f"{group}_{name}": entry["value"] for group, entries in groups.items() for name, entry in entries.items()}
    return Costs(**{field.name: float(flat.pop(field.name)) for field in fields(Costs)}, **flat)


def us(microseconds: float) -> int:
    """Convert microseconds to whole nanoseconds."""
    return round(microseconds * NS_PER_US)


def ms(milliseconds: float) -> int:
    """Convert milliseconds to whole nanoseconds."""
    return round(milliseconds * NS_PER_MS)


@dataclass(frozen=True)
class Roofline:
    """Computes how long an op takes on a device, from its arithmetic and the bytes it moves."""

    facts: DeviceFacts
    costs: Costs

    def matrix_rate(self, dtype: str) -> float:
        """Return the matrix engine's FLOP/s for ``dtype`` (``bf16``, ``float32``, ...). Other types run at the FP32
        rate.
        """
        peaks = {peak.dtype: peak.rate for peak in self.facts.peaks if peak.unit == "matrix"}
        if dtype in ("bf16", "float16"):
            rate = peaks["bf16"]
        elif "float8" in dtype:
            rate = peaks.get("fp8", peaks["bf16"])
        else:
            rate = peaks.get("fp32", peaks["bf16"] / 4)
        return rate * self.costs.device_matrix_share

    def vector_rate(self) -> float:
        """Return the elements per second of the vector engine."""
        reference = next(device for device in known_devices() if device.name == _VECTOR_DEVICE)
        rate = next(peak.rate for peak in reference.peaks if peak.unit == "vector")
        return rate * self.facts.engines["TPC"] / reference.engines["TPC"]

    def matrix_ns(self, flops: float, moved: float, dtype: str) -> int:
        """Return the time of a matmul of ``flops`` that moves ``moved`` bytes."""
        return self._length(flops / self.matrix_rate(dtype), moved)

    def vector_ns(self, elements: float, moved: float) -> int:
        """Return the time of an elementwise kernel or reduction over ``elements``."""
        return self._length(elements / self.vector_rate(), moved)

    def transfer_ns(self, size: int) -> int:
        """Return the time of a copy of ``size`` bytes over PCIe."""
        rate = self.facts.pcie_bandwidth * self.costs.copies_link_share
        return us(self.costs.copies_setup_us) + round(size / rate * NS_PER_S)

    def _length(self, seconds: float, moved: float) -> int:
        memory = moved / (self.facts.memory_bandwidth * self.costs.device_memory_share)
        return max(us(self.costs.device_kernel_us), round(max(seconds, memory) * NS_PER_S))


def device_facts(name: str) -> DeviceFacts:
    """Return the facts about ``gaudi``, ``gaudi2`` or ``gaudi3``. Raise PerfToolError for any other name."""
    if name not in DEVICE_NAMES:
        raise PerfToolError(f"there is no device {name!r} to simulate; the devices are {', '.join(DEVICE_NAMES)}")
    return next(device for device in known_devices() if device.name == DEVICE_NAMES[name])
