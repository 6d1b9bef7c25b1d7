"""Imports torch.profiler (or says how to install PyTorch), and finds what it can record on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from perftool.errors import MissingExtraError
from perftool.integrations.own_warnings import warn

try:
    import torch
    from torch import profiler as torch_profiler
    from torch.profiler import ProfilerAction, ProfilerActivity
except ModuleNotFoundError as error:
    raise MissingExtraError(
        "recording needs PyTorch; the extra `bench` installs it: pip install 'habana-perf-tool[bench]'"
    ) from error

__all__ = ["ProfilerAction", "ProfilerActivity", "activities_here", "torch_profiler"]


def activities_here() -> set[ProfilerActivity]:
    """Return the host and every kind of device that this PyTorch can record on this machine."""
    supported: Callable[[], Iterable[ProfilerActivity]] = torch_profiler.supported_activities
    found = set(supported())
    hpu = getattr(torch, "hpu", None)
    if hpu is not None and hpu.is_available():
        found.add(ProfilerActivity.HPU)
        if os.environ.get("HABANA_PROFILE") == "0":
            warn("HABANA_PROFILE=0 turns off the recording of device activity", stacklevel=3)
    return found
