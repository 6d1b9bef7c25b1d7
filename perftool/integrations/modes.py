"""Keeps our own ops out of the modes that the program has entered, and out of what it records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from torch.utils._python_dispatch import _disable_current_modes


@contextmanager
def unseen_by_modes() -> Iterator[None]:
    """Run PyTorch's ops outside the program's modes, such as a FLOP counter, a tracer or a default device."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        yield


@contextmanager
def unrecorded() -> Iterator[None]:
    """Run PyTorch's ops without the observers of the program, such as an execution trace."""
    _record_ops(False)
    try:
        yield
    finally:
        # PyTorch does not tell whether ops were recorded before. They are, unless something disabled it.
        _record_ops(True)


def _record_ops(recorded: bool) -> None:
    """Choose whether observers see the ops of this thread. The function is private, so a version may lack it."""
    with suppress(AttributeError):
        torch.autograd._enable_record_function(recorded)  # type: ignore[attr-defined]
