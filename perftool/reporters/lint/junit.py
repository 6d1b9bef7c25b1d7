"""Findings as JUnit XML: a suite per input and a case per rule, so that reports without findings still list checks."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from perftool.model.inputs import InputFile
from perftool.model.lint import LintFinding, LintReport
from perftool.model.rule import Rule
from perftool.reporters.escape import one_line, xml_text
from perftool.reporters.lint.text import place_of
from perftool.reporters.sources import shown_sources

_CRASHED = "TRC001"
_SUFFIXES = (".gz", ".zst", ".json", ".trace", ".pt")


def render_junit(result: LintReport) -> bytes:
    """Render the XML document, without times and host names, so that equal runs yield equal output."""
    suites = [_suite(read, result) for read in result.report.inputs]
    root = Element("testsuites", name="habana_perf_tool")
    root.extend(suite for suite in suites if len(suite))
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in suites)))
    root.set("time", "0")
    indent(root)
    document: bytes = tostring(root, encoding="UTF-8", xml_declaration=True)
    return document + b"\n"


def _suite(read: InputFile, result: LintReport) -> Element:
    """Build the suite of an input: a case for each rule if ``_represents_run`` is true, otherwise only for rules that
    fired.
    """
    here = [found for found in result.findings if found.file == read.path]
    whole = _represents_run(read, result.report.inputs)
    suite = Element("testsuite", name=xml_text(read.path), hostname="localhost")
    for rule in result.rules:
        found = [one for one in here if _case_of(one) == rule.code]
        if whole or found:
            _add_case(suite, read, rule, found, result)
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite)))
    suite.set("time", "0")
    return suite


def _represents_run(read: InputFile, inputs: Sequence[InputFile]) -> bool:
    """Whether the suite of ``read`` lists every rule: true for a readable trace or, without traces, the first readable
    input."""
    readable = [one for one in inputs if one.status != "unreadable"]
    traces = [one for one in readable if one.kind == "trace"]
    return read in (traces or readable[:1])


def _case_of(found: LintFinding) -> str:
    """Return the rule whose case shows ``found``; for a crash, the rule that crashed."""
    return found.finding.subject if found.finding.code == _CRASHED else found.finding.code


def _add_case(suite: Element, read: InputFile, rule: Rule, found: Sequence[LintFinding], result: LintReport) -> None:
    name = f"{rule.code} {rule.name}"
    case = SubElement(suite, "testcase", classname=xml_text(_without_suffix(read.path)), name=name, time="0")
    active = [one for one in found if not one.suppressed]
    if active:
        first = active[0].finding
        if active[0].source:
            case.set("file", xml_text(active[0].place[0]))
            case.set("line", str(active[0].place[1]))
        tag = "error" if first.code == _CRASHED else "failure"
        message = xml_text(one_line(first.message))
        node = SubElement(case, tag, type=first.severity, message=message)
        node.text = xml_text("\n".join(_line(one) for one in active) + f"\n\nFix: {' '.join(first.fix.split())}")
    elif found:
        SubElement(case, "skipped", message=f"{len(found)} suppressed by the baseline")
    elif reason := _why_not(rule, result):
        SubElement(case, "skipped", message=xml_text(f"not applicable: {reason}"))


def _why_not(rule: Rule, result: LintReport) -> str | None:
    return next((one.reason for one in result.report.not_applicable if one.code == rule.code), None)


def _line(found: LintFinding) -> str:
    code = shown_sources(found.finding)
    place = ", ".join(part for part in (place_of(found), code) if part)
    return one_line(f"{place}: {found.finding.message}" if place else found.finding.message)


def _without_suffix(path: str) -> str:
    for suffix in _SUFFIXES:
        path = path.removesuffix(suffix)
    return path
