"""Reads saved JSON reports for a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from perftool.engine.compare.run_side import device_ranks, run_side, served_numbers, setting_of
from perftool.engine.ranks.plain import from_plain, to_plain
from perftool.engine.report.efficiency import MOST_OPS
from perftool.errors import InputError
from perftool.model.diff import RunSide, Setting
from perftool.model.efficiency import OpRate
from perftool.model.inputs import InputFile
from perftool.model.iterations import ServingPhase
from perftool.model.modules import ModuleTime
from perftool.model.report import Finding, Share, Step, StepSource
from perftool.readers.text.bounded_json import parsed
from perftool.readers.trace.envelope import holds_events

VERSION = 1
_MARK = b'"habana_perf_tool"'
_LARGEST = 64 << 20
_STEP = ("rank", "name", "ts_ns", "dur_ns", "breakdown_ns", "partial", "left_out", "time_ns")
_INPUT = ("path", "kind", "rank", "bytes", "events", "status", "issues")
_FINDING = (
    "code", "name", "severity", "confidence", "subject", "message", "why", "fix", "rank", "evidence", "fingerprint",
)  # fmt: skip


def read_saved(path: str) -> RunSide | None:
    """Read the run described by a saved report. Return None if ``path`` is not a report.

    Raise InputError if the report has another version or is incomplete.
    """
    place = Path(path)
    try:
        text = place.read_bytes() if place.is_file() and place.stat().st_size <= _LARGEST else b""
    except OSError:
        return None
    if _MARK not in text or not text.lstrip().startswith(b"{"):
        return None
    # A trace may contain the same keys as a report.
    if holds_events(text):
        return None
    try:
        data = parsed(text)
    except ValueError:
        return None
    tool = data.get("tool")
    if not isinstance(tool, dict) or tool.get("name") != "habana_perf_tool":
        return None
    version = data.get("version")
    if not isinstance(version, int):
        raise InputError(f"{path}: corrupt report (it has no version number)")
    if version != VERSION:
        raise InputError(f"{path}: the report has version {version}, not {VERSION}")
    try:
        return _side(path, data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: corrupt report ({type(error).__name__}: {error})") from None


def _side(path: str, data: Mapping[str, Any]) -> RunSide:
    run = data.get("run") or {}
    side = run_side(
        path,
        from_plain(tuple[Step, ...], [_fields(step, _STEP) for step in data["steps"]]),
        from_plain(tuple[Share, ...], data["top_device_ops"]),
        from_plain(tuple[Share, ...], data["top_ops"]),
        [_finding(found) for found in data["findings"]],
        all_ops=False,
        setting=_setting(data),
        rates=from_plain(tuple[OpRate, ...], (data.get("efficiency") or {}).get("ops", [])[:MOST_OPS]),
        device=None if (name := data["device"]["name"]) is None else from_plain(str, name),
        served=served_numbers(
            from_plain(dict[str, float | None], {key: one["value"] for key, one in data["summary"].items()})
        ),
        modules=from_plain(tuple[ModuleTime, ...], data.get("modules", [])),
        steps_from=next((known for known in get_args(StepSource) if known == run.get("steps_from")), None),
        step_unit=None if (unit := run.get("step_unit")) is None else from_plain(str, unit),
        inputs=from_plain(tuple[InputFile, ...], [_fields(read, _INPUT) for read in data["inputs"]]),
        recorded_ns=from_plain(dict[int, int], _of_ranks(data, "recorded_ns")),
        worked=_worked(data),
        lost_kernels=from_plain(dict[int, float], _of_ranks(data, "lost_kernels_ratio")),
        phases=from_plain(tuple[ServingPhase, ...], (data.get("serving") or {}).get("phases", [])),
    )
    return replace(side, lost=(*from_plain(tuple[str, ...], data.get("omitted", [])), *side.lost))


def _setting(data: Mapping[str, Any]) -> Setting:
    device, run = data["device"], data.get("run") or {}
    ranks = [read["rank"] for read in data["inputs"] if read["kind"] == "trace"]
    setting = setting_of(device["name"] or device["type"], ranks, run.get("world_size"))
    return from_plain(Setting, to_plain(setting))


def _worked(data: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the ranks with work on an accelerator, or None if the report is from an earlier version, which lacks
    them.
    """
    if "ranks" not in data:
        return None
    shown = device_ranks({one["rank"]: one["busy_ns"] for one in data["ranks"]}, data["device"]["type"])
    return from_plain(tuple[int, ...], list(shown))


def _of_ranks(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the values of the field ``name``, by rank (as a string). Ranks that lack it are left out, so the result is
    empty for reports from earlier versions."""
    return {str(one["rank"]): one[name] for one in data.get("ranks", []) if one.get(name) is not None}


def _finding(found: Mapping[str, Any]) -> Finding:
    return from_plain(
        Finding, {**_fields(found, _FINDING), "location": {}, "related": [], "gain": None, "benchmark": None}
    )


def _fields(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: row[name] for name in names if name in row}
