"""The HTML report without a browser: its content, and that everything from a trace appears only as text."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
from builders.reports import analysed, finding, reported, starved
from events import document, step, x

import perftool
from perftool.engine.analysis import analyze, empty_report
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.model.gaudi import Fallback
from perftool.model.inputs import ImportIssue, InputFile
from perftool.model.links import cause_url
from perftool.model.pictures import NO_PICTURES
from perftool.model.report import BREAKDOWN, Location, Share, Source, Step
from perftool.reporters.console import make_console
from perftool.reporters.html import render_html
from perftool.reporters.html.view import evidence_of
from perftool.reporters.notebook import render_notebook
from perftool.reporters.terminal.full import print_full

GOLDEN = Path(__file__).parent.parent / "golden" / "html"
ROOT = Path(perftool.__file__).parent.parent
LOG = Path(__file__).parents[2] / "sample_traces" / "gaudi2_unoptimised" / "console.log"
EVIL = '</script></style></title><img src=x onerror="document.title=1">\'"`{{7*7}}\u202e\x00'


class Outline(HTMLParser):
    """The structure of a page: sections, headings, summaries, table headers and internal links, in order."""

    KEPT = frozenset({"h1", "h2", "h3", "h4", "th", "summary", "figcaption", "dt", "li", "p"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.scripts: list[str] = []
        self._open: list[list[str]] = []
        self._script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "a" and str(found.get("href")).startswith("#"):
            self.links.append(str(found["href"])[1:])
        if tag == "section":
            self.lines.append(f"section #{found['id']}")
        if tag == "script":
            self.scripts.append("")
        self._script = tag in ("script", "style")
        if tag in self.KEPT:
            self._open.append([tag])

    def handle_data(self, data: str) -> None:
        if self._script and self.scripts:
            self.scripts[-1] += data
        elif self._open and not self._script:
            self._open[-1].append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._script = False
        if self._open and self._open[-1][0] == tag:
            _, *texts = self._open.pop()
            text = " ".join("".join(texts).split())
            self.lines.append(f"  {tag}: {text}" if text else f"  {tag}")


@pytest.fixture(scope="module")
def page() -> str:
    device = [{"id": 0, "name": "NVIDIA A100"}]
    return render_html(*analysed(starved(), findings=[finding()], deviceProperties=device)).decode()


def test_the_structure_matches_the_golden_file(page: str, request: pytest.FixtureRequest) -> None:
    shown = "\n".join(Outline(page.replace(perftool.__version__, "X.Y.Z")).lines) + "\n"
    golden = GOLDEN / "starved.txt"
    if request.config.getoption("--refresh-golden"):
        golden.write_text(shown, encoding="utf-8")
    assert shown == golden.read_text(encoding="utf-8")


def test_internal_links_have_targets_and_ids_are_unique(page: str) -> None:
    outline = Outline(page)
    assert len(outline.ids) == len(set(outline.ids))
    assert set(outline.links) <= set(outline.ids)


def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    outline = Outline(page)
    loading = [(tag, attrs) for tag, attrs in outline.tags if "src" in attrs or tag in ("link", "iframe", "object")]
    assert loading == []
    assert "url(" not in page.split("<script", 1)[0]
    assert "default-src 'none'" in policy_of(outline)


def policy_of(outline: Outline) -> str:
    return next(str(a["content"]) for tag, a in outline.tags if a.get("http-equiv") == "Content-Security-Policy")


def test_the_policy_allows_the_script_of_the_page_and_no_other(page: str) -> None:
    outline = Outline(page)
    digest = base64.b64encode(hashlib.sha256(outline.scripts[-1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}' blob:;" in policy_of(outline)


def test_chart_data_is_json_that_matches_what_is_drawn(page: str) -> None:
    outline = Outline(page)
    drawn = {str(attrs["data-chart"]) for tag, attrs in outline.tags if tag == "figure" and "data-chart" in attrs}
    data = {str(a["id"])[5:]: json.loads(text) for (tag, a), text in
            zip([t for t in outline.tags if t[0] == "script"], outline.scripts, strict=True)
            if tag == "script" and a.get("class") == "chart-data"}  # fmt: skip
    assert set(data) == drawn == {"strip-0", "steps-0", "memory-0-device-0", "memory-steps-0"}
    assert data["steps-0"]["x"] == ["1", "2", "3"]
    kernel = next(series for series in data["steps-0"]["series"] if series["kind"] == "kernel")
    assert kernel["y"] == [3.001, 3.002, 3.003]
    assert data["memory-0-device-0"]["series"][0]["y"] == [1.0, 2.0, 3.0]


def test_names_from_a_trace_are_never_more_than_text() -> None:
    report, pictures = analysed(starved(kernel_name=EVIL, op_name=EVIL), findings=[finding()])
    evil_step = Step(0, EVIL, 0, 10_000_000, dict.fromkeys(BREAKDOWN, 1_250_000), False)
    report = replace(
        report, steps=(*report.steps, evil_step),
        inputs=(InputFile(EVIL, "trace", 0, 1, 1, "repaired", (ImportIssue("x", 1, EVIL),)),),
        findings=tuple(replace(f, message=EVIL, fix=EVIL, subject=EVIL, evidence={EVIL: EVIL + EVIL})
                       for f in report.findings),
        fallbacks=(Fallback(EVIL, EVIL, 1, None, None, EVIL),), idle_causes=(Share(EVIL, 1, 1, 0.5),),
    )  # fmt: skip
    page = render_html(report, pictures).decode()
    outline = Outline(page)
    assert [tag for tag, _ in outline.tags if tag == "img"] == []
    assert not [name for _, attrs in outline.tags for name in attrs if name.startswith("on")]
    assert [tag for tag, _ in outline.tags].count("title") == page.count("</title>")
    assert "{{7*7}}" in page
    assert "\u202e" not in page
    assert "\x00" not in page
    for text in outline.scripts[:-2]:
        json.loads(text)


def test_a_lone_surrogate_does_not_stop_the_report() -> None:
    report, pictures = analysed(starved())
    broken = replace(report, top_ops=(Share("half \ud800", 1, 1, 0.5),))
    assert b"half \\ud800" in render_html(broken, pictures)


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(document(starved()))

    def made(seed: str, path: str) -> bytes:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
        command = [sys.executable, "-m", "perftool", "report", path, "-q", "--isolated", "--select", "GAP"]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True).stdout

    first = made("1", "run.json")
    assert first.startswith(b"<!doctype html>")
    assert made("2", str(tmp_path / "run.json")) == first
    assert str(tmp_path).encode() not in first


def test_many_findings_are_cut_with_a_note() -> None:
    report = reported(starved())
    many = replace(report, findings=(finding(),) * 300)
    page = render_html(many, NO_PICTURES, interactive=False).decode()
    assert page.count('<details class="finding') == 40
    assert "60 more findings are left out" in page
    assert len(page) < 400_000


def test_the_same_finding_on_several_ranks_is_shown_once() -> None:
    found = [finding(), *(finding(rank=rank, message=f"rank {rank} waits too") for rank in (1, 2))]
    report, pictures = analysed(starved(), findings=found)
    page = render_html(report, pictures, interactive=False).decode()
    assert page.count('<details class="finding') == 1
    assert page.count("Rank 1 waits too") == 1
    assert "1, 3 on all ranks together" in page
    assert '<a href="#findings">Findings <b>1</b></a>' in page
    assert list(pictures.timelines) == [0]


def test_many_steps_are_joined_with_a_note() -> None:
    steps = tuple(Step(0, f"ProfilerStep#{n}", n * 100, 100, dict.fromkeys(BREAKDOWN, 10), False) for n in range(1000))
    page = render_html(replace(empty_report(()), steps=steps), NO_PICTURES, interactive=False).decode()
    assert "each column is the mean of 9 steps" in page
    assert "The first 60 of 1,000 steps" in page
    assert len(page) < 100_000


def test_missing_signals_are_shown_as_missing_never_as_zero() -> None:
    # An annotation computes nothing, so this trace does not even show that the CPU works.
    report, pictures = analysed([step(1, 0, 1000), x("forward", 10, 500)])
    page = render_html(report, pictures).decode()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.split("</style>")[1].split("<script")[0]))
    assert "Device busy" not in text
    assert "exposed collectives" not in text
    assert re.search(r"\d+ more metrics are not known from this input", text)
    # A device is mentioned only in the reasons why rules for that device did not apply.
    assert not re.search(r"device|accelerator", text.partition("Rules that could not be applied")[0], re.IGNORECASE)


def test_a_page_about_a_cpu_run_does_not_mention_a_device() -> None:
    report, pictures = analysed([step(1, 0, 1000), x("aten::mm", 10, 500)])
    page = render_html(report, pictures).decode()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.split("</style>")[1].split("<script")[0]))
    out = io.StringIO()
    print_full(report, make_console("never", file=out))
    assert "The CPU over the recording" in text
    assert "Time when no op computes, by cause" in out.getvalue()
    for shown in (text.partition("Rules that could not be applied")[0], out.getvalue().replace("device  ", "")):
        assert "ops computing" in shown
        assert not re.search(r"device|kernels running", shown, re.IGNORECASE)


def test_a_missing_number_is_listed_and_has_no_tile() -> None:
    report, pictures = analysed([step(1, 0, 1000), x("aten::mm", 10, 500), x("k", 20, 400, "kernel", tid=7)])
    page = render_html(report, pictures).decode()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.split("</style>")[1].split("<script")[0]))
    assert "Device busy 40.0 %" in text
    assert "Peak device memory –" not in text
    assert "peak device memory not known from this input" in text


def test_no_place_has_nanoseconds_since_1970() -> None:
    report, pictures = analysed([step(1, 1_767_225_600e6, 1000), x("aten::item", 1_767_225_600e6 + 10, 500)])
    place = Location(None, None, report.steps[0].ts_ns + 10_000, 5_000, name="aten::item")
    page = render_html(replace(report, findings=(finding(related=(place,)),)), pictures, interactive=False).decode()
    assert report.steps[0].ts_ns > 10**18
    assert str(report.steps[0].ts_ns)[:10] not in page
    assert ">10.0 us</td>" in page


def test_a_title_has_the_date_and_not_the_nanoseconds_of_the_file() -> None:
    report, pictures = analysed([step(1, 0, 1000), x("aten::mm", 10, 500)])
    read = replace(report.inputs[0], path="run/host_12.1763906299123456789.pt.trace.json.gz")
    page = render_html(replace(report, inputs=(read,)), pictures, interactive=False).decode()
    assert "<title>host_12.2025-11-23_13-58-19.pt.trace.json.gz" in page
    # The list of inputs contains the name of each file on disk.
    assert page.count("1763906299123456789") == 1


def test_logs_alone_make_a_small_page_without_charts() -> None:
    report = replace(
        empty_report(load_pack(builtin_folder())), inputs=(InputFile("console.log", "runtime_log", None, 10, 2, "ok"),),
        fallbacks=(Fallback("aten::digamma", "float32", 14, None, None, "call"),),
    )  # fmt: skip
    page = render_html(report, NO_PICTURES)
    assert len(page) < 60_000
    assert b"aten::digamma" in page


def test_a_page_on_logs_alone_says_that_no_times_are_known() -> None:
    assert b"No trace was read" in render_html(analyze([str(LOG)]), NO_PICTURES)


def test_a_page_without_inputs_says_so() -> None:
    page = render_html(empty_report(()), NO_PICTURES)
    assert b"There is no input." in page


@pytest.mark.parametrize(("key", "said"), [("handMade", "Made by hand"), ("simulated", "Simulated")])
def test_a_trace_that_no_device_made_is_labelled_on_top(key: str, said: str) -> None:
    report, pictures = analysed(starved(), findings=[finding()], **{key: True})
    for page in (render_html(report, pictures, interactive=False).decode(), render_notebook(report)):
        before = page[: page.index("the device waits while")]
        assert "Not a measurement." in before
        assert said in before


def test_a_static_page_has_no_script() -> None:
    page = render_html(*analysed(starved()), interactive=False)
    assert b"<script" not in page
    assert "script-src 'none'" in policy_of(Outline(page.decode()))
    assert b'class="k-kernel"' in page
    assert len(page) < 80_000


def test_evidence_lists_values_and_leaves_out_records() -> None:
    evidence = {"late_ranks": [6, 7], "idle_causes": [{"cause": "sync", "ns": 5}]}

    assert evidence_of(finding(message="", evidence=evidence)) == (("Late ranks", "6, 7"),)


def test_evidence_has_words_for_labels() -> None:
    evidence = {"wait_ns": 2e6, "idle_ns": 3e6, "idle_ratio": 0.5, "mme_ns": 1e6, "gb_per_s": 3, "reads": 4}

    rows = evidence_of(finding(message="", evidence=evidence))

    assert [label for label, _ in rows] == ["Wait", "Idle time", "Idle share", "MME time", "GB per second", "Reads"]


def test_a_line_of_code_below_the_root_is_a_link_and_every_finding_leads_to_its_page() -> None:
    sources = (
        Source("src/a b.py", 7, "f", 0.8, here=True), Source("/far/b.py", 8, "g", 0.2),
        Source("c.py", None, "main", 0.1, here=True),
    )  # fmt: skip
    found = finding(url="https://docs/GAP901/", location=Location(sources=sources))
    report, pictures = analysed(starved(), findings=[found])

    page = render_html(report, pictures, interactive=False, link=lambda file: f"../{quote(file)}").decode()

    assert '<a class="source" href="../src/a%20b.py" data-line="7"><code>src/a b.py:7 f</code></a> (80.0 %)' in page
    assert "<code>/far/b.py:8 g</code> (20.0 %)" in page
    assert '<a class="source" href="../c.py"><code>main (c.py)</code></a>' in page
    assert '<a href="https://docs/GAP901/" rel="noreferrer noopener">About GAP901</a>' in page
    assert cause_url("dataloader") in page


def test_the_page_is_short_until_its_sections_are_opened() -> None:
    outline = Outline(render_html(*analysed(starved(), findings=[finding()] * 5), interactive=False).decode())
    folds = [attrs for tag, attrs in outline.tags if tag == "details" and attrs.get("class") == "fold"]
    findings = [attrs for tag, attrs in outline.tags if str(attrs.get("class")).startswith("finding ")]

    assert sum("open" in attrs for attrs in folds) == 2
    assert len(folds) > 6
    assert sum("open" in attrs for attrs in findings) == 1


def test_ranks_are_shown_side_by_side() -> None:
    report, pictures = analysed(starved(), starved())
    assert [(rank.rank, rank.steps) for rank in pictures.ranks] == [(0, 3), (1, 3)]
    outline = Outline(render_html(report, pictures, interactive=False).decode())
    assert "ranks" in outline.ids
    assert {"chart-strip-0", "chart-strip-1", "chart-steps-0", "chart-steps-1", "chart-ranks"} <= set(outline.ids)


def test_accepted_findings_are_not_among_what_to_change_first() -> None:
    found = [finding(code=f"GAP90{n}", short_fix=f"Do {n}.", suppressed=n == 1) for n in range(1, 6)]
    report = reported(starved(), findings=found)
    box = render_html(report, interactive=False).decode().split('class="first"')[1].split("</ol>")[0]
    assert re.findall(r'href="#(GAP90\d)"', box) == ["GAP902", "GAP903", "GAP904"]
    assert re.findall(r"<p>(.*?)</p>", box) == ["Do 2.", "Do 3.", "Do 4."]


def test_a_page_about_a_server_calls_its_steps_iterations() -> None:
    report = analyze([str(LOG.parents[1] / "serving" / "one_process.json.gz")])
    page = Outline(render_html(report, NO_PICTURES, interactive=False).decode())
    # The reasons why rules do not apply may mention tables of other kinds of runs.
    spoken = [line for line in page.lines if re.search(r"\b(?:[Ss]teps?|training)\b", line)]

    assert [line for line in spoken if not line.startswith("section ") and "the input shows no" not in line] == []
