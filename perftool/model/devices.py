"""Facts of devices, from ``devices.toml``: what a rule or a simulator may hold a run against."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tomli

_FILE = Path(__file__).parent.parent / "devices.toml"


@dataclass(frozen=True)
class Peak:
    """Highest rate in FLOP/s of one unit (matrix or vector) with one data type."""

    dtype: str
    unit: str
    rate: float
    source: str
    estimate: bool = False


@dataclass(frozen=True)
class DeviceFacts:
    """What is known of a device. ``name`` is how traces spell it; bandwidths are in bytes/s."""

    type: str
    name: str
    title: str
    engines: dict[str, int]
    memory_bytes: int
    memory_bandwidth: float
    pcie_bandwidth: float
    source: str
    peaks: tuple[Peak, ...]


@cache
def known_devices() -> tuple[DeviceFacts, ...]:
    """Every device of ``devices.toml``."""
    entries: list[dict[str, Any]] = tomli.loads(_FILE.read_text(encoding="utf-8"))["device"]
    return tuple(DeviceFacts(**{**entry, "peaks": tuple(Peak(**peak) for peak in entry["peaks"])}) for entry in entries)
