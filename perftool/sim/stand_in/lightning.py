"""``lightning_habana``: Lightning's accelerator, strategies, precision and profiler of the simulated device."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from perftool.fused.porting.lightning import part
from perftool.sim.ops.function_mode import HPU
from perftool.sim.session.simulation import Simulation
from perftool.sim.stand_in.deepspeed import deepspeed_strategy
from perftool.sim.stand_in.frameworks import module

_BASE = "lightning_habana.pytorch"


def lightning_modules(simulation: Simulation) -> list[ModuleType]:
    """The modules, made without Lightning, which is imported when a script makes an object of theirs."""

    def marking(base: Any) -> Any:
        return _marking(simulation, base)

    def single(device: torch.device = HPU, **options: Any) -> Any:
        return marking(part("strategies").SingleDeviceStrategy)(device=device, **options)

    def deepspeed(*args: Any, **options: Any) -> Any:
        return marking(deepspeed_strategy(simulation, part("strategies").DeepSpeedStrategy))(*args, **options)

    strategies = {"SingleHPUStrategy": single, "HPUDeepSpeedStrategy": deepspeed}
    return [
        module(f"{_BASE}.accelerator", HPUAccelerator=_accelerator(simulation)),
        module(f"{_BASE}.strategies", **strategies),
        module(f"{_BASE}.strategies.deepspeed", HPUDeepSpeedStrategy=deepspeed),
        module(f"{_BASE}.plugins.precision", HPUPrecisionPlugin=_precision),
        module(f"{_BASE}.profiler.profiler", HPUProfiler=_profiler),
    ]


def _marking(simulation: Simulation, base: Any) -> Any:
    """A strategy that ends the graph where Habana's do: after each backward, and after each step of an optimizer."""

    class Marking(base):  # type: ignore[misc]
        def post_backward(self, closure_loss: torch.Tensor) -> None:
            super().post_backward(closure_loss)
            simulation.machine.mark_step()

        def optimizer_step(self, *args: Any, **options: Any) -> Any:
            done = super().optimizer_step(*args, **options)
            simulation.machine.mark_step()
            return done

    return Marking


def _accelerator(simulation: Simulation) -> type:
    class HPUAccelerator:
        """The cards that there are. Calling it gives an accelerator of Lightning's own kind."""

        def __new__(cls) -> Any:
            # Lightning puts a model on the device of this kind of accelerator when no strategy is named.
            base: Any = part("accelerators").MPSAccelerator
            members = {
                "setup_device": lambda self, device: None,
                "get_device_stats": lambda self, device: {},
                "parse_devices": staticmethod(lambda devices: list(range(cls.auto_device_count()))),
                "get_parallel_devices": staticmethod(lambda devices: [torch.device("hpu", each) for each in devices]),
                "auto_device_count": staticmethod(cls.auto_device_count),
                "is_available": staticmethod(lambda: True),
            }
            return type("HPUAccelerator", (base,), members)()

        @staticmethod
        def auto_device_count() -> int:
            """How many cards there are."""
            return simulation.ranks

    return HPUAccelerator


def _precision(precision: str = "bf16-mixed", device: str = "hpu") -> Any:
    return part("plugins").MixedPrecision(precision, device)


def _profiler(*args: Any, **options: Any) -> Any:
    return part("profilers").PyTorchProfiler(*args, **options)
