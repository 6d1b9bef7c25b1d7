"""The modules of Gaudi's names, and the names that only configure the bridge; used by the stubs of every device."""

from __future__ import annotations

from perftool.fused import NAMES

BASE = "habana_frameworks.torch"

PLACES: dict[str, tuple[str, ...]] = {"hpex.optimizers": ("Adam", "AdamW")}
for (_, _place), _names in NAMES.items():
    PLACES[_place] = (*PLACES.get(_place, ()), *_names)
del PLACES[""]
"""Names of ops by the module from which scripts import them."""

FILES = {
    **{name: name for names in PLACES.values() for name in names if name.startswith(("Fused", "C"))},
    **{name: "RotaryPosEmbeddingHelper" for name in PLACES["hpex.kernels"] if "otary" in name.lower()},
    "Adam": "MarkstepAdam",
    "AdamW": "MarkstepAdamW",
    "RmsNormBwdMode": "FusedRMSNorm",
}
"""The file below that module that defines an op; scripts import from there too."""

SETTINGS = (
    *("hpu_set_env", "hpu_reset_env", "hpu_initialize", "hpu_inference_initialize", "hpu_set_inference_env"),
    *("hpu_inference_set_env", "hpu_teardown_inference_env", "enable_weight_sharing", "overwrite_torch_functions"),
    *("_mark_params_as_const", "_check_params_as_const"),
)
"""Functions of `core` that prepare a model or change a setting of the bridge."""

SWITCHES = (
    *("enable_dynamic_shape", "disable_dynamic_shape", "enable_inference_mode", "disable_inference_mode"),
    *("enable_quantization", "disable_quantization", "enable_optim_output_sif", "disable_optim_output_sif"),
    *("enable_matmul3d_2d_reshape", "disable_matmul3d_2d_reshape", "enable_const_section_serialization"),
    *("disable_const_section_serialization", "setDeterministic", "set_sync_debug_mode", "init", "empty_cache"),
)
"""Functions of `hpu` that switch a feature of the bridge."""


def modules_of(name: str) -> tuple[str, ...]:
    """The modules below `BASE` that have an op of this name."""
    places = [place for place, names in PLACES.items() if name in names]
    return (*places, *(f"{place}.{FILES[name]}" for place in places if name in FILES))
