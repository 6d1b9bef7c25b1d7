"""`lightning_habana` for a machine without a Gaudi: Lightning's classes for the device that replaces the Gaudi."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

_BASE = "lightning_habana.pytorch"


def part(name: str) -> Any:
    """Import a module of the Lightning package that the script uses."""
    package = "lightning.pytorch" if "lightning.pytorch" in sys.modules else "pytorch_lightning"
    return importlib.import_module(f"{package}.{name}")


def lightning_members(device: str) -> dict[str, dict[str, Callable[..., Any]]]:
    """Return the members of `lightning_habana`'s modules. Lightning is only imported when one of them is called."""

    def accelerator() -> Any:
        found = part("accelerators")
        return found.CUDAAccelerator() if device == "cuda" else found.CPUAccelerator()

    def strategy(**options: Any) -> Any:
        return part("strategies").SingleDeviceStrategy(**{"device": device, **options})

    def precision(precision: str = "bf16-mixed", device_: str | None = None) -> Any:
        return part("plugins").MixedPrecision(precision, device)

    def profiler(*args: Any, **options: Any) -> Any:
        return part("profilers").PyTorchProfiler(*args, **options)

    return {
        f"{_BASE}.accelerator": {"HPUAccelerator": accelerator},
        f"{_BASE}.strategies": {"SingleHPUStrategy": strategy},
        f"{_BASE}.plugins.precision": {"HPUPrecisionPlugin": precision},
        f"{_BASE}.profiler.profiler": {"HPUProfiler": profiler},
    }
