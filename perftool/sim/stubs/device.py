"""``habana_frameworks.torch.hpu``: streams, events, memory, random numbers, metrics, settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from perftool import fused
from perftool.fused.porting.device import SWITCHES, host_random
from perftool.sim.machine.machine import Machine
from perftool.sim.session.simulation import Simulation
from perftool.sim.stubs.frameworks import module
from perftool.units import NS_PER_MS

# Settings without an effect in this model.
_WITHOUT_EFFECT = ("set_device", "reset_accumulated_memory_stats")


def device_members(simulation: Simulation) -> dict[str, Any]:
    """Return the functions of ``torch.hpu`` by name."""
    machine, facts = simulation.machine, simulation.device
    return {
        **dict.fromkeys((*SWITCHES, *_WITHOUT_EFFECT), _nothing),
        **_memory(simulation),
        **_streams(simulation),
        "synchronize": lambda device=None: machine.synchronize(),
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: simulation.ranks,
        "current_device": lambda: 0,
        "device": lambda device: nullcontext(),
        "device_of": lambda tensor: nullcontext(),
        "get_device_name": lambda device=None: facts.name,
        "get_device_capability": lambda device=None: facts.name,
        "get_device_properties": lambda device=None: SimpleNamespace(name=facts.name, total_memory=facts.memory_bytes),
        "is_bf16_supported": lambda: True,
        "getDeterministic": lambda: False,
        "get_sync_debug_mode": lambda: 0,
        "get_dynamic_shape_status": lambda: False,
        "is_autocast_hpu_enabled": lambda: torch.is_autocast_enabled("hpu"),
        "set_autocast_hpu_enabled": lambda enabled: torch.set_autocast_enabled("hpu", enabled),
        "get_autocast_hpu_dtype": lambda: torch.get_autocast_dtype("hpu"),
        "set_autocast_hpu_dtype": lambda dtype: torch.set_autocast_dtype("hpu", dtype),
        "is_current_stream_capturing": lambda: False,
        "sdp_kernel": fused.sdp_kernel,
        "enable_recompute_sdp": fused.enable_recompute_sdp,
        "recompute_sdp_enabled": fused.recompute_sdp_enabled,
        **host_random(),
    }


def device_modules(simulation: Simulation, base: str) -> list[ModuleType]:
    """Return the submodules of ``base``, which is ``habana_frameworks.torch.hpu``."""
    return [
        module(f"{base}.memory", **_memory(simulation)),
        module(f"{base}.streams", **_streams(simulation)),
        module(f"{base}.events", Event=_streams(simulation)["Event"]),
        module(f"{base}.random", default_generators=(torch.default_generator,), **host_random()),
        module(f"{base}.metrics", **_metrics(simulation)),
        module(f"{base}.metrics.metrics", **_metrics(simulation)),
    ]


def _nothing(*args: object, **options: object) -> None:
    """Do nothing, because the setting has no effect in this model."""


def _memory(simulation: Simulation) -> dict[str, Callable[..., Any]]:
    placement, whole = simulation.placement, int(simulation.device.memory_bytes)

    def peak(device: object = None) -> int:
        return max(placement.peak, placement.allocated())

    def now(device: object = None) -> int:
        return placement.allocated()

    def reset(device: object = None) -> None:
        placement.peak = 0

    def stats(device: object = None) -> dict[str, int]:
        return {"Limit": whole, "InUse": now(), "MaxInUse": peak(), "ActiveAllocs": placement.count()}

    return {
        "memory_allocated": now,
        "memory_reserved": now,
        "memory_cached": now,
        "max_memory_allocated": peak,
        "max_memory_reserved": peak,
        "max_memory_cached": peak,
        "reset_peak_memory_stats": reset,
        "reset_accumulated_memory_stats": _nothing,
        "memory_stats": stats,
        "memory_summary": lambda device=None: "\n".join(f"{name}: {value}" for name, value in stats().items()),
        "mem_get_info": lambda device=None: (whole - now(), whole),
    }


class _Stream:
    """A stream. All streams share one queue, so work runs in the order of submission. The last entry of ``current`` is
    the current stream."""

    def __init__(self, machine: Machine, current: list[_Stream], *args: object, **options: object) -> None:
        self.device_index = 0
        self._machine = machine
        self._current = current

    @property
    def is_current(self) -> bool:
        """Whether ops go to this stream."""
        return self._current[-1] is self

    def synchronize(self) -> None:
        """Wait for the device. On the current stream, pending ops are not launched first."""
        if self.is_current:
            self._machine.log.cut("HPUStream::synchronize userthread", self._machine.now)
            self._machine.wait()
        else:
            self._machine.synchronize("HPUStream::synchronize")

    def query(self) -> bool:
        """Whether all work is done; a query of another stream submits pending ops."""
        if not self.is_current:
            self._machine.cut("HPUStream::query")
        return self._machine.is_idle()

    def wait_stream(self, stream: object) -> None:
        """Do nothing, because there is only one queue."""

    def wait_event(self, event: object) -> None:
        """Do nothing, because there is only one queue."""

    def record_event(self, event: _Event | None = None) -> _Event:
        """Record ``event`` or a new event."""
        event = event or _Event(self._machine, self._current)
        event.record(self)
        return event


class _Event:
    """A virtual time: the end of all work submitted before the event was recorded."""

    def __init__(self, machine: Machine, current: list[_Stream], *args: object, **options: object) -> None:
        self._machine = machine
        self._current = current
        self._ns: int | None = None

    def record(self, stream: _Stream | None = None) -> None:
        """Record the time; for the current stream, pending ops are submitted first."""
        if stream is None or stream is self._current[-1]:
            self._machine.cut("HPUEvent::record")
        self._ns = self._machine.end

    def wait(self, stream: object = None) -> None:
        """Do nothing, because there is only one queue."""

    def query(self) -> bool:
        """Whether the recorded time has passed."""
        return self._ns is None or self._machine.now >= self._ns

    def synchronize(self) -> None:
        """Launch pending ops and wait for the device."""
        self._machine.synchronize()

    def elapsed_time(self, end_event: _Event) -> float:
        """Return the virtual time from this event to ``end_event``, in milliseconds. Raise RuntimeError if either event
        has not been recorded."""
        if self._ns is None or end_event._ns is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event._ns - self._ns) / NS_PER_MS


def _streams(simulation: Simulation) -> dict[str, Any]:
    machine = simulation.machine
    current: list[_Stream] = []
    default = _Stream(machine, current)
    current.append(default)

    @contextmanager
    def using(stream: _Stream | None = None) -> Iterator[_Stream | None]:
        current.append(stream or current[-1])
        try:
            yield stream
        finally:
            current.pop()

    def set_stream(stream: _Stream | None) -> None:
        current[-1] = stream or current[-1]

    return {
        "Stream": partial(_Stream, machine, current),
        "Event": partial(_Event, machine, current),
        "stream": using,
        "StreamContext": using,
        "set_stream": set_stream,
        "current_stream": lambda device=None: current[-1],
        "default_stream": lambda device=None: default,
    }


def _metrics(simulation: Simulation) -> dict[str, Any]:
    log = simulation.machine.log

    class Metric:
        """The current counters of one metric."""

        def __init__(self, name: str) -> None:
            self._name = name

        def name(self) -> str:
            """Return the name of the metric."""
            return self._name

        def stats(self) -> list[tuple[str, object]]:
            """Return the values of the metric by name."""
            return list(log.statistics().get(self._name, {}).items())

        def reset(self) -> None:
            """Do nothing: the counters of a simulated run are never reset."""

    @contextmanager
    def metric_localcontext(name: str) -> Iterator[Metric]:
        yield Metric(name)

    def metrics_dump(file_name: str, format: object = None) -> None:
        Path(os.path.expanduser(file_name)).write_text(log.metrics(simulation.machine.now), encoding="utf-8")

    return {"metric_global": Metric, "metric_localcontext": metric_localcontext, "metrics_dump": metrics_dump}
