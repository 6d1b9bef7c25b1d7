"""Saved JSON reports, read back for a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from perftool.engine.op_totals import totals
from perftool.errors import InputError
from perftool.model.diff import OpTotal, RunSide
from perftool.model.report import BREAKDOWN, Finding, Location, Share

VERSION = 1
_MARK = b'"habana_perf_tool"'
_LARGEST = 64 << 20
_TEXTS = ("code", "name", "severity", "confidence", "subject", "message", "why", "fix")


def read_saved(path: str) -> RunSide | None:
    """The run that a saved report tells of; None when ``path`` is something else.

    Raises InputError for a report of another version or one with parts missing.
    """
    place = Path(path)
    try:
        text = place.read_bytes() if place.is_file() and place.stat().st_size <= _LARGEST else b""
    except OSError:
        return None
    if _MARK not in text or not text.lstrip().startswith(b"{"):
        return None
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if data.get("tool", {}).get("name") != "habana_perf_tool":
        return None
    if data.get("version") != VERSION:
        raise InputError(f"{path}: is a report of version {data.get('version')}, not {VERSION}")
    try:
        return _side(path, data)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: is a damaged report ({type(error).__name__}: {error})") from None


def _side(path: str, data: Mapping[str, Any]) -> RunSide:
    steps = [step for step in data["steps"] if not step["partial"]]
    longest: dict[str, int] = {}
    for step in steps:
        longest[step["name"]] = max(longest.get(step["name"], 0), int(step["dur_ns"]))
    parts = {part: sum(step["breakdown_ns"][part] for step in steps) / max(1, len(steps)) for part in BREAKDOWN}
    return RunSide(
        name=path,
        step_ns=tuple(longest.values()),
        breakdown_ns=parts,
        device_ops=_ops(data["top_device_ops"], len(steps)),
        ops=_ops(data["top_ops"], len(steps)),
        findings=tuple(_finding(found) for found in data["findings"]),
        all_ops=False,
    )


def _ops(rows: list[Mapping[str, Any]], steps: int) -> tuple[OpTotal, ...]:
    return totals((Share(**row) for row in rows), max(1, steps))


def _finding(found: Mapping[str, Any]) -> Finding:
    texts = {key: found[key] for key in _TEXTS}
    return Finding(
        **texts, rank=found["rank"], location=Location(), related=(), evidence={}, gain=None,
        fingerprint=found["fingerprint"], benchmark=None,
    )  # fmt: skip
