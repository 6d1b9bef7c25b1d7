"""The facts of devices as rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perftool.model.devices import find_device, known_devices

# What a column of the table holds; no device has as much.
_MOST_BYTES = 2**63 - 1


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
        if device.link_bandwidth:
            rows.append((device.name, "link_bandwidth", device.link_bandwidth, "bytes/s", False, device.link_source))
        rows += [
            (device.name, f"{peak.unit} peak {peak.dtype}", peak.rate, "FLOP/s", peak.estimate, peak.source)
            for peak in device.peaks
        ]
    return rows


def named_devices(metadata: Mapping[int, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """The devices that the ``metadata`` of traces, by rank, names."""
    rows = []
    for rank, top in metadata.items():
        listed = top.get("deviceProperties")
        for device in listed if isinstance(listed, list) else []:
            if isinstance(device, dict) and isinstance(name := device.get("name"), str):
                size = device.get("totalGlobalMem")
                memory_bytes = size if isinstance(size, int) and 0 < size <= _MOST_BYTES else None
                known = find_device(name, memory_bytes)
                facts = (known.memory_bytes, known.name) if known else (None, None)
                rows.append((rank, name, memory_bytes, *facts))
    return rows
