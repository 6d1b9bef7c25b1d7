"""Gaudi's fused optimizers and custom ops, with Gaudi's signatures, on any device.

The public names are loaded on first use, so that importing `perftool` never imports torch.
"""

from __future__ import annotations

import importlib
from typing import Any

from perftool.errors import MissingExtraError

NAMES: dict[tuple[str, str], tuple[str, ...]] = {
    ("functions", "hpex.kernels"): ("CTCLoss", "CustomSoftmax"),
    ("functions", "hpex.normalization"): ("FusedRMSNorm", "RmsNormBwdMode"),
    ("optimizers.adagrad", "hpex.optimizers"): ("FusedAdagrad",),
    ("optimizers.adamw", "hpex.optimizers"): ("FusedAdamW",),
    ("optimizers.lamb", "hpex.optimizers"): ("FusedLamb",),
    ("optimizers.lars", "hpex.optimizers"): ("FusedLars", "FusedResourceApplyMomentum"),
    ("optimizers.sgd", "hpex.optimizers"): ("FusedSGD",),
    ("optimizers.clip_norm", "hpex.normalization"): ("FusedClipNorm",),
    ("optimizers.ema", "hpex.movingavrg"): ("FusedEMA",),
    ("attention", "hpex.kernels"): ("FusedSDPA",),
    ("attention", "hpu"): ("enable_recompute_sdp", "recompute_sdp_enabled", "sdp_kernel"),
    ("graphs.modules", "hpu.graphs"): ("ModuleCacher", "make_graphed_callables", "wrap_in_hpu_graph"),
    ("graphs.capture", "hpu.graphs"): ("HPUGraph", "graph"),
    ("rotary", "hpex.kernels"): (
        *("RotaryPosEmbeddingHelperV1", "RotaryPosEmbeddingHelperV2", "RotaryPosEmbeddingHelperV3"),
        *("RotaryPosEmbeddingMode", "apply_rotary_pos_emb"),
    ),
    ("all_reduce", ""): ("all_reduce_gradients",),
    ("dispatch", ""): ("backends",),
    ("porting", ""): ("install",),
    ("experts", ""): ("mixture_of_experts",),
}
"""Public names by their module here and Gaudi's module below `habana_frameworks.torch` ("" if Gaudi has none)."""

_MODULE_OF = {name: module for (module, _), names in NAMES.items() for name in names}

__all__ = [*sorted(_MODULE_OF), "distributed"]


def __getattr__(name: str) -> Any:
    """Load a public name. If torch is missing, MissingExtraError names the extra that installs it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_MODULE_OF.get(name, name)}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        how = "the extra `bench` installs it: pip install 'habana-perf-tool[bench]'."
        raise MissingExtraError(f"perftool.fused.{name} needs PyTorch; {how}") from error
    globals()[name] = module if name == "distributed" else getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
