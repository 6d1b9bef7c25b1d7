"""Builds the paths of a simulated run's files."""

from __future__ import annotations

from pathlib import Path

from perftool.fused.porting.bridge import ranks_of_launcher


def place(script: Path, output: Path | None) -> Path:
    """Return the path of the trace of ``script``; each rank has its own."""
    trace = output or Path(f"{script.stem}.simulated.json.gz")
    ranks, rank, _ = ranks_of_launcher()
    return of_rank(trace, rank) if ranks > 1 else trace


def of_rank(trace: Path, rank: int) -> Path:
    """Return the path of one rank's trace: ``run.json.gz`` becomes ``run.rank1.json.gz``."""
    stem = _stem(trace)
    return trace.with_name(f"{stem}.rank{rank}{trace.name.removeprefix(stem)}")


def files(trace: Path) -> tuple[Path, Path, Path]:
    """Return the paths of the trace, the log and the metrics file."""
    stem = _stem(trace)
    return trace, trace.with_name(f"{stem}.log"), trace.with_name(f"{stem}.metrics.json")


def _stem(trace: Path) -> str:
    return trace.name.removesuffix(".gz").removesuffix(".json")
