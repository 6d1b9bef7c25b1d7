"""``habana_frameworks.torch.core``, and what several cards need: the end of a graph, settings, process groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from perftool.errors import PerfToolError
from perftool.fused.porting.bridge import ranks_of_launcher
from perftool.fused.porting.names import SETTINGS
from perftool.sim.own_stack import own_line
from perftool.sim.session.simulation import Simulation


def core_members(simulation: Simulation) -> dict[str, Callable[..., Any]]:
    """The functions of ``core`` and the modules below it."""
    closures: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def mark_step(device_str: str = "", sync: bool = False) -> None:
        """End the graph; with ``sync`` wait for it."""
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
    """Nothing that this model knows of."""
    return model


def init_process_group() -> Callable[..., None]:
    """``torch.distributed.init_process_group`` with the backend ``hccl`` of one card."""
    plain = distributed.init_process_group

    def init(backend: str | None = None, *args: Any, **options: Any) -> None:
        """One simulated card is a group of its own."""
        if backend is None or "hccl" not in backend:
            plain(backend, *args, **options)
            return
        world, _, _ = ranks_of_launcher(options.get("world_size"))
        if world > 1:
            raise PerfToolError(f"the simulator has one card, and the script asks for a group of {world}")
        torch.distributed.init_process_group("gloo", store=torch._C._distributed_c10d.HashStore(), rank=0, world_size=1)

    return init
