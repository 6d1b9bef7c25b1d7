"""``habana_frameworks.torch.core``, and process groups of several cards."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import parent_process
from typing import Any

import torch
from torch import distributed

from perftool.errors import PerfToolError
from perftool.fused.porting.bridge import SETTINGS
from perftool.sim.own_stack import own_line
from perftool.sim.session.simulation import Simulation


def core_members(simulation: Simulation) -> dict[str, Callable[..., Any]]:
    """Return the functions of ``core`` and its submodules."""
    closures: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def mark_step(device_str: str = "", sync: bool = False) -> None:
        """End the graph; with ``sync``, wait for it."""
        simulation.annotations.mark_step(own_line())
        simulation.machine.mark_step()
        if sync:
            simulation.machine.synchronize()
        pending, closures[:] = list(closures), []
        for closure, args in pending:
            closure(*args)

    def add_step_closure(closure: Callable[..., object], args: tuple[object, ...] = ()) -> None:
        """Call ``closure`` after the next mark_step."""
        closures.append((closure, args))

    return {
        **dict.fromkeys(SETTINGS, _nothing),
        "mark_step": mark_step,
        "iter_mark_step": lambda device_str="": mark_step(device_str),
        "add_step_closure": add_step_closure,
    }


def _nothing(model: Any = None, *args: object, **options: object) -> Any:
    """Return the model unchanged."""
    return model


def process_groups(simulation: Simulation) -> dict[str, Callable[..., Any]]:
    """Return versions of the ``torch.distributed`` functions that accept or return a backend, with support for
    ``hccl``."""
    made, made_of, backend_of = distributed.init_process_group, distributed.new_group, distributed.get_backend
    named: list[str] = []

    def init_process_group(backend: str | None = None, *args: Any, **options: Any) -> None:
        """Start gloo instead of ``hccl``; a single simulated card forms its own group."""
        named[:] = [backend] if backend and "hccl" in backend else []
        if not named:
            made(backend, *args, **options)
            return
        # Gloo does not support the device ``hpu``.
        options.pop("device_id", None)
        world_size = options.get("world_size", simulation.ranks)
        if world_size > 1 and simulation.ranks == 1 and parent_process() is None:
            raise PerfToolError(
                f"the script asks for a group of {world_size} cards, but only one was started; "
                f"simulate --ranks {world_size} starts all"
            )
        if world_size in (-1, 1) and simulation.ranks == 1:
            made("gloo", store=torch._C._distributed_c10d.HashStore(), rank=0, world_size=1)
            return
        made("gloo", *args, **options)
        simulation.ranks, simulation.rank = distributed.get_world_size(), distributed.get_rank()

    def new_group(*args: Any, **options: Any) -> Any:
        """Create a group with gloo instead of ``hccl``; other backends are unchanged."""
        if "hccl" in (options.get("backend") or ""):
            options["backend"] = "gloo"
        return made_of(*args, **options)

    def get_backend(group: Any = None) -> Any:
        """Return the backend's name, as the script specified it."""
        found = backend_of(group)
        return "hccl" if named and found == "gloo" else found

    return {"init_process_group": init_process_group, "new_group": new_group, "get_backend": get_backend}
