"""Every machine-readable format is a single well-formed document for zero, one and many findings with any names."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from builders.lint_findings import HOSTILE, finding, report
from hypothesis import given
from hypothesis import strategies as st

from perftool.engine.report.portable import file_of
from perftool.model.inputs import InputFile
from perftool.model.lint import LintFinding, LintReport
from perftool.reporters.console import make_console
from perftool.reporters.lint.documents import render_json_lines, render_lint_json
from perftool.reporters.lint.github import render_github, render_step_summary
from perftool.reporters.lint.gitlab import render_gitlab
from perftool.reporters.lint.junit import render_junit
from perftool.reporters.lint.sarif import render_sarif
from perftool.reporters.lint.text import print_lint, print_statistics, summary_line

COMMAND = re.compile(
    r"::(error|warning|notice) title=[^,:\r\n]*,file=[^,:\r\n]*,line=1,col=1,endLine=1,endColumn=2::[^\r\n]*"
)


def _json(document: bytes) -> int:
    return len(json.loads(document)["findings"])


def _lines(document: bytes) -> int:
    return len([json.loads(line) for line in document.splitlines()])


def _sarif(document: bytes) -> int:
    return len(json.loads(document)["runs"][0]["results"])


def _junit(document: bytes) -> int:
    failures = ElementTree.fromstring(document).iter("failure")
    return sum(node.text.split("\n\nFix:")[0].count("\n") + 1 for node in failures if node.text)


def _github(document: bytes) -> int:
    lines = document.decode("utf-8").splitlines()
    assert all(COMMAND.fullmatch(line) for line in lines)
    return len(lines)


def _gitlab(document: bytes) -> int:
    return len(json.loads(document))


FORMATS = [
    (render_lint_json, _json), (render_json_lines, _lines), (render_sarif, _sarif), (render_junit, _junit),
    (render_github, _github), (render_gitlab, _gitlab),
]  # fmt: skip
Render = Callable[[LintReport], bytes]
Count = Callable[[bytes], int]


@pytest.mark.parametrize(("render", "count"), FORMATS)
@pytest.mark.parametrize(
    "findings",
    [
        [],
        [finding()],
        [finding(), finding(), finding("SYN101")],
        [finding(message=HOSTILE, subject=HOSTILE, evidence={HOSTILE: HOSTILE, "x": float("nan")})],
    ],
)
def test_the_document_parses(render: Render, count: Count, findings: list[LintFinding]) -> None:
    document = render(report(*findings))
    assert count(document) == len(findings)
    assert not document.startswith(b"\xef\xbb\xbf")
    assert document.endswith(b"\n") or not findings


@pytest.mark.parametrize(("render", "count"), FORMATS)
@given(text=st.text())
def test_any_text_is_escaped(render: Render, count: Count, text: str) -> None:
    assert count(render(report(finding(message=text, subject=text)))) == 1


def _printed(result: LintReport, statistics: bool = False) -> str:
    out = io.StringIO()
    (print_statistics if statistics else print_lint)(result, make_console("never", file=out))
    return out.getvalue()


def test_text() -> None:
    line = "runs/a.json:rank0/MME:step 3: GAP101 [warning] device idle 1.8 ms\n"
    assert _printed(report(finding())) == line + "It idles.\nFound 1 finding (1 warning).\n"
    assert _printed(report()) == "All checks passed!\n"


def test_the_same_finding_on_many_ranks_is_one_line() -> None:
    ranks = [LintFinding(replace(finding().finding, rank=rank), f"runs/{rank}.json") for rank in range(200)]
    printed = _printed(report(*ranks)).splitlines()
    assert len(printed) == 3
    assert printed[0].endswith("device idle 1.8 ms; also on rank 1-199")
    assert printed[-1] == "Found 200 findings (200 warnings)."


def test_findings_over_ranks_are_shown_at_the_trace_of_a_named_rank() -> None:
    inputs = [InputFile(f"rank{rank}.json", "trace", rank, 1, 1, "ok") for rank in range(4)]
    found = replace(finding().finding, rank=None, evidence={"late_ranks": [2, 3]})
    assert file_of(found, inputs) == "rank2.json"
    assert file_of(replace(found, evidence={}), inputs) == "rank0.json"


@pytest.mark.parametrize("late", [None, 5, "23", [None], [[2]], {"2": 3}], ids=repr)
def test_late_ranks_of_any_type_name_no_trace(late: Any) -> None:
    """If every rank waits for the same collective, a hang names no rank. A rule of a pack may return any value."""
    inputs = [InputFile(f"rank{rank}.json", "trace", rank, 1, 1, "ok") for rank in range(4)]
    found = replace(finding().finding, rank=None, evidence={"late_ranks": late})
    assert file_of(found, inputs) == "rank0.json"


def test_a_hostile_name_stays_on_one_line_of_text() -> None:
    printed = _printed(report(finding(message=HOSTILE)))
    assert len(printed.splitlines()) == 3
    assert "\x1b" not in printed


def test_the_summary_counts_what_is_suppressed() -> None:
    result = report(finding(severity="error"), finding(), finding("SYN101"), finding(suppressed=True))
    assert summary_line(result) == "Found 3 findings (1 error, 2 warnings), 1 suppressed."
    assert summary_line(report(finding(suppressed=True))) == "All checks passed! (1 suppressed)"


def test_statistics_are_sorted_by_count() -> None:
    printed = _printed(report(finding(), finding("SYN101"), finding("SYN101")), statistics=True)
    assert printed.splitlines()[:2] == [
        "    2  SYN101  frequent-scalar-reads",
        "    1  GAP101  host-bound",
    ]


def test_json_contains_the_decision_of_the_gate() -> None:
    data = json.loads(render_lint_json(report(finding(), finding(suppressed=True))))
    assert data["version"] == 1
    assert data["lint"] == {
        "counts": {"error": 0, "warning": 1, "info": 0},
        "fails": True,
        "rules": ["GAP101", "SYN101", "TRC000", "TRC001"],
        "stale": [],
        "suppressed": 1,
    }
    assert {"file", "help", "fingerprint", "suppressed", "location"} <= set(data["findings"][0])


def test_github() -> None:
    properties = "title=habana_perf_tool (GAP101),file=runs/a.json,line=1,col=1,endLine=1,endColumn=2"
    message = "rank0/MME:step 3: 50%25 idle%0ADo less."
    assert render_github(report(finding(message="50% idle"))).decode() == f"::warning {properties}::{message}\n"


def test_github_escapes_properties() -> None:
    found = LintFinding(finding().finding, "a,b:c%\nd.json")
    assert b"file=a%2Cb%3Ac%25\\nd.json,line" in render_github(report(found))


def test_the_step_summary_is_a_table() -> None:
    text = render_step_summary(report(finding(message="a | b <i>"))).decode()
    row = r"| warning | GAP101 host-bound | runs/a.json:rank0/MME:step 3 | a \| b &lt;i&gt; | 1.80 ms |"
    assert text.splitlines()[4:] == [
        "**It idles.**",
        "",
        "| severity | rule | where | finding | gain per step, at most |", "|---|---|---|---|---|", row, "",
    ]  # fmt: skip


def test_gitlab() -> None:
    first, second = json.loads(render_gitlab(report(finding(), finding())))
    assert first == {
        "check_name": "GAP101",
        "description": "GAP101: rank0/MME:step 3: device idle 1.8 ms",
        "fingerprint": "0123456789abcdef",
        "location": {"path": "runs/a.json", "lines": {"begin": 1}},
        "severity": "minor",
    }
    assert second["fingerprint"] != first["fingerprint"]


def test_suppressed_findings_are_not_annotated() -> None:
    result = report(finding(suppressed=True))
    assert render_github(result) == b""
    assert render_gitlab(result) == b"[]\n"


def test_junit_lists_quiet_rules_as_passed_and_accepted_ones_as_skipped() -> None:
    root = ElementTree.fromstring(render_junit(report(finding(), finding("SYN101", suppressed=True))))
    cases = {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")}
    assert cases == {
        "GAP101 host-bound": ["failure"],
        "SYN101 frequent-scalar-reads": ["skipped"],
        "TRC000 unreadable-input": [],
        "TRC001 rule-crashed": [],
    }
    assert {key: root.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4", "failures": "1", "errors": "0", "skipped": "1",
    }  # fmt: skip


def test_junit_puts_a_crash_at_the_rule_that_crashed() -> None:
    root = ElementTree.fromstring(render_junit(report(finding("TRC001", subject="GAP101"))))
    case = root.find(".//testcase[@name='GAP101 host-bound']")
    assert case is not None
    assert [child.tag for child in case] == ["error"]
    assert root.get("errors") == "1"
