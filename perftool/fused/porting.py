"""The imports of `habana_frameworks` for machines without a Gaudi, so that a script written for one runs unedited.

Ops and optimizers are those of this package; the device `hpu` means the best device of the machine. What is not
provided says so when it is imported or asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from perftool import fused

_BASE = "habana_frameworks.torch"
_OURS = {
    "hpex.optimizers": (
        *("FusedAdagrad", "FusedAdamW", "FusedLamb", "FusedLars", "FusedResourceApplyMomentum", "FusedSGD"),
    ),
    "hpex.normalization": ("FusedClipNorm", "FusedRMSNorm"),
    "hpex.movingavrg": ("FusedEMA",),
    "hpex.kernels": (
        *("FusedSDPA", "RotaryPosEmbeddingHelperV1", "RotaryPosEmbeddingHelperV2", "RotaryPosEmbeddingMode"),
        "apply_rotary_pos_emb",
    ),
    "hpu.graphs": ("HPUGraph", "ModuleCacher", "graph", "make_graphed_callables", "wrap_in_hpu_graph"),
}
"""The names of this package by the module in which a Gaudi has them."""
_SDP = ("enable_recompute_sdp", "recompute_sdp_enabled", "sdp_kernel")
_NOTHING = {
    "core": ("mark_step", "iter_mark_step", "hpu_set_env", "hpu_initialize", "hpu_inference_initialize"),
    "hpu": ("synchronize", "init", "empty_cache", "set_device", "enable_inference_mode", "disable_inference_mode"),
    "distributed.hccl": (),
}
"""What a Gaudi needs to be told, by module, and other devices do not."""

_installed: TorchFunctionMode | None = None


def install(device: str | None = None) -> None:
    """Provide `habana_frameworks` and the device `hpu` from here on, in this process.

    `device` is what `hpu` means, by default `cuda` where there is one, else `cpu`. Where the true package is
    installed nothing is done: a script for a Gaudi then has what it needs. A second call has no effect.
    """
    global _installed
    if _installed is not None or importlib.util.find_spec("habana_frameworks") is not None:
        return
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    sys.modules.update(_modules(device))
    _replace_names(device)
    _installed = _Elsewhere(device)
    _installed.__enter__()  # type: ignore[no-untyped-call]


class _Elsewhere(TorchFunctionMode):
    """Reads `hpu` as another device wherever torch is given one."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call with every `hpu` replaced."""
        given = {name: self._translated(value) for name, value in (kwargs or {}).items()}
        return func(*map(self._translated, args), **given)

    def _translated(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("hpu", self._device, 1) if value == "hpu" or value.startswith("hpu:") else value
        if isinstance(value, torch.device) and value.type == "hpu":
            return torch.device(f"{self._device}:{value.index or 0}" if self._device == "cuda" else self._device)
        return value


def _modules(device: str) -> dict[str, ModuleType]:
    members: dict[str, dict[str, Any]] = {"": {}, "hpex": {}, "distributed": {}}
    for place, names in _NOTHING.items():
        members[place] = dict.fromkeys(names, _nothing)
    members["hpu"] |= {"is_available": lambda: True, "is_initialized": lambda: True, "device_count": lambda: 1}
    members["hpu"] |= {"current_device": lambda: 0, "get_device_name": lambda index=None: f"{device}, for a Gaudi"}
    members["hpu"] |= {"manual_seed": torch.manual_seed, "manual_seed_all": torch.manual_seed}
    members["hpu"] |= {"is_bf16_supported": lambda: True, **{name: getattr(fused, name) for name in _SDP}}
    for place, names in _OURS.items():
        members[place] = {name: getattr(fused, name) for name in names}
    members["hpu"] |= members["hpu.graphs"]
    members["hpex.optimizers.distributed"] = {"FusedAdamW": fused.distributed.FusedAdamW}
    members["distributed.hccl"]["initialize_distributed_hpu"] = _ranks
    made = {
        f"{_BASE}.{place}".rstrip("."): _module(f"{_BASE}.{place}".rstrip("."), has) for place, has in members.items()
    }
    made["habana_frameworks"] = _module("habana_frameworks", {})
    for name, module in made.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(made[parent], last, module)
    core = made[f"{_BASE}.core"]
    core.__dict__["hpu"] = made[f"{_BASE}.hpu"]
    return made


def _module(name: str, members: dict[str, Any]) -> ModuleType:
    made = ModuleType(name, "Provided by perftool.fused where there is no Gaudi.")
    made.__spec__ = ModuleSpec(name, None, is_package=True)
    made.__path__ = []

    def unknown(wanted: str) -> Any:
        if wanted.startswith("__"):
            raise AttributeError(wanted)
        raise ImportError(
            f"perftool.fused does not provide {name}.{wanted}; it has {', '.join(sorted(members)) or 'none'}."
        )

    made.__dict__.update(members, __getattr__=unknown)
    return made


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Nothing to do here: the device needs no such call."""


def _ranks(
    world_size: int | None = None, rank: int | None = None, local_rank: int | None = None
) -> tuple[int, int, int]:
    """World size, rank and local rank, from the arguments or the environment of the launcher."""
    import os

    names = {"WORLD_SIZE": (world_size, 1), "RANK": (rank, 0), "LOCAL_RANK": (local_rank, 0)}
    found = [int(os.environ.get(name, default)) if given is None else given for name, (given, default) in names.items()]
    return found[0], found[1], found[2]


def _replace_names(device: str) -> None:
    """What torch is asked by name, past the mode: its module `hpu`, autocast, backends and the registered op."""
    torch.hpu = sys.modules[f"{_BASE}.hpu"]  # type: ignore[attr-defined]
    operators: Any = torch.ops
    operators.hpu = SimpleNamespace(mixture_of_experts=fused.mixture_of_experts)
    torch.Tensor.hpu = lambda self, *args, **kwargs: self.to(device)  # type: ignore[attr-defined]
    torch.nn.Module.hpu = lambda self, *args, **kwargs: self.to(device)  # type: ignore[attr-defined]
    autocast = torch.amp.autocast_mode.autocast
    autocast.__init__ = _with_device(autocast.__init__, device)  # type: ignore[method-assign]
    if torch.distributed.is_available():
        begin = torch.distributed.init_process_group

        def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
            own = "nccl" if device == "cuda" else "gloo"
            begin(own if backend == "hccl" else backend, *args, **kwargs)

        torch.distributed.init_process_group = init_process_group


def _with_device(begin: Callable[..., None], device: str) -> Callable[..., None]:
    def __init__(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        begin(self, device if device_type == "hpu" else device_type, *args, **kwargs)

    return __init__
