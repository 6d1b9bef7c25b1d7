"""Keeps our own ops out of the modes that the program has entered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import _disable_current_modes


@contextmanager
def unseen_by_modes() -> Iterator[None]:
    """Run PyTorch's ops outside the program's modes, such as a FLOP counter, a tracer or a default device."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        yield
