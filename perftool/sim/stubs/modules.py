"""The modules and patches that a script for Gaudi expects, active only while it runs."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import distributed
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from perftool.fused.porting.bridge import library_members, ranks_of_launcher
from perftool.fused.porting.frameworks import BASE
from perftool.sim.ops.function_mode import HPU, is_hpu
from perftool.sim.ops.op_work import tensors
from perftool.sim.patches import attribute
from perftool.sim.session.limit import step_limit
from perftool.sim.session.loader import metered_loaders
from perftool.sim.session.simulation import Simulation
from perftool.sim.stubs.core import core_members, process_groups
from perftool.sim.stubs.device import device_members, device_modules
from perftool.sim.stubs.frameworks import installed, module
from perftool.sim.stubs.fused import custom_ops, fused_modules
from perftool.sim.stubs.graphs import (
    backward_function,
    compile_function,
    engine_function,
    graph_members,
    hooks_function,
)
from perftool.sim.stubs.lightning import lightning_modules


@contextmanager
def standing_in(simulation: Simulation, max_steps: int | None, steps_from: str | None) -> Iterator[None]:
    """Provide ``habana_frameworks``, and patch PyTorch for the simulated device, while the script runs."""
    with ExitStack() as stack:
        stack.enter_context(installed(_modules(simulation)))
        stack.callback(_forget_default_device)
        stack.callback(_leave_groups, distributed.is_initialized())
        patches = (
            (torch, "hpu", sys.modules["habana_frameworks.torch.hpu"]),
            (torch, "compile", compile_function(simulation)),
            (torch.autograd, "backward", backward_function(simulation)),
            (torch.autograd, "_engine_run_backward", engine_function(simulation)),
            (torch._C._autograd, "_push_saved_tensors_default_hooks", hooks_function(simulation)),
            (torch, "load", _load(simulation)),
            (torch.ops, "hpu", custom_ops(simulation)),
            *((torch.distributed, name, function) for name, function in process_groups(simulation).items()),
            (torch.Tensor, "is_hpu", property(lambda tensor: simulation.placement.find(tensor) is not None)),
            (torch.Tensor, "hpu", _to_hpu),
            # All streams share one queue, so memory is never reused too early.
            (torch.Tensor, "record_stream", lambda tensor, stream: None),
            (torch.nn.Module, "hpu", _to_hpu),
            (torch._C, "_group_tensors_by_device_and_dtype", _grouping(simulation)),
            (torch.profiler.profile, "__init__", _profiler()),
            (time, "sleep", _sleep(simulation)),
        )
        for owner, name, value in patches:
            stack.enter_context(attribute(owner, name, value))
        stack.enter_context(simulation.autocast.available())
        stack.enter_context(metered_loaders(simulation))
        hook = register_optimizer_step_pre_hook(lambda optimizer, *_: simulation.annotations.about_to_step(optimizer))
        stack.callback(hook.remove)
        stack.enter_context(step_limit(simulation, max_steps, steps_from))
        # Like an HPU, use PyTorch's unfused attention instead of the CPU's fused kernel.
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        warnings.filterwarnings("ignore", message=".*pin_memory.*")
        yield


def _modules(simulation: Simulation) -> list[ModuleType]:
    hpu = module(f"{BASE}.hpu", **device_members(simulation), **graph_members(simulation))
    core = core_members(simulation)
    return [
        hpu,
        module(f"{BASE}.hpu.graphs", is_current_stream_capturing=lambda: False, **graph_members(simulation)),
        *device_modules(simulation, hpu.__name__),
        module(f"{BASE}.core", hpu=hpu, **core),
        module(f"{BASE}.core.step_closure", **core),
        module(f"{BASE}.core.quantization", **core),
        module(f"{BASE}.core.weight_sharing", enable_weight_sharing=core["enable_weight_sharing"]),
        module(f"{BASE}.distributed.hccl", initialize_distributed_hpu=ranks_of_launcher),
        module(f"{BASE}.utils.distributed_utils", initialize_distributed_hpu=ranks_of_launcher),
        module(f"{BASE}.utils.internal", is_lazy=lambda: simulation.mode == "lazy", lazy_only=lambda f: f),
        module(f"{BASE}.core.torch_overwrites", overwrite_torch_functions=core["overwrite_torch_functions"]),
        module(f"{BASE}.utils.library_loader", **library_members()),
        module(f"{BASE}.utils.experimental", _is_fp16_supported=lambda: simulation.device.name != "GAUDI"),
        *fused_modules(simulation),
        *lightning_modules(simulation),
    ]


def _sleep(simulation: Simulation) -> Callable[[float], None]:
    def sleep(seconds: float) -> None:
        """Advance virtual time instead of waiting."""
        simulation.machine.sleep(seconds * 1e6)

    return sleep


def _grouping(simulation: Simulation) -> Callable[..., Any]:
    plain = torch._C._group_tensors_by_device_and_dtype

    def group(lists: list[list[torch.Tensor | None]], with_indices: bool = False) -> Any:
        """Group by the device that tensors report; PyTorch would group by the real device."""
        groups = plain(lists, with_indices)
        named = {}
        for (device, dtype), value in groups.items():
            inside = any(each is not None and simulation.placement.find(each) for each in value[0][0])
            named[HPU if inside else device, dtype] = value
        return named

    return group


def _profiler() -> Callable[..., None]:
    plain = torch.profiler.profile.__init__

    def init(self: Any, *args: Any, activities: Any = None, **kwargs: Any) -> None:
        """Limit the script's profiler to the CPU; the simulation only uses its steps."""
        plain(self, *args, activities=[torch.profiler.ProfilerActivity.CPU], **kwargs)

    return init


def _load(simulation: Simulation) -> Callable[..., Any]:
    plain = torch.load

    def load(f: Any, map_location: Any = None, **kwargs: Any) -> Any:
        """Load an object; with ``map_location="hpu"``, copy its tensors to the device."""
        if not is_hpu(map_location):
            return plain(f, map_location, **kwargs)
        loaded = plain(f, "cpu", **kwargs)
        for each in tensors(loaded):
            simulation.dispatch.copy_in(each, non_blocking=False)
            simulation.placement.put(each)
        return loaded

    return load


def _to_hpu(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Implement ``tensor.hpu()`` and ``module.hpu()``."""
    return self.to("hpu", **kwargs)


def _leave_groups(before: bool) -> None:
    """Destroy the process group that the script left open."""
    if distributed.is_initialized() and not before:
        distributed.destroy_process_group()


def _forget_default_device() -> None:
    """Undo ``torch.set_default_device("hpu")``."""
    if is_hpu(torch.utils._device.CURRENT_DEVICE):
        torch.set_default_device(None)
