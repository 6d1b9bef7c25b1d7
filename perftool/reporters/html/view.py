"""Prepares the content of the page for the template."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from perftool.engine.report.across_ranks import grouped
from perftool.model.choices import SEVERITIES
from perftool.model.cut_text import cut_text
from perftool.model.pictures import Pictures
from perftool.model.report import Finding, Metric, Report, Source
from perftool.model.rule import Rule
from perftool.model.words import kind_label, of_steps
from perftool.reporters.html.timeline import DrawnTimeline, draw
from perftool.reporters.labels import format_metric, listed_metrics
from perftool.reporters.naming import step_time, steps_text
from perftool.reporters.sources import plain_source, weighed_source
from perftool.reporters.verdict import finding_title
from perftool.units import format_bytes, format_count, format_ns, format_ratio

# The first findings are shown in full, further ones on one line each, and the rest are only counted.
MOST_FINDINGS = 40
MOST_LISTED = 200
OPEN_FINDINGS = 1
_LONGEST_TEXT = 300
# Suffixes of evidence names, with the word that replaces them in labels and the function that formats the value.
_PARTS = (("_ns", "time", format_ns), ("_bytes", "size", format_bytes), ("_ratio", "share", format_ratio))
# These names need no word for the unit: "Longest" rather than "Longest time".
_MEASURES = {
    "average", "cost", "excess", "excluded", "histogram", "interval", "least", "longest", "mean", "median", "more",
    "most", "moved", "p95", "reserved", "wait",
}  # fmt: skip
_SPELT = {
    "mme": "MME", "tpc": "TPC", "dma": "DMA", "gb": "GB", "s": "second", "p95": "95th percentile", "dtype": "type",
    "dtypes": "types", "cpu": "CPU",
}  # fmt: skip


@dataclass(frozen=True)
class Tile:
    """A headline number."""

    label: str
    value: str | None
    note: str
    href: str | None = None


@dataclass(frozen=True)
class ShownSource:
    """A line of the user's code. ``file`` is its path in the report; None if it is not on this machine."""

    text: str
    weight: str
    file: str | None
    line: int | None


@dataclass(frozen=True)
class ShownFinding:
    """A finding as shown on the page.

    ``subject`` distinguishes it from other findings of the same rule; None if there are no others. ``elsewhere`` lists
    the same finding on other ranks.
    """

    number: int
    anchor: str
    title: str
    subject: str | None
    finding: Finding
    elsewhere: tuple[Finding, ...]
    rule: Rule | None
    evidence: tuple[tuple[str, str], ...]
    timeline: DrawnTimeline | None
    opened: bool
    sources: tuple[ShownSource, ...] = ()


@dataclass(frozen=True)
class ShownMetric:
    """A metric of the summary. ``value`` is None if missing; ``parts`` is its fraction, such as ``2 ms of 5 ms``."""

    label: str
    value: str | None
    parts: str


def shown_findings(report: Report, pictures: Pictures) -> list[ShownFinding]:
    """List the findings in order. A finding on several ranks appears once, with the other ranks.

    The anchor of a finding depends on its position among the findings with its code.
    """
    groups = grouped(report.findings)
    of_code = Counter(report.findings[first].code for first, *_ in groups)
    seen: Counter[str] = Counter()
    shown = []
    for number, (first, *rest) in enumerate(groups, 1):
        finding = report.findings[first]
        seen[finding.code] += 1
        timeline = pictures.timelines.get(first)
        shown.append(
            ShownFinding(
                number=number,
                anchor=finding.code if seen[finding.code] == 1 else f"{finding.code}-{seen[finding.code]}",
                title=finding_title(finding, report),
                subject=finding.subject if of_code[finding.code] > 1 else None,
                finding=finding,
                elsewhere=tuple(report.findings[at] for at in rest),
                rule=next((rule for rule in report.rules if rule.code == finding.code), None),
                evidence=tuple((of_steps(label, report.run.step_word), value) for label, value in evidence_of(finding)),
                timeline=draw(timeline) if timeline else None,
                opened=number <= OPEN_FINDINGS,
                sources=tuple(_shown_source(source) for source in finding.location.sources),
            )
        )
    return shown


def _shown_source(source: Source) -> ShownSource:
    text = plain_source(source)
    return ShownSource(
        text, weighed_source(source).removeprefix(text), source.file if source.here else None, source.line
    )


def evidence_of(finding: Finding) -> tuple[tuple[str, str], ...]:
    """Format the evidence as labels and values with units. Leave out records, and strings that the message already
    contains."""
    rows = []
    for key, value in finding.evidence.items():
        if value is None or (isinstance(value, str) and value in finding.message) or _has_records(value):
            continue
        rows.append(_evidence(key, value))
    return tuple(rows)


def _has_records(value: Any) -> bool:
    """Whether ``value`` is a record or a list of records, such as the causes of idle time."""
    values = value if isinstance(value, (list, tuple)) else (value,)
    return any(isinstance(one, Mapping) for one in values)


def _evidence(key: str, value: Any) -> tuple[str, str]:
    number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    for ending, kind, render in _PARTS:
        if key.endswith(ending) and number:
            stem = key.removesuffix(ending)
            return _words(stem if kind in ("time", "size") and stem in _MEASURES else f"{stem}_{kind}"), render(
                float(value)
            )
    listed = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    text = format_count(float(value)) if number else listed
    return _words(key), cut_text(text, _LONGEST_TEXT)


def _words(key: str) -> str:
    """Turn a column name into words."""
    text = " ".join(_SPELT.get(word, word) for word in key.split("_"))
    return text[:1].upper() + text[1:]


def tiles(report: Report, findings: Sequence[ShownFinding]) -> list[Tile]:
    """Return the known numbers to show next to the verdict."""
    return [tile for tile in _all_tiles(report, findings) if tile.value is not None]


def _all_tiles(report: Report, findings: Sequence[ShownFinding]) -> list[Tile]:
    summary = report.summary
    if summary["window_ms"].value is None:
        counts = [("fallback_ops", "Ops on the CPU", "#fallbacks"), ("compilations", "Compilations", None)]
        return [*(_count_tile(summary[name], label, link) for name, label, link in counts), _findings_tile(findings)]
    made = [
        _step_tile(report),
        _ratio_tile(summary["device_busy_ratio"], "Ops computing" if report.device.type == "cpu" else "Device busy"),
        _idle_tile(report),
    ]
    gains = [shown for shown in findings if shown.finding.gain]
    if gains:
        gain = gains[0].finding.gain
        assert gain is not None
        kind, most = ("an upper bound", "≤ ") if gain.kind == "bound" else (gain.kind, "")
        note = ", ".join(filter(None, (report.per_step, kind)))
        label = f"Gain of {gains[0].finding.code}"
        made.append(Tile(label, f"{most}{format_ns(gain.ns_per_step)}", note, f"#{gains[0].anchor}"))
    peak = summary["peak_memory_bytes"]
    made.append(Tile("Peak device memory", None if peak.value is None else format_metric(peak), "", "#memory"))
    return [*made, _findings_tile(findings)]


def _step_tile(report: Report) -> Tile:
    summary, word = report.summary, report.run.step_word
    steps, window = summary["steps"], summary["window_ms"]
    length = "" if window.value is None else f", {format_metric(window)} in total"
    if not steps.value:
        note = "the whole recording" if window.value is not None else ""
        return Tile("Window", None if window.value is None else format_metric(window), note)
    note = f"{steps_text(report, round(steps.value))}{length}"
    average, time = step_time(report)
    return Tile(f"{average.capitalize()} {word}", time, note, "#steps")


def _count_tile(metric: Metric, label: str, href: str | None) -> Tile:
    known = metric.value is not None
    return Tile(label, format_metric(metric) if known else None, "in the whole run" if known else "", href)


def _ratio_tile(metric: Metric, label: str) -> Tile:
    return Tile(label, None if metric.value is None else format_metric(metric), _fraction(metric), "#device")


def _idle_tile(report: Report) -> Tile:
    if not report.idle_causes:
        return Tile("Largest idle cause", None, "")
    main = report.idle_causes[0]
    return Tile("Largest idle cause", format_ratio(main.share), kind_label(main.name), "#idle")


def _findings_tile(findings: Sequence[ShownFinding]) -> Tile:
    counts = Counter(shown.finding.severity for shown in findings)
    plural = {"error": "errors", "warning": "warnings", "info": "infos"}
    parts = [f"{counts[s]} {s if counts[s] == 1 else plural[s]}" for s in SEVERITIES if counts[s]]
    return Tile("Findings", str(len(findings)), ", ".join(parts) or "no rule fired", "#findings")


def metrics(report: Report) -> list[ShownMetric]:
    """Format the metrics that apply to this kind of device; serving metrics only if known."""
    return [
        ShownMetric(label, None if metric.value is None else format_metric(metric), _fraction(metric))
        for label, metric in listed_metrics(report)
    ]


def _fraction(metric: Metric) -> str:
    if metric.value is None or metric.numerator is None or metric.denominator is None:
        return ""
    return f"{format_ns(metric.numerator * 1e6)} of {format_ns(metric.denominator * 1e6)}"
