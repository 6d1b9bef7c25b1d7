"""Lines of code as they lie on this machine: a trace names the files as the machine that recorded it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

from perftool.model.report import Finding, Report, Source

# Of a path that is not below a root the end is enough to know it by, and tells nothing of the machine.
_SHOWN_PARTS = 3


def place_sources(report: Report, roots: Sequence[Path], *, shorten: bool = False) -> Report:
    """``report`` with every source file that one of ``roots`` has, by the longest suffix, as a path below the first.

    With ``shorten`` no absolute path is left: of those that no root has, the end remains.
    """
    placed = partial(_placed, roots=roots, shorten=shorten)
    return replace(report, findings=tuple(map(placed, report.findings)))


def _placed(finding: Finding, roots: Sequence[Path], shorten: bool) -> Finding:
    sources = tuple(_source(source, roots, shorten) for source in finding.location.sources)
    return replace(finding, location=replace(finding.location, sources=sources)) if sources else finding


def _source(source: Source, roots: Sequence[Path], shorten: bool) -> Source:
    if source.file is None:
        return source
    parts = [part for part in source.file.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    for at in range(len(parts)):
        below = PurePosixPath(*parts[at:])
        root = next((root for root in roots if (root / below).is_file()), None)
        if root is not None:
            return replace(source, file=_below(root / below, roots[0]) or str(below), here=True)
    absolute = source.file.startswith(("/", "\\")) or source.file[1:2] == ":"
    return replace(source, file="/".join(parts[-_SHOWN_PARTS:])) if absolute and shorten else source


def _below(file: Path, project: Path) -> str | None:
    """``file`` relative to ``project``, or None when it lies elsewhere."""
    place, top = file.resolve(), project.resolve()
    return place.relative_to(top).as_posix() if place.is_relative_to(top) else None
