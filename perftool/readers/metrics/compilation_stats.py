"""Reads the files that Gaudi's bridge writes to ``PT_COMPILATION_STATS_PATH``, one per graph and process.

A file is an array of objects ``{"<nine-digit step>": {"shapes": ..., "compilations": [...], ...}}``. If a step has no
``compilations``, its recipe was in the cache.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from os import PathLike, fspath
from typing import Any

from perftool.model.records import CompilationRecord, LogReading
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.open_array import array_objects
from perftool.readers.text.text_lines import MAX_JSON_LINE, Source, read_lines

START = re.compile(r'\{\s*"\d{9}"\s*:')
_FILE_NAME = re.compile(r"_(\d{1,6})_[0-9A-Fa-f]+\.json$")


def read(source: Source, rank: int | None = None) -> LogReading:
    """Read one record per compilation. ``step`` counts the runs of the graph up to the one that needed the compilation.

    ``reason`` is ``new shapes`` if no earlier step had the same input shapes. ``trigger`` is the policy for dynamic
    shapes under which the graph was compiled. The rank comes from the file's name unless it is given. Raise InputError
    if the file cannot be opened or read.
    """
    if rank is None and isinstance(source, (str, PathLike)) and (match := _FILE_NAME.search(fspath(source))):
        rank = int(match[1])
    tally = IssueTally()
    seen: set[str] = set()
    records: list[CompilationRecord] = []
    for value in array_objects(read_lines(source, tally, MAX_JSON_LINE), START, tally):
        for step, content in value.items():
            if not re.fullmatch(r"[0-9]{1,18}", step) or not isinstance(content, dict):
                tally.note("not a step", "an object in the file is not a step with compilations")
                continue
            reason = _reason(content, seen)
            for compilation in _compilations(content):
                if tally.has_room(len(records), "compilations"):
                    records.append(_record(compilation, int(step), len(records), reason, rank))
    return LogReading(compilations=tuple(records), issues=tally.issues(), kind="metrics")


def _reason(content: dict[str, Any], seen: set[str]) -> str | None:
    if "shapes" not in content:
        return None
    shapes = json.dumps(content["shapes"], sort_keys=True)
    known = shapes in seen
    seen.add(shapes)
    return "same shapes" if known else "new shapes"


def _compilations(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    listed = content.get("compilations")
    if isinstance(listed, list):
        yield from (item for item in listed if isinstance(item, dict))


def _record(
    compilation: dict[str, Any], step: int, ordinal: int, reason: str | None, rank: int | None
) -> CompilationRecord:
    recipe, scope = compilation.get("recipe"), compilation.get("scope")
    return CompilationRecord(
        "compilation_stats",
        recipe=None if recipe is None else str(recipe),
        ordinal=ordinal,
        step=step,
        reason=reason,
        trigger=scope if isinstance(scope, str) else None,
        rank=rank,
    )
