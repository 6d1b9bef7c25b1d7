"""Finds the source files of findings on this machine. Traces contain the paths of the machine that recorded them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from perftool.model.report import Finding, Report, Source

# For a path outside all roots, the last parts identify the file without revealing the machine's folders.
_SHOWN_PARTS = 3
# Linux cannot open paths of more than 4,096 bytes, and each part takes at least a letter and a slash.
_MOST_PARTS = 2048


def place_sources(report: Report, roots: Sequence[Path], *, shorten: bool = False) -> Report:
    """Replace each source file in ``report`` by its longest suffix that exists under one of ``roots``, if any.

    The new path is relative to the first root if the file is inside it. With ``shorten``, no absolute path remains:
    files outside all roots keep only their last parts.
    """
    placed = partial(_placed, found=cache(partial(_found, roots=tuple(roots))), shorten=shorten)
    return replace(report, findings=tuple(map(placed, report.findings)))


def _placed(finding: Finding, found: Callable[[str], str | None], shorten: bool) -> Finding:
    sources = tuple(_source(source, found, shorten) for source in finding.location.sources)
    return replace(finding, location=replace(finding.location, sources=sources)) if sources else finding


def _source(source: Source, found: Callable[[str], str | None], shorten: bool) -> Source:
    if source.file is None:
        return source
    if (here := found(source.file)) is not None:
        return replace(source, file=here, here=True)
    absolute = source.file.startswith(("/", "\\")) or source.file[1:2] == ":"
    return replace(source, file="/".join(_parts(source.file)[-_SHOWN_PARTS:])) if absolute and shorten else source


def _parts(file: str) -> list[str]:
    return [part for part in file.replace("\\", "/").split("/") if part not in ("", ".", "..")]


def _found(file: str, roots: Sequence[Path]) -> str | None:
    """Return the longest suffix of ``file`` that exists under a root, or None if no suffix does. The result is relative
    to the first root if it is inside that root."""
    parts = _parts(file)[-_MOST_PARTS:]
    for at in range(len(parts)):
        below = "/".join(parts[at:])
        # Unlike Path.is_file, this returns False for a name that no file system accepts.
        root = next((root for root in roots if os.path.isfile(root / below)), None)
        if root is not None:
            return _below(root / below, roots[0]) or below
    return None


def _below(file: Path, project: Path) -> str | None:
    """Return ``file`` relative to ``project``, or None if it is elsewhere."""
    place, top = file.resolve(), project.resolve()
    return place.relative_to(top).as_posix() if place.is_relative_to(top) else None
