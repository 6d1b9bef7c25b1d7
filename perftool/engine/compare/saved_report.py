"""Saved JSON reports, read back for a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from perftool.engine.compare.run_side import run_side, served_numbers, setting_of
from perftool.errors import InputError
from perftool.model.diff import RunSide, Setting
from perftool.model.efficiency import OpRate
from perftool.model.modules import ModuleTime
from perftool.model.report import Finding, Location, Share, Step, step_word

VERSION = 1
_MARK = b'"habana_perf_tool"'
_LARGEST = 64 << 20
_TEXTS = ("code", "name", "severity", "confidence", "subject", "message", "why", "fix")


def read_saved(path: str) -> RunSide | None:
    """The run described by a saved report; None when ``path`` is not one.

    Raises InputError for a report of another version, or with missing parts.
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
    tool = data.get("tool")
    if not isinstance(tool, dict) or tool.get("name") != "habana_perf_tool":
        return None
    if data.get("version") != VERSION:
        raise InputError(f"{path}: is a report of version {data.get('version')}, not {VERSION}")
    try:
        return _side(path, data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: is a damaged report ({type(error).__name__}: {error})") from None


def _side(path: str, data: Mapping[str, Any]) -> RunSide:
    return run_side(
        path,
        [_step(step) for step in data["steps"]],
        [Share(**row) for row in data["top_device_ops"]],
        [Share(**row) for row in data["top_ops"]],
        [_finding(found) for found in data["findings"]],
        all_ops=False,
        setting=_setting(data),
        rates=[OpRate(**row) for row in (data.get("efficiency") or {}).get("ops", ())],
        device=data["device"]["name"],
        served=served_numbers({name: metric["value"] for name, metric in data["summary"].items()}),
        modules=[ModuleTime(**row) for row in data.get("modules", ())],
        step_word=step_word((data.get("run") or {}).get("steps_from")),
    )


def _setting(data: Mapping[str, Any]) -> Setting:
    device, run = data["device"], data.get("run") or {}
    ranks = [read["rank"] for read in data["inputs"] if read["kind"] == "trace"]
    return setting_of(device["name"] or device["type"], ranks, run.get("world_size"))


def _step(step: Mapping[str, Any]) -> Step:
    return Step(
        step["rank"], step["name"], step["ts_ns"], step["dur_ns"], step["breakdown_ns"], step["partial"],
        step.get("left_out"), step.get("time_ns", {}),
    )  # fmt: skip


def _finding(found: Mapping[str, Any]) -> Finding:
    texts = {key: found[key] for key in _TEXTS}
    return Finding(
        **texts, rank=found["rank"], location=Location(), related=(), evidence=found["evidence"], gain=None,
        fingerprint=found["fingerprint"], benchmark=None,
    )  # fmt: skip
