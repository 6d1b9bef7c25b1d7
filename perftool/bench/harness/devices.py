"""Selects the device to measure on."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from perftool.errors import PerfToolError


def choose_device(wanted: str) -> str:
    """Return ``wanted`` or, for ``auto``, the best available device. Raise PerfToolError if it is not available."""
    if wanted == "auto":
        return next(device for device in ("hpu", "cuda", "cpu") if _is_there(device))
    if not _is_there(wanted):
        raise PerfToolError(f"there is no {wanted} device here; use --device cpu")
    return wanted


def _is_there(device: str) -> bool:
    if device == "hpu":
        return find_spec("habana_frameworks") is not None
    return device == "cpu" or torch.cuda.is_available()
