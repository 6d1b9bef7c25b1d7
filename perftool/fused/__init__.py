"""Gaudi's fused optimizers and custom ops, with Gaudi's signatures, on any device.

The public names are loaded on first use, so that importing `perftool` never imports torch.
"""

from __future__ import annotations

import importlib
from typing import Any

from perftool.errors import MissingExtraError

_MODULE_OF = {
    "CTCLoss": "functions",
    "CustomSoftmax": "functions",
    "FusedAdagrad": "optimizers.adagrad",
    "FusedAdamW": "optimizers.adamw",
    "FusedClipNorm": "optimizers.clip_norm",
    "FusedEMA": "optimizers.ema",
    "FusedLamb": "optimizers.lamb",
    "FusedLars": "optimizers.lars",
    "FusedRMSNorm": "functions",
    "FusedResourceApplyMomentum": "optimizers.resource_momentum",
    "FusedSDPA": "attention",
    "FusedSGD": "optimizers.sgd",
    "HPUGraph": "graphs",
    "ModuleCacher": "graphs",
    "RmsNormBwdMode": "functions",
    "RotaryPosEmbeddingHelperV1": "rotary",
    "RotaryPosEmbeddingHelperV2": "rotary",
    "RotaryPosEmbeddingHelperV3": "rotary",
    "RotaryPosEmbeddingMode": "rotary",
    "all_reduce_gradients": "all_reduce",
    "apply_rotary_pos_emb": "rotary",
    "backends": "dispatch",
    "enable_recompute_sdp": "attention",
    "graph": "graphs",
    "install": "porting",
    "make_graphed_callables": "graphs",
    "mixture_of_experts": "experts",
    "recompute_sdp_enabled": "attention",
    "sdp_kernel": "attention",
    "wrap_in_hpu_graph": "graphs",
}

__all__ = [*sorted(_MODULE_OF), "distributed"]


def __getattr__(name: str) -> Any:
    """Load a public name; without torch, MissingExtraError names the extra that installs it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_MODULE_OF.get(name, name)}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError(
            f"perftool.fused.{name} needs PyTorch; the extra `bench` brings it: pip install 'habana-perf-tool[bench]'."
        ) from error
    globals()[name] = module if name == "distributed" else getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
