"""The paths of the files of a simulated run."""

from __future__ import annotations

from pathlib import Path

from perftool.fused.porting.bridge import ranks_of_launcher


def place(script: Path, output: Path | None) -> Path:
    """The path of the trace of ``script``, which is different for each rank."""
    trace = output or Path(f"{script.stem}.simulated.json.gz")
    ranks, rank, _ = ranks_of_launcher()
    return of_rank(trace, rank) if ranks > 1 else trace


def of_rank(trace: Path, rank: int) -> Path:
    """The trace of one rank: ``run.json.gz`` becomes ``run.rank1.json.gz``."""
    stem = _stem(trace)
    return trace.with_name(f"{stem}.rank{rank}{trace.name.removeprefix(stem)}")


def files(trace: Path) -> tuple[Path, Path, Path]:
    """The paths of trace, log and metrics."""
    stem = _stem(trace)
    return trace, trace.with_name(f"{stem}.log"), trace.with_name(f"{stem}.metrics.json")


def _stem(trace: Path) -> str:
    return trace.name.removesuffix(".gz").removesuffix(".json")
