"""Lines that a run on Gaudi prints to the console, except those about fallbacks."""

from __future__ import annotations

from collections.abc import Mapping

from builders.fallback_logs import LogRecord

_TITLE = "============================= HABANA PT BRIDGE CONFIGURATION =========================== "

LAZY_DEFAULTS: Mapping[str, str] = {
    "PT_HPU_LAZY_MODE": "1",
    "PT_RECIPE_CACHE_PATH": "",
    "PT_CACHE_FOLDER_DELETE": "0",
    "PT_HPU_RECIPE_CACHE_CONFIG": "",
    "PT_HPU_MAX_COMPOUND_OP_SIZE": "9223372036854775807",
    "PT_HPU_LAZY_ACC_PAR_MODE": "1",
    "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES": "0",
    "PT_HPU_EAGER_PIPELINE_ENABLE": "1",
    "PT_HPU_EAGER_COLLECTIVE_PIPELINE_ENABLE": "1",
}
"""The fields of release 1.19 in printing order."""


def banner(cores: int = 160, memory_kb: int = 1_056_412_772, **changed: str) -> str:
    """Return the start-up banner. ``changed`` overrides fields of :data:`LAZY_DEFAULTS`."""
    fields = [f" {name} = {value}" for name, value in {**LAZY_DEFAULTS, **changed}.items()]
    system = [
        "---------------------------: System Configuration :---------------------------",
        f"Num CPU Cores : {cores}",
        f"CPU RAM       : {memory_kb} KB",
        "------------------------------------------------------------------------------",
    ]
    return "\n".join([_TITLE, *fields, *system]) + "\n"


def step_marker(reason: str, clock: str = "20:57:12.104233") -> str:
    """Return the log line that explains why the lazy graph was cut (``LOG_LEVEL_PT_IRGRAPH=1``)."""
    return LogRecord("PT_IRGRAPH", "debug", f"step marker due to {reason}", clock).line() + "\n"


def hugging_face_start(examples: int, epochs: int, batch: int, steps: int, parameters: int) -> str:
    """Return the start-up lines of a Hugging Face trainer on one card."""
    return "\n".join(
        [
            "***** Running training *****",
            f"  Num examples = {examples:,}",
            f"  Num Epochs = {epochs}",
            f"  Instantaneous batch size per device = {batch}",
            f"  Total train batch size (w. parallel, distributed & accumulation) = {batch}",
            "  Gradient Accumulation steps = 1",
            f"  Total optimization steps = {steps}",
            f"  Number of trainable parameters = {parameters:,}",
            "",
        ]
    )


def eviction(recipe_id: int, size_after: int, clock: str = "20:57:12.104233") -> str:
    """Return the log line about a recipe removed from the disk cache. Release 1.19 prints no space before
    ``successfully``.
    """
    text = f"[CACHEFILE] Removed {recipe_id}successfully. Disk cache size after removal: {size_after}"
    return LogRecord("PT_HABHELPER", "info", text, clock).line() + "\n"
