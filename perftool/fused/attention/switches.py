"""The global choice between recompute and no-recompute attention, and its context manager.

It holds for `FusedSDPA` calls whose `recompute_mode` is None. The default is recompute.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_recompute = True


def enable_recompute_sdp(enabled: bool) -> None:
    """Make recompute (True) or no-recompute (False) the mode of all later calls in this process."""
    global _recompute
    _recompute = bool(enabled)


def recompute_sdp_enabled() -> bool:
    """True when calls that do not name a mode recompute."""
    return _recompute


@contextmanager
def sdp_kernel(enable_recompute: bool = True) -> Iterator[None]:
    """Within the block, calls that do not name a mode recompute or not; the previous mode returns after it.

    Under `torch.compile` this splits the graph; pass `recompute_mode` to the call instead.
    """
    previous = recompute_sdp_enabled()
    enable_recompute_sdp(enable_recompute)
    try:
        yield
    finally:
        enable_recompute_sdp(previous)
