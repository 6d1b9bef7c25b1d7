"""Reports as the value of a notebook cell."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from events import document, step, x

import perftool
from perftool.model.report import Report

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "gaudi2_unoptimised" / "rank0.pt.trace.json.gz"


class Tags(HTMLParser):
    """Collects the tags in order, and whether each of them is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags(html: str) -> set[str]:
    parser = Tags()
    parser.feed(html)
    assert parser.open == []
    return parser.seen


@pytest.fixture(scope="module")
def report() -> Report:
    return perftool.analyze(SAMPLE)


def test_the_fragment_shows_verdict_steps_and_first_findings(report: Report) -> None:
    html = report._repr_html_()

    assert html is not None
    assert tags(html) == {"div", "p", "b", "span", "table", "tbody", "tr", "td", "br"}
    assert report.verdict.headline in html
    assert "Not a measurement. Made by hand, not recorded on a device." in html
    assert html.count("<tr>") == 5
    assert "Gains overlap, so do not add them up" in html


def test_the_parts_of_the_bar_fill_it(report: Report) -> None:
    html = report._repr_html_() or ""

    widths = [float(piece.split("%")[0]) for piece in html.split("width:")[1:] if not piece.startswith("60em")]
    assert sum(widths) == pytest.approx(100, abs=0.01)


def test_names_from_a_trace_stay_text(tmp_path: Path) -> None:
    name = "</b><img src=x onerror=alert(1)>"
    trace = tmp_path / f"{name.replace('/', '')}.json"
    trace.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}'
    )

    html = perftool.analyze(trace)._repr_html_() or ""

    assert "&lt;img src=x onerror=alert(1)&gt;" in html
    assert "img" not in tags(html)


def test_parts_are_frames(report: Report) -> None:
    findings, steps = report.frame("findings"), report.frame("steps")

    assert list(findings["code"]) == [finding.code for finding in report.findings]
    assert findings["gain.ns_per_step"][0] == report.findings[0].gain.ns_per_step
    parts = steps[[column for column in steps if column.startswith("breakdown_ns.")]]
    assert list(parts.sum(axis=1)) == list(steps["dur_ns"])


@pytest.fixture
def trace(tmp_path: Path) -> str:
    (tmp_path / "run.json").write_bytes(document([step(1, 0, 1000), x("aten::mm", 10, 30)]))
    return str(tmp_path / "run.json")


@pytest.mark.usefixtures("remembered")
def test_an_open_trace_shows_its_answer(trace: str) -> None:
    with perftool.open_trace(trace) as opened:
        shown = opened._repr_html_()

    assert perftool.analyze(trace).verdict.headline in (shown or "")
    assert opened._repr_html_() is None


def test_ipython_shows_the_fragment(report: Report) -> None:
    formatters = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell.instance().display_formatter

    shown, _ = formatters.format(report)

    assert shown["text/html"] == report._repr_html_()


def test_a_cell_that_displays_a_report_publishes_it(trace: str) -> None:
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell.instance()
    capture = pytest.importorskip("IPython.utils.capture")

    with capture.capture_output() as captured:
        shell.run_cell(f"import perftool\ndisplay(perftool.analyze({trace!r}))").raise_error()

    assert [output.data["text/html"][:4] for output in captured.outputs] == ["<div"]
