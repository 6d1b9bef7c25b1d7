"""What the schema of SARIF 2.1.0 requires, and what GitHub's code scanning requires in addition."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from builders.lint_findings import finding, report
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema as Standard

from perftool.model.lint import LintFinding
from perftool.reporters.lint.sarif import render_sarif

_DRAFT = {"status": "state"}


def sarif(*findings: LintFinding) -> Any:
    log = json.loads(render_sarif(report(*findings)))
    Standard.model_validate(_of_the_draft(log))
    return log


def _of_the_draft(log: Any) -> Any:
    """Return ``log`` with the keys of an older draft, on which the schema in the package is based (`state` for
    `status`).
    """
    return json.loads(json.dumps(log), object_hook=lambda value: {_DRAFT.get(key, key): value[key] for key in value})


def test_the_structure_is_that_of_the_standard() -> None:
    log = sarif(finding(), finding("SYN101", related=()), replace(finding(suppressed=True), baseline="unchanged"))
    assert log["version"] == "2.1.0"
    assert [result["level"] for result in log["runs"][0]["results"]] == ["warning"] * 3


def test_without_findings_all_selected_rules_are_listed() -> None:
    run = sarif()["runs"][0]
    assert run["results"] == []
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["GAP101", "SYN101", "TRC000", "TRC001"]


def test_results_point_at_their_rule() -> None:
    run = sarif(finding("SYN101"), finding("TRC000"))["runs"][0]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    assert [result["level"] for result in run["results"]] == ["warning", "error"]


def test_the_place_in_time_is_a_logical_location() -> None:
    location = sarif(finding())["runs"][0]["results"][0]["locations"][0]
    assert location["logicalLocations"] == [
        {"name": "step 3", "fullyQualifiedName": "rank0/MME/step 3", "kind": "track"}
    ]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "runs/a.json"


def test_a_name_in_a_message_is_not_a_link() -> None:
    """In SARIF, ``[text](target)`` is a link."""
    one = finding()
    evil = replace(one, finding=replace(one.finding, message="the op [read me](https://evil.example) is slow"))
    [result] = sarif(evil)["runs"][0]["results"]
    assert "[read me] (https://evil.example)" in result["message"]["text"]
    assert "](" not in json.dumps(result)


def test_hidden_characters_are_escapes() -> None:
    one = finding()
    inner = replace(one.finding, message="an op\u202e\u200b\nx", subject="a\U000e0041", evidence={"op": ["\u200b"]})
    text = json.dumps(sarif(replace(one, finding=inner))["runs"][0]["results"])
    assert "an op\\\\u202e\\\\u200b\\\\nx" in text
    assert [hidden for hidden in ("\\u202e", "\\u200b", "\\udb40") if hidden in text.replace("\\\\u", "")] == []


def test_similar_findings_stay_separate() -> None:
    results = sarif(finding(), finding())["runs"][0]["results"]
    prints = [result["partialFingerprints"]["primaryLocationLineHash"] for result in results]
    assert prints == ["0123456789abcdef:1", "0123456789abcdef:2"]


def test_suppressed_findings_are_marked() -> None:
    accepted = replace(finding(suppressed=True), baseline="unchanged")
    results = sarif(accepted, replace(finding(), baseline="new"))["runs"][0]["results"]
    assert results[0]["suppressions"] == [{"kind": "external", "status": "accepted"}]
    assert [result["baselineState"] for result in results] == ["unchanged", "new"]
    assert "suppressions" not in results[1]


def test_descriptions_fit_and_uris_are_encoded() -> None:
    found = LintFinding(finding().finding, "runs/a b%é.json")
    run = sarif(found)["runs"][0]
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "runs/a%20b%25%C3%A9.json"
    for rule in run["tool"]["driver"]["rules"]:
        assert len(rule["shortDescription"]["text"]) <= 1024
        assert len(rule["fullDescription"]["text"]) <= 1024
        assert rule["properties"]["precision"] in ("very-high", "high", "medium", "low")
