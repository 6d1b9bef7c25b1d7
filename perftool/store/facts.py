"""The rows of the tables ``device_facts`` and ``devices``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perftool.model.devices import DeviceFacts, find_device, known_devices

# Larger values are implausible. _MOST_BYTES is also the largest BIGINT.
_MOST_BYTES = 2**63 - 1
_MOST_UNITS = 100_000


def device_facts(own: DeviceFacts | None = None) -> list[tuple[Any, ...]]:
    """Return one row per fact about each known device and the user's own device, if there is one."""
    rows: list[tuple[Any, ...]] = []
    known = known_devices()
    for device in known if own is None or own in known else (*known, own):
        figures = [
            ("memory", device.memory_bytes, "bytes"),
            ("memory_bandwidth", device.memory_bandwidth, "bytes/s"),
            ("pcie_bandwidth", device.pcie_bandwidth, "bytes/s"),
            ("compute_units", device.units, "count"),
            *((f"{engine} engines", count, "count") for engine, count in device.engines.items()),
        ]
        rows += [(device.name, fact, value, unit, False, device.source) for fact, value, unit in figures if value]
        if device.link_bandwidth:
            rows.append((device.name, "link_bandwidth", device.link_bandwidth, "bytes/s", False, device.link_source))
        if device.matrix_clock:
            rows.append((device.name, "matrix_clock", device.matrix_clock, "Hz", False, device.matrix_clock_source))
        rows += [
            (device.name, f"{peak.unit} peak {peak.dtype}", peak.rate, "FLOP/s", peak.estimate, peak.source)
            for peak in device.peaks
        ]
    return rows


def named_devices(
    metadata: Mapping[int, Mapping[str, Any]], chosen: DeviceFacts | None = None
) -> list[tuple[Any, ...]]:
    """Return the devices that the ``metadata`` of each rank lists; their facts are those of ``chosen`` if the user
    chose a device. A rank that lists no device gets ``chosen``."""
    rows: list[tuple[Any, ...]] = []
    for rank, top in metadata.items():
        before = len(rows)
        listed = top.get("deviceProperties")
        for device in listed if isinstance(listed, list) else []:
            if isinstance(device, dict) and isinstance(name := device.get("name"), str):
                size = device.get("totalGlobalMem")
                memory_bytes = size if isinstance(size, int) and 0 < size <= _MOST_BYTES else None
                known = chosen or find_device(name, memory_bytes)
                rows.append((rank, name, memory_bytes, *_known(known, _units(device), _capability(device))))
        if chosen and len(rows) == before:
            rows.append((rank, chosen.name, None, *_known(chosen)))
    return rows


def _known(device: DeviceFacts | None, units: int | None = None, capability: int | None = None) -> tuple[Any, ...]:
    """Return the memory, name, compute units and capability of a known ``device``; units and capability in the trace
    take precedence."""
    if device is None:
        return None, None, units, capability
    return device.memory_bytes or None, device.name, units or device.units, capability or device.capability


def _units(device: Mapping[str, Any]) -> int | None:
    """Return the number of compute units (SMs, CUs) that the trace states for the device."""
    units = device.get("numSms")
    return units if type(units) is int and 0 < units < _MOST_UNITS else None


def _capability(device: Mapping[str, Any]) -> int | None:
    """Return CUDA's compute capability, times 10, or None for AMD, where the number identifies the architecture."""
    major, minor = device.get("computeMajor"), device.get("computeMinor")
    if type(major) is not int or type(minor) is not int or not (0 < major < 100 and 0 <= minor < 10):
        return None
    return None if isinstance(name := device.get("name"), str) and "AMD" in name else 10 * major + minor
