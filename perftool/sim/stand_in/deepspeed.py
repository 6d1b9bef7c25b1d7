"""``HPUDeepSpeedStrategy``: Lightning's own strategy, and the real DeepSpeed, which finds the device by itself.

DeepSpeed comes from PyPI and takes its HPU accelerator where ``habana_frameworks`` can be imported. What is added here
is what Habana's strategy adds: the backend, settings of its own for inference, and what the guide says of each device.
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

# The keys of a configuration of deepspeed.init_inference; one without any of them is for training.
_INFERENCE = frozenset({
    *("tensor_parallel", "dtype", "replace_with_kernel_inject", "enable_cuda_graph", "replace_method"),
    *("injection_policy", "mp_size", "quant", "checkpoint", "max_out_tokens", "return_tuple"),
})  # fmt: skip


def deepspeed_strategy(simulation: Simulation, base: Any) -> Any:
    """Habana's strategy, made of Lightning's ``DeepSpeedStrategy``; that one says so when there is no DeepSpeed."""
    known = inspect.signature(base.__init__).parameters
    remarks = simulation.machine.log.remarks

    class HPUDeepSpeedStrategy(base):  # type: ignore[misc]
        """ZeRO on the cards that there are, and inference by ``deepspeed.init_inference``."""

        strategy_name = "hpu_deepspeed"

        def __init__(self, *args: Any, parallel_devices: object = None, **options: Any) -> None:
            settings = dict(options)
            inference = {name: settings.pop(name) for name in options if name not in known}
            config = settings.get("config")
            if isinstance(config, Mapping) and _INFERENCE & config.keys():
                inference = {**settings.pop("config"), **inference}
            super().__init__(*args, **{"process_group_backend": "hccl", **settings})
            self._inference = inference
            # Lightning asks the accelerator for the devices, who knows how many there are.
            wanted = len(parallel_devices) if isinstance(parallel_devices, list) else parallel_devices
            limits = _limits(simulation, self.config, inference, wanted)
            remarks.extend(each for each in limits if each not in remarks)

        @property
        def root_device(self) -> torch.device:
            """Each process sees its own card as the first."""
            return HPU

        def setup_environment(self) -> None:
            """Without Lightning's check that the device is one of CUDA."""
            self.accelerator.setup_device(self.root_device)
            self.setup_distributed()

        def _initialize_deepspeed_inference(self, model: Any) -> None:
            if not self._inference:
                super()._initialize_deepspeed_inference(model)
                return
            deepspeed = import_module("deepspeed")
            self.model = deepspeed.init_inference(model, **_for_the_cards(self._inference, simulation.ranks))

        def batch_to_device(self, batch: Any, *args: Any, **options: Any) -> Any:
            """In inference the inputs have the type of the model: the plugin has cast them to its own."""
            dtype, moved = self._inference.get("dtype"), super().batch_to_device(batch, *args, **options)
            return tree_map(partial(_cast, dtype), moved) if isinstance(dtype, torch.dtype) else moved

    return HPUDeepSpeedStrategy


def _cast(dtype: torch.dtype, leaf: Any) -> Any:
    return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def _for_the_cards(inference: Mapping[str, Any], cards: int) -> dict[str, Any]:
    """The settings with as many cards for each product as there are."""
    settings = dict(inference)
    if "tensor_parallel" in settings:
        settings["tensor_parallel"] = {**settings["tensor_parallel"], "tp_size": cards}
    return settings


def _limits(simulation: Simulation, config: Any, inference: Mapping[str, Any], wanted: object) -> list[str]:
    """What the guide says that the device cannot do, and what is left out here."""
    zero = (config or {}).get("zero_optimization", {})
    offload = {zero.get(kind, {}).get("device", "none") for kind in ("offload_optimizer", "offload_param")}
    cards = (inference.get("tensor_parallel") or {}).get("tp_size", wanted)
    device, world = simulation.device.name, simulation.ranks
    told = {
        "DeepSpeed: the guide does not have ZeRO stage 3 among what Gaudi 2 supports": (
            zero.get("stage") == 3 and device == "GAUDI2"
        ),
        "DeepSpeed: offloading to NVMe is not verified on a Gaudi, says the guide": "nvme" in offload,
        "DeepSpeed: inference in float16 is not supported by the first Gaudi": (
            inference.get("dtype") in (torch.float16, "fp16", "half") and device == "GAUDI"
        ),
        "DeepSpeed: tensor parallelism is supported by Gaudi 2 alone, says the guide": (
            "tensor_parallel" in inference and device != "GAUDI2"
        ),
        f"DeepSpeed: the script asks for {cards} cards, and {world} simulated: nothing is sharded over the others": (
            isinstance(cards, int) and cards > world
        ),
    }
    return [text for text, holds in told.items() if holds]
