"""Resource usage of this process. A value is None where the system does not report it, as on Windows."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

try:
    import resource
except ModuleNotFoundError:  # pragma: no cover - Windows
    resource = None  # type: ignore[assignment]


def resident_bytes() -> int | None:
    """Return the resident memory in bytes."""
    page = page_bytes()
    with suppress(OSError, ValueError, LookupError):
        resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return None if page is None else page * resident
    return None


def peak_bytes() -> int | None:
    """Return the peak resident memory in bytes."""
    if not resource:
        return None
    # The system reports bytes on macOS, and KiB elsewhere.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def page_bytes() -> int | None:
    """Return the size of a memory page in bytes."""
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE")
    return None


def page_faults() -> int | None:
    """Return the number of minor page faults, which need no I/O."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt if resource else None


def system_ns() -> int | None:
    """Return the CPU time in the kernel, in ns."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_stime * 1e9) if resource else None


def children_seconds() -> float | None:
    """Return the CPU time of finished child processes, for example compilers."""
    if not resource:
        return None
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime
