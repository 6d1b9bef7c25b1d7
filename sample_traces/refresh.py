"""Recreates all samples, or only NAMES: ``python sample_traces/refresh.py [NAMES]``. Needs PyTorch and g++.

A name is a recording (``healthy``), a benchmark (``fused_adamw``), or ``gaudi`` for the samples made by hand.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "record")]

from all import SCRIPTS  # noqa: E402

from perftool.bench import benchmark_names  # noqa: E402

BY_HAND = "gaudi"


def main(names: list[str]) -> None:
    """Recreate the samples ``names``, or all samples. Exit with a message if a name is unknown."""
    groups = {
        "make_gaudi_samples.py": [BY_HAND],
        "record/all.py": list(SCRIPTS),
        "record/benchmarks.py": benchmark_names(),
    }
    unknown = set(names).difference(*groups.values())
    if unknown:
        sys.exit(f"there is no sample {', '.join(sorted(unknown))}")
    for script, members in groups.items():
        chosen = [name for name in members if name in names or not names]
        if chosen:
            _run(script, [] if chosen == [BY_HAND] else chosen)


def _run(script: str, arguments: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    subprocess.run([sys.executable, str(HERE / script), *arguments], env=environment, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
