"""Builds the HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from perftool import __version__
from perftool.engine.report.across_ranks import ranks_to_show
from perftool.model.links import IDLE_TIME
from perftool.model.pictures import NO_PICTURES, Pictures, RankTimes
from perftool.model.report import Report, Verdict
from perftool.model.words import of_steps
from perftool.reporters.colours import style_sheet
from perftool.reporters.efficiency import efficiency_notes
from perftool.reporters.html import view
from perftool.reporters.html.charts import (
    Chart,
    Layer,
    memory_chart,
    memory_steps_chart,
    rank_chart,
    step_charts,
    strip_chart,
)
from perftool.reporters.html.environment import asset, environment
from perftool.reporters.html.heat import heat_chart
from perftool.reporters.html.roofline import RooflineChart, roofline_chart
from perftool.reporters.html.scripts import packed_plotly, page_script, policy
from perftool.reporters.html.timeline import DrawnTimeline, draw_path
from perftool.reporters.naming import device_word, run_title
from perftool.reporters.serving import server_lines
from perftool.reporters.time_parts import TimePart, time_parts
from perftool.reporters.verdict import origins

_MOST_STEP_CHARTS = 4
_MOST_STEPS_LISTED = 60
_MOST_ELSEWHERE = 15
_FIRST = 3


@dataclass(frozen=True)
class Page:
    """Everything that the template shows."""

    title: str
    version: str
    report: Report
    device: str
    pictures: Pictures
    verdict: Verdict
    origins: Sequence[str]
    tiles: Sequence[view.Tile]
    slots: Sequence[TimePart]
    findings: Sequence[view.ShownFinding]
    listed: Sequence[view.ShownFinding]
    left_out: int
    metrics: Sequence[view.ShownMetric]
    strips: Sequence[Chart]
    steps: Sequence[Chart]
    memory: Sequence[Chart]
    memory_steps: Sequence[Chart]
    ranks: Chart | None
    path: DrawnTimeline | None
    heat: Sequence[Chart]
    listed_ranks: Sequence[RankTimes]
    roofline: RooflineChart | None
    efficiency_notes: Sequence[str]
    # The address of a source file, relative to the page.
    link: Callable[[str], str] = quote
    idle_url: str = IDLE_TIME

    @property
    def missing(self) -> int:
        """The number of unknown metrics that the page leaves out; 0 for an accelerator, for which it lists them."""
        without = self.report.summary["device_busy_ratio"].value is None and self.report.device.type in (None, "cpu")
        return sum(metric.value is None for metric in self.metrics) if without else 0

    @property
    def serving(self) -> list[str]:
        """Lines about a language-model server; empty for other runs."""
        return list(server_lines(self.report))

    def of_steps(self, text: str) -> str:
        """Replace the word step in ``text`` by the run's word for a step, such as iteration."""
        return of_steps(text, self.report.run.step_word)

    @property
    def begin_ns(self) -> int:
        """Time zero of the page, in ns: the start of the first step or, if there are no steps, of the first example of
        a finding."""
        places = (place.ts_ns for shown in self.findings for place in shown.finding.related if place.ts_ns is not None)
        return min((step.ts_ns for step in self.report.steps), default=None) or min(places, default=0)

    @property
    def first(self) -> list[view.ShownFinding]:
        """The most valuable advice that is not accepted by a baseline."""
        return [shown for shown in self.findings if shown.finding.advice and not shown.finding.suppressed][:_FIRST]

    @property
    def strip_legend(self) -> list[Layer]:
        """The legend of ``strips``: each kind once, in the order of the first chart."""
        return list({(layer.kind, layer.idle): layer for chart in reversed(self.strips)
                     for layer in reversed(chart.layers)}.values())[::-1]  # fmt: skip

    @property
    def charts(self) -> list[Chart]:
        """All charts of the page."""
        return [*self.strips, *self.steps, *self.memory, *self.memory_steps, *([self.ranks] if self.ranks else [])]


def render_html(
    report: Report, pictures: Pictures = NO_PICTURES, interactive: bool = True, link: Callable[[str], str] = quote
) -> bytes:
    """Render the report as one UTF-8 HTML file; equal reports yield equal bytes.

    ``link`` turns the name of a source file in the report into an address; by default, names are relative to the page.
    If ``interactive`` is false, the file contains no scripts: it is small, and has the same content.
    """
    page = replace(make_page(report, pictures), link=link)
    script = page_script() if interactive else None
    packed = packed_plotly() if script and page.charts else None
    text = environment().get_template("report.html.j2").render(
        page=page, style=style_sheet() + asset("report.css"), script=script, packed=packed, policy=policy(script),
        most_steps=_MOST_STEPS_LISTED, most_elsewhere=_MOST_ELSEWHERE,
    )  # fmt: skip
    return text.encode("utf-8", "replace")


def make_page(report: Report, pictures: Pictures) -> Page:
    """Compute the page's content from ``report`` and ``pictures``."""
    findings = view.shown_findings(report, pictures)
    several = len({strip.rank for strip in pictures.strips} | {step.rank for step in report.steps}) > 1
    full, rest = findings[: view.MOST_FINDINGS], findings[view.MOST_FINDINGS :]
    listed = rest[: view.MOST_LISTED]
    return Page(
        title=run_title(report),
        version=__version__,
        report=report,
        device=device_word(report),
        pictures=pictures,
        verdict=report.verdict,
        origins=origins(report),
        tiles=view.tiles(report, findings),
        slots=time_parts(report),
        findings=full,
        listed=listed,
        left_out=len(rest) - len(listed),
        metrics=view.metrics(report),
        strips=[strip_chart(strip, several, device_word(report)) for strip in pictures.strips],
        steps=step_charts(report.steps, _MOST_STEP_CHARTS),
        memory=[memory_chart(curve, several) for curve in pictures.memory],
        memory_steps=[memory_steps_chart(drawn, several) for drawn in pictures.memory_steps],
        ranks=rank_chart(pictures.ranks) if pictures.ranks else None,
        path=draw_path(pictures.path) if pictures.path else None,
        heat=list(map(heat_chart, pictures.heat)),
        listed_ranks=_ranks_to_list(report, pictures),
        roofline=roofline_chart(report.efficiency) if report.efficiency else None,
        efficiency_notes=efficiency_notes(report.efficiency) if report.efficiency else [],
    )


def _ranks_to_list(report: Report, pictures: Pictures) -> list[RankTimes]:
    """Choose the ranks to list in the table: those named in findings, and those that differ most."""
    shown_ranks = {row.rank for row in ranks_to_show(report.ranks, report.findings, _MOST_STEPS_LISTED)}
    return [row for row in pictures.ranks if row.rank in shown_ranks]
