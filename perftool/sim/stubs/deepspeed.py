"""``HPUDeepSpeedStrategy``: Lightning's strategy with the real DeepSpeed, which uses its HPU accelerator if
``habana_frameworks`` can be imported. Like Habana's strategy, this module adds the backend and settings for inference;
it also notes which settings the device does not support according to Gaudi's documentation.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch.utils._pytree import tree_map

from perftool.sim.ops.function_mode import HPU
from perftool.sim.session.simulation import Simulation

# Keys of configurations for deepspeed.init_inference; a configuration without any of them is for training.
_INFERENCE = frozenset({
    *("tensor_parallel", "dtype", "replace_with_kernel_inject", "enable_cuda_graph", "replace_method"),
    *("injection_policy", "mp_size", "quant", "checkpoint", "max_out_tokens", "return_tuple"),
})  # fmt: skip


def deepspeed_strategy(simulation: Simulation, base: Any) -> Any:
    """Derive Habana's strategy from ``base``, Lightning's ``DeepSpeedStrategy``, which raises an error if DeepSpeed is
    missing."""
    known = inspect.signature(base.__init__).parameters
    remarks = simulation.machine.log.remarks

    class HPUDeepSpeedStrategy(base):  # type: ignore[misc]
        """ZeRO on the simulated cards, and inference by ``deepspeed.init_inference``."""

        strategy_name = "hpu_deepspeed"

        def __init__(self, *args: Any, parallel_devices: object = None, **options: Any) -> None:
            settings = dict(options)
            inference = {name: settings.pop(name) for name in options if name not in known}
            config = settings.get("config")
            if isinstance(config, Mapping) and _INFERENCE & config.keys():
                inference = {**settings.pop("config"), **inference}
            super().__init__(*args, **{"process_group_backend": "hccl", **settings})
            self._inference = inference
            # Lightning gets the devices from the accelerator.
            wanted = len(parallel_devices) if isinstance(parallel_devices, list) else parallel_devices
            limits = _limits(simulation, self.config, inference, wanted)
            remarks.extend(each for each in limits if each not in remarks)

        @property
        def root_device(self) -> torch.device:
            """Each process sees its own card as number 0."""
            return HPU

        def setup_environment(self) -> None:
            """Set up without Lightning's check for a CUDA device."""
            self.accelerator.setup_device(self.root_device)
            self.setup_distributed()

        def _initialize_deepspeed_inference(self, model: Any) -> None:
            if not self._inference:
                super()._initialize_deepspeed_inference(model)
                return
            deepspeed = import_module("deepspeed")
            self.model = deepspeed.init_inference(model, **_with_tensor_parallelism(self._inference, simulation.ranks))

        def batch_to_device(self, batch: Any, *args: Any, **options: Any) -> Any:
            """In inference, cast inputs to the model's type; Lightning's precision plugin would use its own type."""
            dtype, moved = self._inference.get("dtype"), super().batch_to_device(batch, *args, **options)
            return tree_map(partial(_cast, dtype), moved) if isinstance(dtype, torch.dtype) else moved

    return HPUDeepSpeedStrategy


def _cast(dtype: torch.dtype, leaf: Any) -> Any:
    return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def _with_tensor_parallelism(inference: Mapping[str, Any], cards: int) -> dict[str, Any]:
    """Return the settings with tensor parallelism over the simulated cards."""
    settings = dict(inference)
    if "tensor_parallel" in settings:
        settings["tensor_parallel"] = {**settings["tensor_parallel"], "tp_size": cards}
    return settings


def _limits(simulation: Simulation, config: Any, inference: Mapping[str, Any], wanted: object) -> list[str]:
    """Return notes on settings that are not simulated, or that the device does not support according to Gaudi's
    documentation."""
    zero = (config or {}).get("zero_optimization", {})
    offload = {zero.get(kind, {}).get("device", "none") for kind in ("offload_optimizer", "offload_param")}
    cards = (inference.get("tensor_parallel") or {}).get("tp_size", wanted)
    device, world = simulation.device.name, simulation.ranks
    notes = {
        "DeepSpeed: Gaudi's documentation does not list ZeRO stage 3 as supported on Gaudi 2": (
            zero.get("stage") == 3 and device == "GAUDI2"
        ),
        "DeepSpeed: Gaudi's documentation says that offloading to NVMe is not verified": "nvme" in offload,
        "DeepSpeed: inference in float16 is not supported by the first Gaudi": (
            inference.get("dtype") in (torch.float16, "fp16", "half") and device == "GAUDI"
        ),
        "DeepSpeed: Gaudi's documentation lists tensor parallelism as supported only on Gaudi 2": (
            "tensor_parallel" in inference and device != "GAUDI2"
        ),
        f"DeepSpeed: the script asks for {cards} cards, but the run simulates {world}, so the others have no shards": (
            isinstance(cards, int) and cards > world
        ),
    }
    return [text for text, holds in notes.items() if holds]
