"""Implements `habana_frameworks.torch.hpu` on the device that replaces the HPU: a CUDA device or the host."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from perftool import fused
from perftool.fused.porting.frameworks import BASE, PLACES
from perftool.model.usage import peak_bytes, resident_bytes

Members = dict[str, Any]

SWITCHES = (
    *("enable_dynamic_shape", "disable_dynamic_shape", "enable_inference_mode", "disable_inference_mode"),
    *("enable_quantization", "disable_quantization", "enable_optim_output_sif", "disable_optim_output_sif"),
    *("enable_matmul3d_2d_reshape", "disable_matmul3d_2d_reshape", "enable_const_section_serialization"),
    *("disable_const_section_serialization", "setDeterministic", "set_sync_debug_mode", "init", "empty_cache"),
)
"""Functions of `hpu` that switch a feature of Gaudi's PyTorch bridge."""

_STREAMS = ("Stream", "StreamContext", "stream", "set_stream", "current_stream", "default_stream")
_ON_CUDA = (
    *("synchronize", "set_device", "current_device", "device_count", "get_device_properties", "get_device_capability"),
    *("device", "device_of", "is_current_stream_capturing", "Event", *_STREAMS),
)


def device_modules(device: str) -> dict[str, Members]:
    """Return the members of `hpu` and its submodules, by full module name; `device` is `cpu` or `cuda`."""
    members = {
        **(_on_cuda() if device == "cuda" else _on_the_host()),
        **dict.fromkeys(SWITCHES, _nothing),
        **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported"), lambda: True),
        **dict.fromkeys(("getDeterministic", "get_dynamic_shape_status"), lambda: False),
        "get_sync_debug_mode": lambda: 0,
        "get_device_name": lambda device_=None: f"{device}, for a Gaudi",
        "set_autocast_hpu_enabled": lambda enabled: torch.set_autocast_enabled(device, enabled),
        "is_autocast_hpu_enabled": lambda: torch.is_autocast_enabled(device),
        "set_autocast_hpu_dtype": lambda dtype: torch.set_autocast_dtype(device, dtype),
        "get_autocast_hpu_dtype": lambda: torch.get_autocast_dtype(device),
        **{name: getattr(fused, name) for name in (*PLACES["hpu"], *PLACES["hpu.graphs"])},
    }
    parts = {"memory": _host_memory(), "random": host_random(), "streams": _STREAMS, "events": ("Event",)}
    made = {f"{BASE}.hpu.{part}": {name: members[name] for name in names} for part, names in parts.items()}
    return {f"{BASE}.hpu": members, **made}


def _nothing(*args: object, **options: object) -> None:
    """Do nothing: this device does not have the feature, or has nothing to wait for."""


def _on_cuda() -> Members:
    members = {name: getattr(torch.cuda, name) for name in (*_ON_CUDA, *host_random())}
    names = [name for name in _host_memory() if hasattr(torch.cuda, name)]
    members |= {name: _without_device(getattr(torch.cuda, name)) for name in names}
    members["memory_cached"], members["max_memory_cached"] = members["memory_reserved"], members["max_memory_reserved"]
    members["reset_accumulated_memory_stats"] = _nothing
    members["memory_stats"] = lambda device=None: _statistics(
        torch.cuda.mem_get_info()[1], torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    )
    return members


def _without_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make `function` ignore the device argument, because there is only one `hpu`."""
    return lambda device=None: function()


def _on_the_host() -> Members:
    """Return the members of `hpu` on the host. Its memory is that of this process, and calls run in order as on one
    stream."""
    cpu: Any = torch.cpu
    return {
        **{name: getattr(cpu, name) for name in ("Stream", "StreamContext", "stream", "current_stream")},
        "default_stream": cpu.current_stream,
        **dict.fromkeys(("set_stream", "synchronize", "set_device"), _nothing),
        "is_current_stream_capturing": lambda: False,
        "Event": HostEvent,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "device": lambda device: nullcontext(),
        "device_of": lambda tensor: nullcontext(),
        "get_device_properties": lambda device=None: SimpleNamespace(name="cpu", total_memory=_whole_memory()),
        "get_device_capability": lambda device=None: "cpu",
        **_host_memory(),
        **host_random(),
    }


def host_random() -> Members:
    """Return the random functions of `hpu`, which use the host's generator."""
    return {
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "seed": torch.seed,
        "seed_all": torch.seed,
        "initial_seed": torch.initial_seed,
        "get_rng_state": lambda device="hpu": torch.get_rng_state(),
        "set_rng_state": lambda state, device="hpu": torch.set_rng_state(state),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "set_rng_state_all": lambda states: torch.set_rng_state(next(iter(states))),
    }


def _host_memory() -> Members:
    def stats(device: object = None) -> dict[str, int]:
        return _statistics(_whole_memory(), process_memory(), peak_process_memory())

    kinds = ("memory_allocated", "memory_reserved", "memory_cached")
    return {
        **dict.fromkeys(kinds, lambda device=None: process_memory()),
        **dict.fromkeys((f"max_{kind}" for kind in kinds), lambda device=None: peak_process_memory()),
        **dict.fromkeys(("reset_peak_memory_stats", "reset_accumulated_memory_stats"), _nothing),
        "memory_stats": stats,
        "memory_summary": lambda device=None: "\n".join(f"{name}: {value}" for name, value in stats().items()),
        "mem_get_info": lambda device=None: (_whole_memory() - process_memory(), _whole_memory()),
    }


def _statistics(limit: int, in_use: int, most: int) -> dict[str, int]:
    """Return memory statistics under Gaudi's names, in bytes."""
    return {"Limit": limit, "InUse": in_use, "MaxInUse": most}


def _whole_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def process_memory() -> int:
    """Return this process's current memory use in bytes. If that is unknown, return its peak; if that is unknown too,
    return 0."""
    return resident_bytes() or peak_process_memory()


def peak_process_memory() -> int:
    """Return the peak memory of this process in bytes, or 0 if the system does not report it."""
    return peak_bytes() or 0


class HostEvent:
    """An event on the host. It records the time that the host's clock shows."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        """Accept the arguments of `torch.cuda.Event`; every event can be timed."""
        self._seconds: float | None = None

    def record(self, stream: object = None) -> None:
        """Record the time."""
        self._seconds = time.perf_counter()

    def wait(self, stream: object = None) -> None:
        """Do nothing, because the host has finished all earlier work."""

    synchronize = wait

    def query(self) -> bool:
        """Return True, because the host has finished all earlier work."""
        return True

    def elapsed_time(self, end_event: HostEvent) -> float:
        """Return the milliseconds from this event to `end_event`. Raise RuntimeError if either is not recorded."""
        if self._seconds is None or end_event._seconds is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event._seconds - self._seconds) * 1e3
