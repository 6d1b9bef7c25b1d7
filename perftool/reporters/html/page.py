"""The page: what it shows, and its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perftool import __version__
from perftool.engine.report.across_ranks import telling_ranks
from perftool.model.links import IDLE_TIME
from perftool.model.pictures import NO_PICTURES, Pictures, RankTimes
from perftool.model.report import Report, Verdict
from perftool.reporters.colours import style_sheet
from perftool.reporters.efficiency import efficiency_notes
from perftool.reporters.html import view
from perftool.reporters.html.charts import Chart, Layer, memory_chart, rank_chart, step_charts, strip_chart
from perftool.reporters.html.environment import asset, environment
from perftool.reporters.html.heat import heat_chart
from perftool.reporters.html.roofline import RooflineChart, roofline_chart
from perftool.reporters.html.scripts import packed_plotly, page_script, policy
from perftool.reporters.html.timeline import DrawnTimeline, draw_path
from perftool.reporters.naming import run_name
from perftool.reporters.time_parts import TimePart, time_parts
from perftool.reporters.verdict import origins

_MOST_STEP_CHARTS = 4
_MOST_STEPS_LISTED = 60
_MOST_ELSEWHERE = 15
_FIRST = 3


@dataclass(frozen=True)
class Page:
    """All that the template shows."""

    title: str
    version: str
    report: Report
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
    ranks: Chart | None
    path: DrawnTimeline | None
    heat: Sequence[Chart]
    told_ranks: Sequence[RankTimes]
    roofline: RooflineChart | None
    efficiency_notes: Sequence[str]
    # From the page to the root of the project, where its sources lie.
    sources_at: str = ""
    idle_url: str = IDLE_TIME

    @property
    def first(self) -> list[view.ShownFinding]:
        """What to change first: the most worthwhile advice that nobody has accepted."""
        return [shown for shown in self.findings if shown.finding.advice and not shown.finding.suppressed][:_FIRST]

    @property
    def strip_legend(self) -> list[Layer]:
        """Each kind of the strips once, those of the first rank first."""
        return list({(layer.kind, layer.idle): layer for chart in reversed(self.strips)
                     for layer in reversed(chart.layers)}.values())[::-1]  # fmt: skip

    @property
    def charts(self) -> list[Chart]:
        """All charts of the page."""
        return [*self.strips, *self.steps, *self.memory, *([self.ranks] if self.ranks else [])]


def render_html(
    report: Report, pictures: Pictures = NO_PICTURES, interactive: bool = True, sources_at: str = ""
) -> bytes:
    """The report as one HTML file, UTF-8; the same report gives the same bytes.

    ``sources_at`` leads from the page to the root of the project: empty, or a relative path with a slash at its end.

    Without ``interactive`` there is no script in it, and no plotly: a small file with the same content.
    """
    page = replace(make_page(report, pictures), sources_at=sources_at)
    script = page_script() if interactive else None
    packed = packed_plotly() if script and page.charts else None
    text = environment().get_template("report.html.j2").render(
        page=page, style=style_sheet() + asset("report.css"), script=script, packed=packed, policy=policy(script),
        most_steps=_MOST_STEPS_LISTED, most_elsewhere=_MOST_ELSEWHERE,
    )  # fmt: skip
    return text.encode("utf-8", "replace")


def make_page(report: Report, pictures: Pictures) -> Page:
    """Everything the page shows, in the words of the page."""
    findings = view.shown_findings(report, pictures)
    several = len({strip.rank for strip in pictures.strips} | {step.rank for step in report.steps}) > 1
    full, rest = findings[: view.MOST_FINDINGS], findings[view.MOST_FINDINGS :]
    listed = rest[: view.MOST_LISTED]
    return Page(
        title=run_name(report),
        version=__version__,
        report=report,
        pictures=pictures,
        verdict=report.verdict,
        origins=origins(report),
        tiles=view.tiles(report, findings),
        slots=time_parts(report),
        findings=full,
        listed=listed,
        left_out=len(rest) - len(listed),
        metrics=view.metrics(report),
        strips=[strip_chart(strip, several) for strip in pictures.strips],
        steps=step_charts(report.steps, _MOST_STEP_CHARTS),
        memory=[memory_chart(curve, several) for curve in pictures.memory],
        ranks=rank_chart(pictures.ranks) if pictures.ranks else None,
        path=draw_path(pictures.path) if pictures.path else None,
        heat=list(map(heat_chart, pictures.heat)),
        told_ranks=_told_ranks(report, pictures),
        roofline=roofline_chart(report.efficiency) if report.efficiency else None,
        efficiency_notes=efficiency_notes(report.efficiency) if report.efficiency else [],
    )


def _told_ranks(report: Report, pictures: Pictures) -> list[RankTimes]:
    """The ranks that the table lists: those that findings name, and that differ most."""
    told = {row.rank for row in telling_ranks(report.ranks, report.findings, _MOST_STEPS_LISTED)}
    return [row for row in pictures.ranks if row.rank in told]
