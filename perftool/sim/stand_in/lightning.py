"""``lightning_habana``: Lightning's accelerator, strategy, precision and profiler of the simulated device."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from perftool.fused.porting.lightning import part
from perftool.sim.ops.function_mode import HPU
from perftool.sim.stand_in.frameworks import module

_BASE = "lightning_habana.pytorch"


def lightning_modules() -> list[ModuleType]:
    """The modules, made without Lightning, which is imported when a script makes an object of theirs."""
    return [
        module(f"{_BASE}.accelerator", HPUAccelerator=_Accelerator),
        module(f"{_BASE}.strategies", SingleHPUStrategy=_strategy),
        module(f"{_BASE}.plugins.precision", HPUPrecisionPlugin=_precision),
        module(f"{_BASE}.profiler.profiler", HPUProfiler=_profiler),
    ]


class _Accelerator:
    """One card. Calling it gives an accelerator of Lightning's own kind."""

    def __new__(cls) -> Any:
        # Lightning puts a model on the device of this kind of accelerator when no strategy is named.
        base: Any = part("accelerators").MPSAccelerator
        members = {
            "setup_device": lambda self, device: None,
            "get_device_stats": lambda self, device: {},
            "parse_devices": staticmethod(lambda devices: [0]),
            "get_parallel_devices": staticmethod(lambda devices: [HPU]),
            "auto_device_count": staticmethod(cls.auto_device_count),
            "is_available": staticmethod(lambda: True),
        }
        return type("HPUAccelerator", (base,), members)()

    @staticmethod
    def auto_device_count() -> int:
        """How many cards there are."""
        return 1


def _strategy(device: torch.device = HPU, **options: Any) -> Any:
    return part("strategies").SingleDeviceStrategy(device=device, **options)


def _precision(precision: str = "bf16-mixed", device: str = "hpu") -> Any:
    return part("plugins").MixedPrecision(precision, device)


def _profiler(*args: Any, **options: Any) -> Any:
    return part("profilers").PyTorchProfiler(*args, **options)
