"""Writes the Gaudi samples: ``python sample_traces/make_gaudi_samples.py [FOLDER]``.

The samples are made by hand from public descriptions of the formats. No Gaudi was involved. Running the
script again gives the same bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE)]

import gaudi3_compiled  # noqa: E402
import gaudi_optimised  # noqa: E402
import gaudi_unoptimised  # noqa: E402
from builders.gaudi import GaudiTrace  # noqa: E402
from builders.metrics_files import json_file  # noqa: E402
from gaudi_run import Run  # noqa: E402

NOTE = "Made by hand from the public description of the format; not recorded on a device."


def main(folder: Path) -> None:
    """Write every sample below the folder."""
    _write_run(folder / "gaudi2_unoptimised", gaudi_unoptimised.run(_trace()))
    _write_run(folder / "gaudi2_optimised", gaudi_optimised.run(_trace()))
    compiled = GaudiTrace("C", "GAUDI3", 20417, note=NOTE)
    gaudi3_compiled.fill(compiled).write(folder / "gaudi3_gen_c.json.gz")


def _trace() -> GaudiTrace:
    # A 25th TPC is named although it never runs, because real metadata lists the spare one.
    trace = GaudiTrace("B", "GAUDI2", note=NOTE, rank=0)
    trace.lane("TPC", 24)
    return trace


def _write_run(folder: Path, run: Run) -> None:
    run.trace.write(folder / "rank0.pt.trace.json.gz")
    (folder / "console.log").write_text("".join(run.console), encoding="utf-8")
    (folder / "metrics-rank0.json").write_text(json_file(run.snapshots), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
