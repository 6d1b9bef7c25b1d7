"""Formats text about findings and inputs: titles, gains, and where the inputs come from."""

from __future__ import annotations

from perftool.model.report import Finding, Gain, Report
from perftool.model.words import of_steps
from perftool.units import format_ns, format_ratio

_ORIGINS = ("handMade", "simulated")


def finding_title(finding: Finding, report: Report) -> str:
    """Return a title for a finding: the summary of its rule, or its name if the rule is unknown."""
    name = finding.name.replace("-", " ")
    title = next((rule.summary for rule in report.rules if rule.code == finding.code), name)
    return of_steps(title, report.run.step_word)


def origins(report: Report) -> list[str]:
    """Say which inputs are simulated or made by hand, with their paths unless there is only one trace."""
    is_single = sum(read.kind == "trace" for read in report.inputs) == 1
    stated = {(issue.message, read.path) for read in report.inputs for issue in read.issues if issue.kind in _ORIGINS}
    messages = sorted({message for message, _ in stated})
    paths = {message: ", ".join(sorted(path for text, path in stated if text == message)) for message in messages}
    return [f"{message[:1].upper()}{message[1:]}{'' if is_single else f': {paths[message]}'}" for message in messages]


def origin(report: Report) -> str:
    """Return the source of the inputs for other programs: ``simulated``, ``handMade``, both, or empty if recorded."""
    kinds = {issue.kind for read in report.inputs for issue in read.issues if issue.kind in _ORIGINS}
    return " ".join(sorted(kinds))


def gain_text(finding: Finding) -> str:
    """Format the gain of ``finding``. Return "" if it has none."""
    return amount_text(finding.gain)


def amount_text(gain: Gain | None) -> str:
    """Format ``gain``, per step, as ``≤ 221 ms (57.8 %)``; without ``≤`` if it is no bound. Return "" if it is
    None."""
    if gain is None:
        return ""
    bound = "≤ " if gain.kind == "bound" else ""
    return f"{bound}{format_ns(gain.ns_per_step)} ({format_ratio(gain.share_of_step)})"


def overlap_text(finding: Finding) -> str:
    """Name up to two larger findings that count, or may count, the same time, for example ``overlaps FUS103, may
    overlap MEM110``. Return "" if none is known."""
    sure = [overlap.code for overlap in finding.overlaps if overlap.certain][:2]
    maybe = [one.code for one in finding.overlaps if not one.certain and one.code not in sure][: 2 - len(sure)]
    parts = (("overlaps", sure), ("may overlap", maybe))
    return ", ".join(f"{verb} {' and '.join(codes)}" for verb, codes in parts if codes)
