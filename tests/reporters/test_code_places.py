"""CI shows a finding at its line of code if that line is part of the project."""

from __future__ import annotations

import json
from xml.etree.ElementTree import fromstring

from builders.lint_findings import finding, report

from perftool.model.lint import LintFinding
from perftool.model.report import Location, Source
from perftool.reporters.lint.github import render_github
from perftool.reporters.lint.gitlab import render_gitlab
from perftool.reporters.lint.junit import render_junit
from perftool.reporters.lint.sarif import render_sarif
from perftool.reporters.sources import plain_source

OURS = Source("src/train.py", 33, "main", 0.7, 7_000, here=True)
THEIRS = Source("net.py", 8, "forward", 0.3, 3_000)


def at(*sources: Source) -> LintFinding:
    return finding(location=Location("MME", 3, 1_000, 20, sources=sources))


def test_a_long_path_is_shown_by_its_end() -> None:
    long = plain_source(Source("d" * 5000 + "/train.py", 33, "main", 0.7, 7_000))
    assert len(long) < 300
    assert long.endswith("train.py:33 main")
    assert plain_source(OURS) == "src/train.py:33 main"


def test_sarif_shows_the_line_and_relates_the_trace() -> None:
    result = json.loads(render_sarif(report(at(THEIRS, OURS))))["runs"][0]["results"][0]
    related = result["relatedLocations"][0]

    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "src/train.py"},
        "region": {"startLine": 33, "startColumn": 1, "endLine": 33, "endColumn": 2},
    }
    assert result["locations"][0]["logicalLocations"] == [{"name": "main", "kind": "function"}]
    assert related["physicalLocation"]["artifactLocation"]["uri"] == "runs/a.json"
    assert related["properties"] == {"ts_ns": 1_000, "dur_ns": 20}


def test_github_gitlab_and_junit_show_the_line() -> None:
    result = report(at(OURS))
    case = next(case for case in fromstring(render_junit(result)).iter("testcase") if case.get("file"))

    assert b"file=src/train.py,line=33,col=1,endLine=33,endColumn=2" in render_github(result)
    assert json.loads(render_gitlab(result))[0]["location"] == {"path": "src/train.py", "lines": {"begin": 33}}
    assert (case.get("file"), case.get("line")) == ("src/train.py", "33")
    assert "src/train.py:33 main: device idle" in (case.find("failure").text or "")  # type: ignore[union-attr]


def test_a_place_without_a_line_is_the_first_line_of_the_file_since_ci_demands_one() -> None:
    result = report(at(Source("src/train.py", None, "main", 0.7, 7_000, here=True)))

    assert b"file=src/train.py,line=1," in render_github(result)
    assert "main (src/train.py): device idle" in render_junit(result).decode()
    code = json.loads(render_sarif(result))["runs"][0]["results"][0]["locations"][0]
    assert code["physicalLocation"]["region"]["startLine"] == 1
    assert code["logicalLocations"] == [{"name": "main", "kind": "function"}]


def test_a_finding_about_missing_code_points_at_its_trace() -> None:
    result = report(at(THEIRS))

    assert b"file=runs/a.json,line=1," in render_github(result)
    assert json.loads(render_gitlab(result))[0]["location"]["path"] == "runs/a.json"
    uri = json.loads(render_sarif(result))["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert uri["artifactLocation"]["uri"] == "runs/a.json"
