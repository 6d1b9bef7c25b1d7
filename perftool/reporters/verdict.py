"""The first thing a reader sees: what the run loses, in a sentence, and what to change first."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perftool.model.report import Finding, Report
from perftool.reporters.labels import kind_label
from perftool.units import format_ns, format_ratio

# Below this the device is as good as never idle, and naming causes would be noise.
_NOTEWORTHY_IDLE = 0.02
_ORIGINS = ("handMade", "simulated")


@dataclass(frozen=True)
class Verdict:
    """``headline`` is what the run loses, ``detail`` how its time goes; ``first`` is the finding to begin with."""

    headline: str
    detail: str
    first: Finding | None


def verdict(report: Report) -> Verdict:
    """What the findings and the summary come to."""
    first = next((finding for finding in report.findings if not finding.suppressed), None)
    detail = _detail(report)
    if first is None:
        return Verdict(_nothing_found(report), detail, None)
    title = finding_title(first, report)
    step = report.summary["step_time_ms"].value
    if first.gain and first.gain.ns_per_step and step:
        lost = f"Up to {format_ns(first.gain.ns_per_step)} of a step of {format_ns(step * 1e6)} is lost (estimate)"
        return Verdict(f"{lost}: {_lower(title)}.", detail, first)
    return Verdict(f"{title.rstrip('.')}.", detail, first)


def finding_title(finding: Finding, report: Report) -> str:
    """What a finding is, in a few words: the summary of its rule, or its name when the rule is not at hand."""
    return next((rule.summary for rule in report.rules if rule.code == finding.code), finding.name.replace("-", " "))


def origins(report: Report) -> list[str]:
    """What to say, above all else, about inputs that no device left behind: which, unless there is one trace only."""
    alone = sum(read.kind == "trace" for read in report.inputs) == 1
    told = {(issue.message, read.path) for read in report.inputs for issue in read.issues if issue.kind in _ORIGINS}
    messages = sorted({message for message, _ in told})
    paths = {message: ", ".join(sorted(path for said, path in told if said == message)) for message in messages}
    return [f"{message[:1].upper()}{message[1:]}{'' if alone else f': {paths[message]}'}" for message in messages]


def is_advice(finding: Finding, report: Report) -> bool:
    """Whether ``finding`` says what to change in the run; the others speak of the recording."""
    rule = next((rule for rule in report.rules if rule.code == finding.code), None)
    return getattr(rule, "advice", not finding.code.startswith("TRC"))


def short_fix(finding: Finding) -> str:
    """What to change, in one sentence."""
    return re.split(r"(?<=[.!?])\s", " ".join(finding.fix.split()), maxsplit=1)[0]


def _nothing_found(report: Report) -> str:
    if not report.inputs:
        return "There is no input."
    skipped = len(report.not_applicable)
    applied = f"{len(report.rules) - skipped} rules applied and found nothing to change"
    return f"{applied}; {skipped} could not be applied to this input." if skipped else f"{applied}."


def _detail(report: Report) -> str:
    idle = report.summary["device_idle_ratio"].value
    if not report.inputs:
        return ""
    if report.summary["window_ms"].value is None:
        return "No trace was read, so no times are known: this is what logs, metrics and configuration tell."
    if idle is None:
        return "The input shows no work of a device, so nothing is said about how busy one is."
    if idle < _NOTEWORTHY_IDLE or not report.idle_causes:
        return f"The device works {format_ratio(1 - idle)} of the time."
    main = report.idle_causes[0]
    largest = f"; the largest part: {kind_label(main.name)} ({format_ratio(main.share)})"
    return f"The device stands idle {format_ratio(idle)} of the time{'' if main.name == 'unknown' else largest}."


def _lower(title: str) -> str:
    """A title inside a sentence; abbreviations such as MME stay as they are."""
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]
