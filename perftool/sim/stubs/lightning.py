"""``lightning_habana``: Lightning's accelerator, strategies, precision and profiler for the simulated device."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from perftool.fused.porting.lightning import part
from perftool.sim.ops.function_mode import HPU
from perftool.sim.session.simulation import Simulation
from perftool.sim.stubs.deepspeed import deepspeed_strategy
from perftool.sim.stubs.frameworks import module

_BASE = "lightning_habana.pytorch"


def lightning_modules(simulation: Simulation) -> list[ModuleType]:
    """Return the submodules of ``lightning_habana.pytorch``. Lightning is only imported when a script creates an object
    from them."""

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
    """Derive a strategy that ends the graph after each backward and each optimizer step, like Habana's."""

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
        """The simulated cards. Calling the class returns a Lightning accelerator."""

        def __new__(cls) -> Any:
            # If the script does not specify a strategy, Lightning puts the model on the device of an MPSAccelerator.
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
            """Return the number of cards."""
            return simulation.ranks

    return HPUAccelerator


def _precision(precision: str = "bf16-mixed", device: str = "hpu") -> Any:
    return part("plugins").MixedPrecision(precision, device)


def _profiler(*args: Any, **options: Any) -> Any:
    return part("profilers").PyTorchProfiler(*args, **options)
