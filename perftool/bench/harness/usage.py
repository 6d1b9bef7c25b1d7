"""Resource usage of this process. Windows does not report it, so the values are 0 there."""

from __future__ import annotations

import sys

try:
    import resource
except ModuleNotFoundError:  # pragma: no cover - Windows
    resource = None  # type: ignore[assignment]


def page_faults() -> int:
    """Page faults of this process that needed no disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt if resource else 0


def peak_bytes() -> int:
    """Peak resident memory of this process in bytes."""
    if not resource:
        return 0
    # In bytes on macOS, in KiB elsewhere.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def children_seconds() -> float:
    """CPU time of finished child processes, for example compilers."""
    if not resource:
        return 0.0
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime
