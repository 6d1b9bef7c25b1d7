"""Facts of devices, from ``devices.toml``: what a rule or a simulator may hold a run against."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import tomli

_FILE = Path(__file__).parent.parent / "devices.toml"
# A part of a device (MIG, a compute partition) goes by the name of the whole; error correction takes up to a sixteenth.
_LEAST_SHARE = 0.9


@dataclass(frozen=True)
class Peak:
    """Highest rate in FLOP/s of one unit (matrix or vector) with one data type, dense."""

    dtype: str
    unit: str
    rate: float
    source: str
    estimate: bool = False


@dataclass(frozen=True, kw_only=True)
class DeviceFacts:
    """What is known of a device. ``spellings`` is how traces name it (``name`` alone when there are none);
    bandwidths are in bytes/s, ``link_bandwidth`` that of all links to other devices of the host, one way."""

    type: str
    name: str
    title: str
    memory_bytes: int
    memory_bandwidth: float
    pcie_bandwidth: float
    source: str
    peaks: tuple[Peak, ...]
    link_bandwidth: float | None = None
    link_source: str = ""
    engines: dict[str, int] = field(default_factory=dict)
    spellings: tuple[str, ...] = ()


@cache
def known_devices() -> tuple[DeviceFacts, ...]:
    """Every device of ``devices.toml``."""
    return tuple(map(_device, tomli.loads(_FILE.read_text(encoding="utf-8"))["device"]))


def find_device(spelling: str, memory_bytes: int | None = None) -> DeviceFacts | None:
    """The device that a trace means by ``spelling``; None when nothing says that exactly.

    ``memory_bytes`` is what the trace gives as its memory: one with clearly less is a part of a device, whose rates
    nothing states.
    """
    for device in known_devices():
        if spelling in (device.spellings or (device.name,)):
            whole = memory_bytes is None or memory_bytes >= _LEAST_SHARE * device.memory_bytes
            return device if whole else None
    return None


def _device(entry: dict[str, Any]) -> DeviceFacts:
    peaks = tuple(Peak(**{"source": entry["source"], **peak}) for peak in entry["peaks"])
    return DeviceFacts(**{**entry, "peaks": peaks, "spellings": tuple(entry.get("spellings", ()))})
