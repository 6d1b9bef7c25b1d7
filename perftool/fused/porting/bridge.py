"""The modules of `habana_frameworks` and `lightning_habana` for a machine without a Gaudi."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from types import ModuleType
from typing import Any

import torch

from perftool import fused
from perftool.fused.porting.device import device_modules
from perftool.fused.porting.frameworks import BASE, module, placed, with_packages
from perftool.fused.porting.lightning import lightning_members
from perftool.fused.rotary import rotary_pos_embedding

Members = dict[str, Any]

SETTINGS = (
    *("hpu_set_env", "hpu_reset_env", "hpu_initialize", "hpu_inference_initialize", "hpu_set_inference_env"),
    *("hpu_inference_set_env", "hpu_teardown_inference_env", "enable_weight_sharing", "overwrite_torch_functions"),
    *("_mark_params_as_const", "_check_params_as_const"),
)
"""Functions of `core` that prepare a model or change a setting of Gaudi's PyTorch bridge."""


def not_provided(name: str) -> str:
    """Return the error message for a name that may exist on a Gaudi but not in this package."""
    return f"{name} is not provided by perftool.fused (docs/fused/porting.md lists what is)"


def modules(device: str) -> dict[str, ModuleType]:
    """Return all modules by full name; `device`, which is `cpu` or `cuda`, replaces `hpu`."""
    core = _core()
    torchs = {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}
    ranks = {"initialize_distributed_hpu": ranks_of_launcher}
    members: dict[str, Members] = {
        **placed({name: getattr(fused, name) for name in fused.__all__} | torchs),
        **device_modules(device),
        f"{BASE}.hpex.optimizers.distributed": {"FusedAdamW": fused.distributed.FusedAdamW},
        f"{BASE}.core": core,
        f"{BASE}.core.step_closure": core,
        f"{BASE}.core.quantization": core,
        f"{BASE}.core.weight_sharing": core,
        f"{BASE}.core.torch_overwrites": core,
        f"{BASE}.distributed.hccl": ranks,
        f"{BASE}.utils.distributed_utils": ranks,
        f"{BASE}.utils.internal": {"is_lazy": lambda: False},
        f"{BASE}.utils.experimental": {"synDeviceType": _DeviceType, "_get_device_type": lambda: None},
        f"{BASE}.utils.library_loader": library_members(),
        **lightning_members(device),
    }
    if device == "cuda":
        # Gaudi's migration toolkit redirects CUDA to HPU, which is pointless if CUDA replaces the HPU.
        members[f"{BASE}.gpu_migration"] = {}
    made = with_packages((module(name, not_provided, each) for name, each in members.items()), not_provided)
    for name in ("hpu", "core"):
        made[BASE].__dict__[name] = made[f"{BASE}.{name}"]
    made[f"{BASE}.core"].__dict__["hpu"] = made[f"{BASE}.hpu"]
    return made


def registered_ops() -> dict[str, Callable[..., Any]]:
    """Return the ops that scripts call in `torch.ops.hpu`, by name."""
    return {
        "mixture_of_experts": fused.mixture_of_experts,
        "rotary_pos_embedding": rotary_pos_embedding,
        "custom_softmax": fused.CustomSoftmax.apply,
    }


class _DeviceType(Enum):
    """The generations of Gaudi, for scripts that compare the device type with them."""

    synDeviceGaudi, synDeviceGaudi2, synDeviceGaudi3 = range(1, 4)


def _core() -> Members:
    pending: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def mark_step(device_str: str = "", sync: bool = False) -> None:
        """Call the closures registered for the end of the step."""
        closures, pending[:] = list(pending), []
        for closure, args in closures:
            closure(*args)

    def add_step_closure(closure: Callable[..., object], args: tuple[object, ...] = ()) -> None:
        """Call `closure` at the next mark_step."""
        pending.append((closure, args))

    steps = {"mark_step": mark_step, "iter_mark_step": mark_step, "add_step_closure": add_step_closure}
    return {**dict.fromkeys(SETTINGS, _nothing), **steps, "_mark_step_if_lazy": _nothing}


def _nothing(model: Any = None, *args: object, **options: object) -> Any:
    """Return the model unchanged."""
    return model


def library_members() -> Members:
    """Return the functions that scripts call to load the bridge."""
    return {"load_habana_module": _nothing, "load_habana_profiler": _nothing, "is_habana_available": lambda: True}


def ranks_of_launcher(
    world_size: int | None = None, rank: int | None = None, local_rank: int | None = None
) -> tuple[int, int, int]:
    """Return world size, rank and local rank, from the arguments or else from the launcher's environment variables."""
    names = (("WORLD_SIZE", world_size, 1), ("RANK", rank, 0), ("LOCAL_RANK", local_rank, 0))
    world, own, local = (
        int(os.environ.get(name, default)) if value is None else value for name, value, default in names
    )
    return world, own, local
