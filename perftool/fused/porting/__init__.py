"""Provides `habana_frameworks` on machines without a Gaudi, so that a script written for a Gaudi runs unedited.

Ops and optimizers come from this package. The device `hpu` stands for another device (see `install`). Importing or
accessing a missing name raises an error that names it.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import torch

from perftool.fused.porting.bridge import modules, not_provided, registered_ops
from perftool.fused.porting.device_remap import enter
from perftool.fused.porting.frameworks import BASE, Absent, module

_PACKAGES = ("habana_frameworks", "lightning_habana")
_installed = False


def install(device: str | None = None) -> None:
    """Provide `habana_frameworks` and the device `hpu` from now on, in this process and in processes that it starts.

    `device` replaces `hpu`; the default is `cuda` if available, else `cpu`. The call has no effect if the real package
    is installed, or if it was already called.
    """
    global _installed
    if _installed or importlib.util.find_spec(_PACKAGES[0]) is not None:
        return
    _installed = True
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    sys.modules.update(modules(device))
    sys.meta_path.extend(Absent(package, not_provided) for package in _PACKAGES)
    torch.hpu = sys.modules[f"{BASE}.hpu"]  # type: ignore[attr-defined]
    operators: Any = torch.ops
    operators.hpu = module("torch.ops.hpu", not_provided, registered_ops())
    enter(device)
