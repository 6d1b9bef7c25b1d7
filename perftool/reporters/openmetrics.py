"""The numbers of a run as OpenMetrics text, which Prometheus also reads as its own text format.

All metrics are gauges, so the node exporter's textfile collector also accepts the text. Times are in seconds and sizes
in bytes; the other metrics are ratios, rates per second and counts.
Names and escapes follow the OpenMetrics 1.0 specification. Numbers missing from the input are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from perftool import __version__
from perftool.model.choices import SEVERITIES
from perftool.model.metrics import MetricKind, metric_kinds
from perftool.model.report import Report
from perftool.reporters.escape import json_text
from perftool.reporters.naming import run_name
from perftool.reporters.run_lines import rank_metrics
from perftool.reporters.verdict import origin

_PREFIX = "habana_perf_tool_"
_MS_PER_S = 1e3


@dataclass(frozen=True)
class _Family:
    """A gauge; ``samples`` are its labels and values."""

    name: str
    unit: str
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


def render_openmetrics(report: Report) -> bytes:
    """Render the summary, the metrics of each rank if there are several, and the counts of findings."""
    lines = [line for family in _families(report) for line in _lines(family)]
    return "".join(f"{line}\n" for line in [*lines, "# EOF"]).encode()


def _families(report: Report) -> Iterable[_Family]:
    about = {
        "name": run_name(report), "device": report.device.name or "", "device_type": report.device.type or "",
        "world_size": f"{report.run.world_size or ''}", "version": __version__,
        "origin": origin(report),
    }  # fmt: skip
    yield _Family("run_info", "", "The run that was analysed; always 1.", ((about, 1),))
    for kind in metric_kinds():
        value = report.summary[kind.name].value
        if value is not None:
            yield _family("", kind, [({}, value)])
    if len(report.ranks) > 1:
        by_rank = {str(rank.rank): rank_metrics(rank) for rank in report.ranks}
        for kind in metric_kinds():
            values = [({"rank": rank}, value) for rank, known in by_rank.items()
                    if (value := known.get(kind.name)) is not None]  # fmt: skip
            if values:
                yield _family("rank_", kind, values)
    active = [finding for finding in report.findings if not finding.suppressed]
    severities, codes = Counter(one.severity for one in active), Counter((one.code, one.severity) for one in active)
    counts = tuple(({"severity": name}, float(severities[name])) for name in SEVERITIES)
    yield _Family("findings", "", "Findings of the run, by severity.", counts)
    of_rules = tuple(({"code": code, "severity": name}, float(n)) for (code, name), n in sorted(codes.items()))
    yield _Family("rule_findings", "", "Findings of the run, by rule.", of_rules)


def _family(scope: str, kind: MetricKind, values: Iterable[tuple[Mapping[str, str], float]]) -> _Family:
    """Turn a summary metric into a gauge: its name ends in the unit, and milliseconds become seconds."""
    seconds = kind.unit == "ms"
    unit = "seconds" if seconds else "" if kind.unit == "count" else kind.unit
    name = kind.name.removesuffix("_ms") + "_seconds" if seconds else kind.name
    factor = _MS_PER_S if seconds else 1.0
    return _Family(scope + name, unit, kind.meaning, tuple((labels, value / factor) for labels, value in values))


def _lines(family: _Family) -> Iterable[str]:
    name = _PREFIX + family.name
    yield f"# TYPE {name} gauge"
    if family.unit:
        yield f"# UNIT {name} {family.unit}"
    yield f"# HELP {name} {_escaped(family.help)}"
    for labels, value in family.samples:
        label_text = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{f'{{{label_text}}}' if label_text else ''} {value:.15g}"


def _escaped(text: str) -> str:
    return json_text(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
