"""The processor of this machine, and how much of it this process may use."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_CPU_FACTS = Path("/proc/cpuinfo")
_CGROUPS = Path("/sys/fs/cgroup")


def processor_name() -> str | None:
    """Return the name of the processor, or None if unknown."""
    with suppress(OSError):
        for line in _CPU_FACTS.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or None


# Matrix and vector instruction sets, by their names in Linux.
_SETS = {
    "amx_bf16": "AMX-BF16", "amx_int8": "AMX-INT8", "amx_fp16": "AMX-FP16", "avx512_bf16": "AVX512-BF16",
    "avx512_fp16": "AVX512-FP16", "avx512_vnni": "AVX512-VNNI", "avx512f": "AVX512", "avx2": "AVX2",
    "sve2": "SVE2", "sve": "SVE", "bf16": "BF16", "i8mm": "I8MM", "asimd": "NEON",
}  # fmt: skip


def instruction_sets() -> list[str] | None:
    """Return the processor's matrix and vector instruction sets, or None if unknown."""
    with suppress(OSError):
        for line in _CPU_FACTS.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("flags", "Features"):
                flags = set(value.split())
                return [name for flag, name in _SETS.items() if flag in flags]
    return None


def cores_allowed() -> set[int] | None:
    """Return the cores that threads of this process may run on, or None if the system does not report them (macOS,
    Windows).
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    # Check all threads, because OpenMP may have pinned this thread to a single core.
    found = set(os.sched_getaffinity(0))
    with suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            with suppress(OSError):
                found |= os.sched_getaffinity(int(thread))
    return found


def cores_quota() -> float | None:
    """Return the CPU quota of this process's control groups, in cores, or None if there is no limit."""
    return min(_quotas(), default=None)


def _quotas() -> Iterator[float]:
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            number, kinds, path = line.split(":", 2)
            second = number == "0" and not kinds
            if not second and "cpu" not in kinds.split(","):
                continue
            home = _CGROUPS if second else _CGROUPS / "cpu"
            here = home / path.lstrip("/")
            # Inside a container, /sys/fs/cgroup itself is the group, and the path may not exist.
            for folder in (here, *here.parents):
                if folder == home.parent:
                    break
                with suppress(OSError, ValueError):
                    yield from _quota(folder, second)


def _quota(folder: Path, second: bool) -> Iterator[float]:
    if second:
        quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
    else:
        quota, period = ((folder / f"cpu.cfs_{part}_us").read_text(encoding="utf-8") for part in ("quota", "period"))
    if quota.strip() != "max" and int(quota) > 0:
        yield int(quota) / int(period)
