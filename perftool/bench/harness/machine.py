"""Describes the machine on which benchmarks run."""

from __future__ import annotations

import os
import platform

import torch

from perftool.model.benchmark import Machine
from perftool.model.processors import processor_name


def this_machine() -> Machine:
    """Return a description of this machine."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=str(torch.__version__),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    )


def _processor() -> str:
    """Return the processor's name and the instruction set that PyTorch's kernels use."""
    name = processor_name() or platform.machine() or "an unknown processor"
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"
