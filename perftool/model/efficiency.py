"""What ops reached of what the device could do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OpRate:
    """An op with its shapes, over all ranks; as the table op_efficiency, whose columns these are."""

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
    """A rate that ops were held against, in FLOP/s, and the bandwidth of the memory in bytes/s."""

    device: str
    dtype: str
    unit: str
    rate: float
    bandwidth: float
    source: str
    estimate: bool


@dataclass(frozen=True)
class Efficiency:
    """The ops that took most time on the devices, and the peaks that were assumed.

    ``work_ns`` is the length of all work of devices but transfers, ``bounded_ns`` that of ops whose best is known and
    ``best_ns`` that best. ``missing`` says what the input lacks to say more, empty where it lacks nothing.
    """

    ops: tuple[OpRate, ...]
    peaks: tuple[AssumedPeak, ...]
    work_ns: int
    bounded_ns: int
    best_ns: float | None
    missing: str
