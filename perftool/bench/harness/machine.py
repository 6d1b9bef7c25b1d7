"""What the machine is on which benchmarks run."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

from perftool.model.benchmark import Machine

_CPU_FACTS = Path("/proc/cpuinfo")


def this_machine() -> Machine:
    """The machine of this process."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=str(torch.__version__),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    )


def _processor() -> str:
    """Its name, and what of it decides how fast kernels are."""
    if not _CPU_FACTS.exists():
        return platform.processor() or "an unknown processor"
    facts = dict(line.split(":", 1) for line in _CPU_FACTS.read_text(encoding="utf-8").splitlines() if ":" in line)
    named = {key.strip(): value.strip() for key, value in facts.items()}
    return f"{named.get('model name', platform.machine())} ({torch.backends.cpu.get_cpu_capability()})"
