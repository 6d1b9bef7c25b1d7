"""How much memory the machine and the control group of this process allow."""

from __future__ import annotations

from pathlib import Path

# The files with the memory limit of this process's control group (version 2, version 1).
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def group_limits() -> list[int]:
    """Return the memory limits of the control group in bytes. The result is empty if there are none."""
    return [size for limit in _CGROUP_LIMITS if (size := _number(limit)) is not None]


def free_memory_mb() -> int:
    """Return the free memory of the machine in MB, capped by the limit of the control group, or a huge number if both
    are unknown."""
    limits = [_number(_CGROUP_LIMITS[0]), _number(Path("/proc/meminfo"), 1, 1024, "MemAvailable")]
    return min((limit for limit in limits if limit is not None), default=1 << 60) >> 20


def _number(path: Path, word: int = 0, unit: int = 1, begins: str = "") -> int | None:
    """Return the number at position ``word`` in the first line of ``path`` that starts with ``begins``, times ``unit``,
    or None if there is none."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    words = next((line.split() for line in lines if line.startswith(begins)), [])
    return int(words[word]) * unit if len(words) > word and words[word].isdigit() else None
