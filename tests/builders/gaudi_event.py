"""One event of a Gaudi trace before it is written, and the category names of each generation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Value = str | int | float | list[object]

_CATEGORIES = {
    "B": {"compute": "Kernel", "call": "Runtime", "copy": "Memcpy", "fill": "Memset"},
    "C": {"compute": "kernel", "call": "hpu_op", "copy": "gpu_memcpy", "fill": "gpu_memset"},
    "C2": {"compute": "kernel", "call": "privateuse1_runtime", "copy": "gpu_memcpy", "fill": "gpu_memset"},
}


@dataclass(frozen=True)
class Event:
    """A raw record. ``part`` is its writer: ``kineto`` (the CPU part), ``device``, ``host`` or ``meta``.

    ``work`` is False for records that an analyser must not count as busy time, such as a monitor's longer duplicate of
    a kernel or records on dead lanes. ``engine`` is the engine of a device event.
    """

    ph: str
    name: str
    pid: int | str
    tid: int | str
    ts_ns: int
    dur_ns: int | None = None
    cat: str = ""
    args: Mapping[str, Value] | None = None
    part: str = "kineto"
    engine: str = ""
    work: bool = True
    extra: Mapping[str, Value] = field(default_factory=dict)

    @property
    def end_ns(self) -> int:
        return self.ts_ns + (self.dur_ns or 0)


def device_category(generation: str, engine: str, name: str) -> str:
    """Return the category of a device event. In generation A, only TPC events are kernels. In later generations,
    compute is recognised by its engine (DmaTranspose by its name), and copies and fills by their names.
    """
    if generation == "A":
        return "kernel" if engine == "TPC" else "hpu_op"
    names = _CATEGORIES[generation]
    if engine in ("MME", "TPC") or name == "DmaTranspose":
        return names["compute"]
    if name.startswith("memcpy"):
        return names["copy"]
    if name.startswith("memset"):
        return names["fill"]
    return "hpu_op" if generation == "C2" else names["call"]


def call_category(generation: str) -> str:
    return "hpu_op" if generation == "A" else _CATEGORIES[generation]["call"]


def nanoseconds(microseconds: float) -> int:
    """Round to whole nanoseconds, the resolution of all writers."""
    return round(microseconds * 1000)
