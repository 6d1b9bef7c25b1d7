"""The page: what it shows, and its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perftool import __version__
from perftool.model.pictures import NO_PICTURES, Pictures
from perftool.model.report import Report
from perftool.reporters.colours import style_sheet
from perftool.reporters.html import view
from perftool.reporters.html.charts import Chart, Layer, memory_chart, rank_chart, step_charts, strip_chart
from perftool.reporters.html.environment import asset, environment
from perftool.reporters.html.scripts import packed_plotly, page_script, policy
from perftool.reporters.time_parts import TimePart, time_parts
from perftool.reporters.verdict import Verdict, origins, verdict

_MOST_STEP_CHARTS = 4
_MOST_STEPS_LISTED = 60
_MOST_ELSEWHERE = 15
_FIRST = 3
_SUMMARY_FINDINGS = 5


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

    @property
    def first(self) -> list[view.ShownFinding]:
        """What to change first: the most worthwhile findings that nobody has accepted."""
        return [shown for shown in self.findings if not shown.finding.suppressed][:_FIRST]

    @property
    def strip_legend(self) -> list[Layer]:
        """Each kind of the strips once, those of the first rank first."""
        return list({(layer.kind, layer.idle): layer for chart in reversed(self.strips)
                     for layer in reversed(chart.layers)}.values())[::-1]  # fmt: skip

    @property
    def charts(self) -> list[Chart]:
        """All charts of the page."""
        return [*self.strips, *self.steps, *self.memory, *([self.ranks] if self.ranks else [])]


def render_html(report: Report, pictures: Pictures = NO_PICTURES, interactive: bool = True) -> bytes:
    """The report as one HTML file, UTF-8; the same report gives the same bytes.

    Without ``interactive`` there is no script in it, and no plotly: a small file with the same content.
    """
    page = make_page(report, pictures)
    script = page_script() if interactive else None
    packed = packed_plotly() if script and page.charts else None
    text = environment().get_template("report.html.j2").render(
        page=page, style=style_sheet() + asset("report.css"), script=script, packed=packed, policy=policy(script),
        most_steps=_MOST_STEPS_LISTED, most_elsewhere=_MOST_ELSEWHERE,
    )  # fmt: skip
    return text.encode("utf-8", "replace")


def render_summary(report: Report) -> str:
    """The verdict, a few numbers and the first findings as an HTML fragment without scripts, for notebooks."""
    page = make_page(report, NO_PICTURES)
    return environment().get_template("summary.html.j2").render(page=page, most=_SUMMARY_FINDINGS)


def make_page(report: Report, pictures: Pictures) -> Page:
    """Everything the page shows, in the words of the page."""
    findings = view.shown_findings(report, pictures)
    several = len({strip.rank for strip in pictures.strips} | {step.rank for step in report.steps}) > 1
    full, rest = findings[: view.MOST_FINDINGS], findings[view.MOST_FINDINGS :]
    listed = rest[: view.MOST_LISTED]
    return Page(
        title=_title(report),
        version=__version__,
        report=report,
        pictures=pictures,
        verdict=verdict(report),
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
    )


def _title(report: Report) -> str:
    names = [read.path.replace("\\", "/").rsplit("/", 1)[-1] for read in report.inputs]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}" if names else "no input"
