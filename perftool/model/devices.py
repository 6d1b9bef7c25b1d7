"""Facts about devices for rules and simulators, from ``devices.toml``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

import tomli

from perftool.errors import InputError
from perftool.model.toml_text import parse_toml

_FILE = Path(__file__).parent.parent / "devices.toml"
# A partition of a device (such as MIG) has the name of the whole device, but less memory. Even a whole device may
# report up to 6 % less memory because of ECC.
_LEAST_SHARE = 0.9
# Rates in FLOP/s or bytes/s must be lower than this; higher rates are implausible.
_HIGHEST_RATE = 1e21


@dataclass(frozen=True)
class Peak:
    """The peak dense rate, in FLOP/s, of one unit (matrix or vector) for one data type."""

    dtype: str
    unit: str
    rate: float
    source: str
    estimate: bool = False


@dataclass(frozen=True, kw_only=True)
class DeviceFacts:
    """Facts about a device. Bandwidths are in bytes/s.

    ``spellings``: its names in traces; if empty, ``name`` is the only one. ``link_bandwidth``: the bandwidth in one
    direction, summed over all links to other devices of the host. ``matrix_clock``: the MME's clock in Hz, for
    converting the cycle counts of Gaudi's graph compiler to time. ``units``: the number of compute units (SMs, CUs).
    ``capability``: CUDA's compute capability, times 10.
    """

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
    matrix_clock: float | None = None
    matrix_clock_source: str = ""
    engines: dict[str, int] = field(default_factory=dict)
    spellings: tuple[str, ...] = ()
    units: int | None = None
    capability: int | None = None


@cache
def known_devices() -> tuple[DeviceFacts, ...]:
    """Return all devices in ``devices.toml``."""
    return tuple(map(_device, tomli.loads(_FILE.read_text(encoding="utf-8"))["device"]))


def find_device(spelling: str, memory_bytes: int | None = None) -> DeviceFacts | None:
    """Return the device that a trace calls ``spelling``, or None if there is no exact match, and for a partition,
    because its rates are unknown.

    A partition is recognised by ``memory_bytes``, the memory stated in the trace.
    """
    for device in known_devices():
        if spelling in (device.spellings or (device.name,)):
            whole = memory_bytes is None or memory_bytes >= _LEAST_SHARE * device.memory_bytes
            return device if whole else None
    return None


def device_named(text: str) -> DeviceFacts | None:
    """Return the device that a user calls ``text``: the device with this exact name, or the first device whose name
    contains all words of ``text`` (H100, A100 PCIe).

    At least one word must contain a digit, because a vendor's name alone does not identify a device.
    """
    wanted = _words(text)
    for device in known_devices():
        if text.casefold() in (one.casefold() for one in (device.name, device.title, *device.spellings)):
            return device
    if not any(letter.isdigit() for letter in text):
        return None
    return next((device for device in known_devices() if wanted <= _words(f"{device.name} {device.title}")), None)


def device_of_text(text: str, path: str) -> DeviceFacts:
    """Parse ``text``, the content of the user's file ``path``: an entry as in devices.toml, without its heading.

    The entry needs at least ``name``, ``memory_bandwidth`` in bytes/s, and ``peaks``, each with ``dtype``, ``unit``
    (matrix or vector) and ``rate`` in FLOP/s. Raise InputError if it is invalid.
    """
    try:
        entry = parse_toml(text)
    except ValueError as error:
        raise InputError(f"{path}: not a valid peaks file: {error}") from None
    name, peaks = entry.get("name"), entry.get("peaks")
    if not isinstance(name, str) or not name.strip() or not is_rate(entry.get("memory_bandwidth")):
        raise InputError(f"{path}: a peaks file needs a name, and memory_bandwidth in bytes/s")
    if not isinstance(peaks, list) or not peaks or not all(map(_is_peak, peaks)):
        raise InputError(f"{path}: each entry of peaks needs a dtype, a unit (matrix or vector) and a rate in FLOP/s")
    source = str(entry.get("source") or f"measured, {Path(path).name}")
    return DeviceFacts(
        type=str(entry.get("type") or ""), name=name, title=name, memory_bytes=0, pcie_bandwidth=0.0, source=source,
        memory_bandwidth=float(entry["memory_bandwidth"]),
        peaks=tuple(Peak(peak["dtype"], peak["unit"], float(peak["rate"]), source) for peak in peaks),
    )  # fmt: skip


def is_rate(value: Any) -> TypeGuard[float]:
    """Whether ``value`` is a plausible number of FLOP/s or bytes/s."""
    return type(value) in (int, float) and 1 <= value < _HIGHEST_RATE


def _is_peak(peak: Any) -> bool:
    if not isinstance(peak, dict) or peak.get("unit") not in ("matrix", "vector") or not is_rate(peak.get("rate")):
        return False
    return isinstance(peak.get("dtype"), str)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.casefold()))


def _device(entry: dict[str, Any]) -> DeviceFacts:
    peaks = tuple(Peak(**{"source": entry["source"], **peak}) for peak in entry["peaks"])
    return DeviceFacts(**{**entry, "peaks": peaks, "spellings": tuple(entry.get("spellings", ()))})
