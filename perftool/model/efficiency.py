"""The rates that ops reach, and the peaks of the device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OpRate:
    """All calls to an op that have the same shapes, on all ranks. The fields are columns of the op_efficiency table."""

    name: str
    source: str
    engine: str | None
    kind: str | None
    input_dims: str | None
    input_types: str | None
    calls: int
    flops: float | None
    bytes: float | None
    kernel_ns: int
    tflops: float | None
    tbytes: float | None
    bound: str | None
    roofline_ratio: float | None


@dataclass(frozen=True)
class AssumedPeak:
    """The peak rate of a device for a data type, in FLOP/s, and its memory bandwidth in bytes/s."""

    device: str
    dtype: str
    unit: str
    rate: float
    bandwidth: float
    source: str
    estimate: bool


@dataclass(frozen=True)
class Efficiency:
    """The ops that took the most time on the devices, and the assumed peaks.

    ``work_ns`` is the time of all device work except transfers, ``bounded_ns`` the time of the ops whose best possible
    time is known, and ``best_ns`` the sum of these best times. ``missing`` is a sentence about what the input lacks.
    """

    ops: tuple[OpRate, ...]
    peaks: tuple[AssumedPeak, ...]
    work_ns: int
    bounded_ns: int
    best_ns: float | None
    missing: str
