"""The modules and patches a script for Gaudi expects, in place only while it runs."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from perftool.sim.function_mode import HPU, is_hpu
from perftool.sim.limit import step_limit
from perftool.sim.loader import metered_loaders
from perftool.sim.op_work import tensors
from perftool.sim.patches import attribute, item
from perftool.sim.simulation import Simulation
from perftool.sim.stand_in_fused import fused_attention, fused_clip_norm, fused_optimizers
from perftool.sim.stand_in_graphs import backward_function, compile_function, graph_members


@contextmanager
def standing_in(simulation: Simulation, max_steps: int | None) -> Iterator[None]:
    """Provide ``habana_frameworks`` and the rest of the device while the script runs."""
    with ExitStack() as stack:
        for name, module in _modules(simulation).items():
            stack.enter_context(item(sys.modules, name, module))
        patches = (
            (torch, "hpu", sys.modules["habana_frameworks.torch.hpu"]),
            (torch, "compile", compile_function(simulation)),
            (torch.autograd, "backward", backward_function(simulation)),
            (torch, "load", _load(simulation)),
            (torch.Tensor, "hpu", _to_hpu),
            (torch.nn.Module, "hpu", _to_hpu),
            (torch._C, "_group_tensors_by_device_and_dtype", _grouping(simulation)),
            (torch.amp.autocast_mode.autocast, "__init__", _autocast()),
            (torch.profiler.profile, "__init__", _profiler()),
            (time, "sleep", _sleep(simulation)),
        )
        for owner, name, value in patches:
            stack.enter_context(attribute(owner, name, value))
        stack.enter_context(metered_loaders(simulation))
        stack.enter_context(step_limit(simulation, max_steps))
        # Attention as an HPU runs it: PyTorch's plain form, not the fused kernel of a CPU.
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        warnings.filterwarnings("ignore", message=".*pin_memory.*")
        yield


def module(name: str, **members: Any) -> ModuleType:
    """A module made of ``members``, which import machinery takes for a package."""
    made = ModuleType(name, "A stand-in of the simulated Gaudi.")
    made.__spec__ = ModuleSpec(name, None, is_package=True)
    made.__path__ = []
    made.__dict__.update(members)
    return made


def _modules(simulation: Simulation) -> dict[str, ModuleType]:
    base = "habana_frameworks.torch"
    hpu = module(f"{base}.hpu", **_hpu_members(simulation), **graph_members(simulation))
    hpu.graphs = hpu  # type: ignore[attr-defined]
    core = module(f"{base}.core", mark_step=_mark_step(simulation), hpu=hpu)
    optimizers = module(f"{base}.hpex.optimizers", **fused_optimizers(simulation))
    clip = fused_clip_norm(simulation)
    normalization = module(f"{base}.hpex.normalization", FusedClipNorm=clip)
    kernels = module(f"{base}.hpex.kernels", FusedSDPA=fused_attention(simulation))
    parts = {"optimizers": optimizers, "normalization": normalization, "kernels": kernels}
    hpex = module(f"{base}.hpex", **parts)
    package = module(base, core=core, hpu=hpu, hpex=hpex)
    whole = module("habana_frameworks", torch=package)
    named = {each.__name__: each for each in (whole, package, core, hpu, hpex, *parts.values())}
    return {**named, f"{base}.hpu.graphs": hpu}


def _mark_step(simulation: Simulation) -> Callable[..., None]:
    def mark_step(device_str: str = "", sync: bool = False) -> None:
        """End the graph; with ``sync`` wait for it."""
        simulation.on_mark_step()
        simulation.machine.mark_step()
        if sync:
            simulation.machine.synchronize()

    return mark_step


def _hpu_members(simulation: Simulation) -> dict[str, Callable[..., Any]]:
    machine, placement, facts = simulation.machine, simulation.placement, simulation.device

    def synchronize(device: object = None) -> None:
        machine.synchronize()

    return {
        "synchronize": synchronize,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_name": lambda device=None: facts.name,
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "memory_allocated": lambda device=None: placement.allocated(),
        "max_memory_allocated": lambda device=None: max(placement.peak, placement.allocated()),
        "empty_cache": lambda: None,
    }


def _sleep(simulation: Simulation) -> Callable[[float], None]:
    def sleep(seconds: float) -> None:
        """Let virtual time pass instead of real time."""
        simulation.machine.spend(seconds * 1e6)

    return sleep


def _grouping(simulation: Simulation) -> Callable[..., Any]:
    plain = torch._C._group_tensors_by_device_and_dtype

    def group(lists: list[list[torch.Tensor | None]], with_indices: bool = False) -> Any:
        """Groups under the device that the tensors say they are on; PyTorch's own code sees the real one."""
        groups = plain(lists, with_indices)
        named = {}
        for (device, dtype), value in groups.items():
            inside = any(each is not None and simulation.placement.find(each) for each in value[0][0])
            named[HPU if inside else device, dtype] = value
        return named

    return group


def _autocast() -> Callable[..., None]:
    plain = torch.amp.autocast_mode.autocast.__init__

    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        """Autocast of the HPU, through that of the CPU."""
        plain(self, "cpu" if is_hpu(device_type) else device_type, *args, **kwargs)

    return init


def _profiler() -> Callable[..., None]:
    plain = torch.profiler.profile.__init__

    def init(self: Any, *args: Any, activities: Any = None, **kwargs: Any) -> None:
        """The script's own profiler sees the real CPU alone; its steps are those of the simulation."""
        plain(self, *args, activities=[torch.profiler.ProfilerActivity.CPU], **kwargs)

    return init


def _load(simulation: Simulation) -> Callable[..., Any]:
    plain = torch.load

    def load(f: Any, map_location: Any = None, **kwargs: Any) -> Any:
        """What was saved; with ``map_location="hpu"`` its tensors are copied to the device."""
        if not is_hpu(map_location):
            return plain(f, map_location, **kwargs)
        loaded = plain(f, "cpu", **kwargs)
        for each in tensors(loaded):
            simulation.dispatch.copy_in(each, non_blocking=False)
            simulation.placement.put(each)
        return loaded

    return load


def _to_hpu(self: Any, *args: Any, **kwargs: Any) -> Any:
    """``tensor.hpu()`` and ``module.hpu()``."""
    return self.to("hpu", **kwargs)
