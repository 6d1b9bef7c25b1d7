"""Findings as SARIF 2.1.0, for code scanning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from perftool import __version__
from perftool.model.cut_text import cut_text
from perftool.model.links import DOCUMENTATION, rule_url
from perftool.model.lint import LintFinding, LintReport
from perftool.model.report import Location
from perftool.model.rule import Rule
from perftool.reporters.escape import escaped_texts, one_line
from perftool.reporters.json import dump
from perftool.reporters.lint.text import place_of

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVEL = {"error": "error", "warning": "warning", "info": "note"}
_PROBLEM = {"error": "error", "warning": "warning", "info": "recommendation"}
# GitHub code scanning's limits on descriptions and tags.
_LONGEST = 1024
_MOST_TAGS = 10
# A trace has no lines, so a place in time is a logical location, and the physical location is the start of the file.
_REGION = {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 2}


def render_sarif(result: LintReport) -> bytes:
    """Render one log with one run: all selected rules and all findings, with suppressed ones marked."""
    index = {rule.code: at for at, rule in enumerate(result.rules)}
    driver = {
        "name": "habana_perf_tool",
        "version": __version__,
        "semanticVersion": __version__,
        "informationUri": DOCUMENTATION,
        "rules": [_rule(rule) for rule in result.rules],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "habana_perf_tool/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True}],
        "results": escaped_texts(list(_results(result.findings, index)), one_line),
    }
    return dump({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=True)


def _rule(rule: Rule) -> dict[str, Any]:
    fix = rule.fix.whole
    example = f"\n\n```python\n{rule.example}\n```" if rule.example else ""
    described = {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": cut_text(rule.summary, _LONGEST)},
        "fullDescription": {"text": cut_text(" ".join((rule.why or rule.summary).split()), _LONGEST)},
        "help": {"text": fix, "markdown": f"{rule.why}\n\n**Fix.** {fix}{example}"},
        "defaultConfiguration": {"level": _LEVEL[rule.severity]},
        "properties": {
            "precision": rule.confidence,
            "problem.severity": _PROBLEM[rule.severity],
            "tags": ["performance", *rule.tags][:_MOST_TAGS],
        },
    }
    url = rule_url(rule.code, rule.references)
    return {**described, "helpUri": url} if url else described


def _results(findings: Iterable[LintFinding], index: dict[str, int]) -> Iterable[dict[str, Any]]:
    seen: Counter[str] = Counter()
    for found in findings:
        seen[found.finding.fingerprint] += 1
        yield _result(found, index[found.finding.code], seen[found.finding.fingerprint])


def _result(found: LintFinding, rule_index: int, occurrence: int) -> dict[str, Any]:
    finding = found.finding
    place = finding.location
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": _LEVEL[finding.severity],
        "message": {"text": _plain(finding.message)},
        "locations": [_location(found, place_of(found).replace(":", "/"))],
        # GitHub treats results with equal fingerprints as one alert, so a counter distinguishes them.
        "partialFingerprints": {"primaryLocationLineHash": f"{finding.fingerprint}:{occurrence}"},
        "properties": {
            "confidence": finding.confidence,
            "subject": finding.subject,
            "evidence": dict(finding.evidence),
            "gain_ns_per_step": finding.gain.ns_per_step if finding.gain else None,
            **_times(place),
        },
    }
    if found.source:
        result["locations"] = [_code(found)]
    # For a finding located at a line of code, the trace becomes a related location.
    related = [finding.location, *finding.related] if found.source else finding.related
    if related:
        result["relatedLocations"] = [_related(found, at, part) for at, part in enumerate(related, 1)]
    if found.baseline:
        result["baselineState"] = found.baseline
    if finding.suppressed:
        result["suppressions"] = [{"kind": "external", "status": "accepted"}]
    return result


def _plain(text: str) -> str:
    """Break up SARIF's link syntax (2.1.0, section 3.11.6), which a name in a trace may contain."""
    return text.replace("](", "] (")


def _location(found: LintFinding, place: str) -> dict[str, Any]:
    uri = quote(found.file.encode("utf-8", "replace")) or "unknown"
    physical = {"artifactLocation": {"uri": uri}, "region": _REGION}
    name = place or found.file or "run"
    logical = {"name": name.rsplit("/", 1)[-1], "fullyQualifiedName": name, "kind": "track"}
    return {"physicalLocation": physical, "logicalLocations": [logical]}


def _code(found: LintFinding) -> dict[str, Any]:
    """Return the location of a finding in the user's code."""
    file, line = found.place
    region = {"startLine": line, "startColumn": 1, "endLine": line, "endColumn": 2}
    physical = {"artifactLocation": {"uri": quote(file.encode("utf-8", "replace"))}, "region": region}
    name = found.source.function if found.source else file
    return {"physicalLocation": physical, "logicalLocations": [{"name": name, "kind": "function"}]}


def _related(found: LintFinding, number: int, place: Location) -> dict[str, Any]:
    step = "" if place.step is None else f"{found.step_word} {place.step}"
    text = place.name or step or "evidence"
    return {**_location(found, step), "id": number, "message": {"text": _plain(text)}, "properties": _times(place)}


def _times(place: Location) -> dict[str, Any]:
    return {"ts_ns": place.ts_ns, "dur_ns": place.dur_ns}
