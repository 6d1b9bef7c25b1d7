"""The report as JSON, in version 1 of the format that docs/json.md describes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson

from perftool import __version__
from perftool.model.iterations import Serving
from perftool.model.replayed import ReplayedRun, ReplayModel
from perftool.model.report import Finding, Gain, Location, Report, Share
from perftool.reporters.escape import json_text

VERSION = 1
TOOL = {"name": "habana_perf_tool", "version": __version__}


def render_json(report: Report) -> bytes:
    """Render the report as one UTF-8 JSON object with sorted keys and a trailing newline. Missing values are null."""
    return dump(as_dict(report), indent=True)


def as_dict(report: Report) -> dict[str, Any]:
    """Convert the report to plain values, in the form that docs/json.md describes."""
    return {
        "version": VERSION,
        "tool": TOOL,
        "inputs": [
            {
                "path": read.path, "kind": read.kind, "rank": read.rank, "bytes": read.bytes, "events": read.events,
                "status": read.status,
                "issues": [{"kind": i.kind, "count": i.count, "message": i.message} for i in read.issues],
            }
            for read in report.inputs
        ],
        "omitted": list(report.omitted),
        "device": {"type": report.device.type, "name": report.device.name, "count": report.device.count},
        "run": asdict(report.run),
        "verdict": {
            "headline": report.verdict.headline,
            "detail": report.verdict.below,
            "causes": [
                {
                    "name": cause.name, "text": cause.text, "share": cause.share, "ns_per_step": cause.ns_per_step,
                    "codes": list(cause.codes), "longest": cause.longest and _place(cause.longest),
                    "within": cause.within,
                }
                for cause in report.verdict.causes
            ],
        },
        "summary": {
            name: {"value": m.value, "unit": m.unit, "numerator": m.numerator, "denominator": m.denominator}
            for name, m in report.summary.items()
        },
        "steps": [
            {
                "rank": step.rank, "name": step.name, "ts_ns": step.ts_ns, "dur_ns": step.dur_ns,
                "breakdown_ns": dict(step.breakdown_ns), "time_ns": dict(step.parts_ns), "partial": step.partial,
                "left_out": step.left_out,
            }
            for step in report.steps
        ],
        "ranks": [asdict(rank) for rank in report.ranks],
        "phases": [asdict(phase) for phase in report.phases],
        "serving": report.serving and _serving(report.serving),
        "groups": [asdict(role) for role in report.groups],
        "idle_causes": _shares(report.idle_causes),
        "top_device_ops": _shares(report.top_device_ops),
        "top_ops": _shares(report.top_ops),
        "engines": [asdict(engine) for engine in report.engines],
        "recipes": [asdict(recipe) for recipe in report.recipes],
        "fallbacks": [asdict(fallback) for fallback in report.fallbacks],
        "findings": [finding_dict(finding) for finding in report.findings],
        "efficiency": report.efficiency and asdict(report.efficiency),
        "chains": [asdict(chain) for chain in report.chains],
        "modules": [asdict(module) for module in report.modules],
        "memory": [asdict(use) for use in report.memory],
        **_replayed(report.model, report.replayed_run),
        "not_applicable": [{"code": rule.code, "reason": rule.reason} for rule in report.not_applicable],
    }  # fmt: skip


def _replayed(model: ReplayModel | None, run: ReplayedRun | None) -> dict[str, Any]:
    if model is None:
        return {"model": None, "together": None}
    shown = asdict(model) | {"run": run and asdict(run)}
    together = shown.pop("together")
    return {"model": shown, "together": together}


def _serving(serving: Serving) -> dict[str, Any]:
    rates = {"generated_per_s": serving.generated_per_s, "prompt_per_s": serving.prompt_per_s}
    return asdict(serving) | rates


def finding_dict(finding: Finding) -> dict[str, Any]:
    """Convert a finding to plain values."""
    return {
        "code": finding.code, "name": finding.name, "severity": finding.severity,
        "confidence": finding.confidence, "subject": finding.subject, "message": finding.message,
        "why": finding.why, "fix": finding.fix, "short_fix": finding.short_fix, "rank": finding.rank,
        "location": {**_place(finding.location), **_sources(finding.location)},
        "related": [{**_place(place), "name": place.name} for place in finding.related],
        "evidence": dict(finding.evidence),
        "gain": _gain(finding.gain),
        "fix_gain": _gain(finding.fix_gain),
        "fingerprint": finding.fingerprint, "suppressed": finding.suppressed, "benchmark": finding.benchmark,
        "advice": finding.advice, "explained_by": finding.explained_by,
        "overlaps": [asdict(overlap) for overlap in finding.overlaps], "url": finding.url,
    }  # fmt: skip


def _gain(gain: Gain | None) -> dict[str, Any] | None:
    if gain is None:
        return None
    return {"ns_per_step": gain.ns_per_step, "share_of_step": gain.share_of_step, "kind": gain.kind}


def _place(place: Location) -> dict[str, Any]:
    return {"track": place.track, "step": place.step, "ts_ns": place.ts_ns, "dur_ns": place.dur_ns}


def _sources(place: Location) -> dict[str, Any]:
    """Return the line with the most time, or null, and all lines with their times."""
    first = place.source
    return {
        "source": first and {"file": first.file, "line": first.line, "function": first.function},
        "sources": [asdict(source) for source in place.sources],
    }


def _shares(rows: tuple[Share, ...]) -> list[dict[str, Any]]:
    return [{"name": r.name, "total_ns": r.total_ns, "count": r.count, "share": r.share} for r in rows]


def dump(data: Any, *, indent: bool = False) -> bytes:
    """Write ``data`` as UTF-8 JSON with sorted keys and a trailing newline."""
    options = orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(cleaned(data), option=options | (orjson.OPT_INDENT_2 if indent else 0))


def plain(value: Any) -> Any:
    """Convert DuckDB's decimal numbers to floats, and anything else to text."""
    return float(value) if hasattr(value, "__float__") else str(value)


def cleaned(value: Any) -> Any:
    """Replace what JSON cannot represent in ``value``: lone surrogates, integers beyond 64 bits, and decimals."""
    if isinstance(value, str):
        return json_text(value)
    if isinstance(value, dict):
        return {json_text(str(key)): cleaned(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(part) for part in value]
    if isinstance(value, int):
        return value if value.bit_length() < 64 else float(value)
    return value if value is None or isinstance(value, float) else plain(value)
