"""The facts of devices as rows."""

from __future__ import annotations

from typing import Any

from perftool.model.devices import known_devices

FACT_COLUMNS = "(device VARCHAR, fact VARCHAR, value DOUBLE, unit VARCHAR, estimate BOOLEAN, source VARCHAR)"


def device_facts() -> list[tuple[Any, ...]]:
    """One row per figure of each known device."""
    rows: list[tuple[Any, ...]] = []
    for device in known_devices():
        figures = [
            ("memory", device.memory_bytes, "bytes"),
            ("memory_bandwidth", device.memory_bandwidth, "bytes/s"),
            ("pcie_bandwidth", device.pcie_bandwidth, "bytes/s"),
            *((f"{engine} engines", count, "count") for engine, count in device.engines.items()),
        ]
        rows += [(device.name, fact, value, unit, False, device.source) for fact, value, unit in figures]
        rows += [
            (device.name, f"{peak.unit} peak {peak.dtype}", peak.rate, "FLOP/s", peak.estimate, peak.source)
            for peak in device.peaks
        ]
    return rows
