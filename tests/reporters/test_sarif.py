"""SARIF 2.1.0: what its schema requires, and what GitHub's code scanning requires on top."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from builders.lint_findings import finding, report

from perftool.model.lint import LintFinding
from perftool.reporters.lint.sarif import render_sarif

# object of the standard -> its keys, each with the type of its value; "!" marks those that must be there.
_SHAPES: dict[str, dict[str, Any]] = {
    "log": {"$schema!": str, "version!": str, "runs!": ["run"]},
    "run": {
        "tool!": "tool", "results!": ["result"], "automationDetails": "details", "columnKind": str,
        "invocations": ["invocation"],
    },
    "details": {"id": str},
    "invocation": {"executionSuccessful!": bool},
    "tool": {"driver!": "driver"},
    "driver": {"name!": str, "version": str, "semanticVersion": str, "rules!": ["rule"]},
    "rule": {
        "id!": str, "name": str, "shortDescription!": "text", "fullDescription!": "text", "help!": "text",
        "helpUri": str, "defaultConfiguration": "configuration", "properties": dict,
    },
    "configuration": {"level": str},
    "text": {"text!": str, "markdown": str},
    "result": {
        "ruleId": str, "ruleIndex": int, "level": str, "message!": "text", "locations!": ["location"],
        "relatedLocations": ["location"], "partialFingerprints!": dict, "properties": dict,
        "baselineState": str, "suppressions": ["suppression"],
    },
    "suppression": {"kind!": str, "status": str},
    "location": {
        "id": int, "physicalLocation!": "physical", "logicalLocations": ["logical"], "message": "text",
        "properties": dict,
    },
    "logical": {"name": str, "fullyQualifiedName": str, "kind": str},
    "physical": {"artifactLocation!": "artifact", "region!": "region"},
    "artifact": {"uri!": str},
    "region": {"startLine!": int, "startColumn!": int, "endLine!": int, "endColumn!": int},
}  # fmt: skip


def check(value: Any, shape: Any, path: str = "log") -> None:
    """Fail on a missing or unknown key, a value of the wrong type, and an empty text."""
    if isinstance(shape, list):
        assert isinstance(value, list), path
        for at, part in enumerate(value):
            check(part, shape[0], f"{path}[{at}]")
    elif isinstance(shape, str):
        keys = {key.rstrip("!"): kind for key, kind in _SHAPES[shape].items()}
        required = {key[:-1] for key in _SHAPES[shape] if key.endswith("!")}
        assert set(value) <= set(keys), (path, set(value) - set(keys))
        assert required <= set(value), (path, required - set(value))
        for key, part in value.items():
            check(part, keys[key], f"{path}.{key}")
    else:
        assert isinstance(value, shape), path
        assert value != "", path


def sarif(*findings: LintFinding) -> Any:
    log = json.loads(render_sarif(report(*findings)))
    check(log, "log")
    return log


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


def test_alike_findings_keep_apart() -> None:
    results = sarif(finding(), finding())["runs"][0]["results"]
    prints = [result["partialFingerprints"]["primaryLocationLineHash"] for result in results]
    assert prints == ["0123456789abcdef:1", "0123456789abcdef:2"]


def test_suppressed_findings_say_so() -> None:
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
