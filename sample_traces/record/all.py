"""Records the CPU samples again: ``python sample_traces/record/all.py [NAMES]``. Needs PyTorch and g++."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = (
    "healthy",
    "loader_starved",
    "many_small_ops",
    "profiler_overhead",
    "scalar_reads",
    "small_allreduce",
    "torch_compile_recompile",
    "unfused_optimizer",
    "unstable_steps",
)


def main(names: list[str]) -> None:
    """Run the scripts ``names``, or all, each in a separate process, so that no recording warms up the next."""
    single = dict(os.environ, OMP_NUM_THREADS="1", PYTHONHASHSEED="0")
    for name in names or SCRIPTS:
        print(f"recording {name}", flush=True)
        subprocess.run([sys.executable, str(HERE / f"{name}.py")], env=single, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
