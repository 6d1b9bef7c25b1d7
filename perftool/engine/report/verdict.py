"""The first thing a reader sees: what the run loses, in a sentence, and how its time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perftool.engine.report.causes import CLAUSES
from perftool.model.inputs import InputFile
from perftool.model.report import Cause, Finding, Gain, Metric, NotApplicable, ReplayModel, Share, Verdict
from perftool.model.rule import Rule
from perftool.model.words import kind_label
from perftool.units import format_ns, format_ratio

# Below this the device is as good as never idle, and naming causes would be noise.
_NOTEWORTHY_IDLE = 0.02


def verdict(
    inputs: Sequence[InputFile],
    summary: Mapping[str, Metric],
    idle_causes: Sequence[Share],
    findings: Sequence[Finding],
    not_applicable: Sequence[NotApplicable],
    rules: Sequence[Rule],
    causes: Sequence[Cause] = (),
    model: ReplayModel | None = None,
) -> Verdict:
    """What ``findings`` and the numbers come to: the largest thing that is known, whether a rule names it or not."""
    step = summary["step_time_ms"].value
    step_ns = int(step * 1e6) if step else 0
    first = next((finding for finding in findings if finding.advice), None)
    untold = next((cause for cause in causes if not cause.codes), None)
    gain = first.gain.ns_per_step if first and first.gain else 0
    # A symptom says that time is lost, and the cause where.
    if untold and (untold.ns_per_step > gain or (first and _is_symptom(first, rules))):
        headline = _cause_sentence(untold, step_ns)
    elif first:
        headline = _finding_sentence(first, rules, first.gain, step_ns)
    else:
        headline = _nothing_found(inputs, findings, not_applicable, rules)
    detail = " ".join(filter(None, [_detail(inputs, summary, idle_causes), _together(model)]))
    return Verdict(headline, detail, tuple(causes))


def _together(model: ReplayModel | None) -> str:
    """What the fixes of several warnings would come to."""
    together = model and model.together
    if model is None or not together or not model.replayed_step_ns or len(together.codes) < 2:
        return ""
    if together.step_ns >= model.replayed_step_ns:
        return ""
    steps = f"{format_ns(model.replayed_step_ns)} to {format_ns(together.step_ns)} a step"
    return f"All fixes together that can be modelled: {steps} (predicted)."


def _is_symptom(finding: Finding, rules: Sequence[Rule]) -> bool:
    return any(rule.code == finding.code and rule.explained_by and not rule.explains for rule in rules)


def _cause_sentence(cause: Cause, step_ns: int) -> str:
    longest = cause.longest.dur_ns if cause.longest else None
    stretch = f"; the longest stretch takes {format_ns(longest)}" if longest else ""
    text = cause.text[:1].upper() + cause.text[1:]
    return (
        f"{text} {format_ratio(cause.share)} of the time, {format_ns(min(cause.ns_per_step, step_ns))} a step{stretch}."
    )


def _finding_sentence(first: Finding, rules: Sequence[Rule], gain: Gain | None, step_ns: int) -> str:
    title = next((rule.summary for rule in rules if rule.code == first.code), first.name.replace("-", " "))
    # A symptom knows the largest of its causes.
    title = CLAUSES.get(str(first.evidence.get("main_cause")), title)
    if gain and gain.ns_per_step and step_ns:
        known = ("", "predicted") if gain.kind == "predicted" else ("Up to ", "estimate")
        lost = f"{known[0]}{format_ns(gain.ns_per_step)} of a step of {format_ns(step_ns)}"
        return f"{lost} is lost ({known[1]}): {_lower(title)}."
    return f"{title.rstrip('.')}."


def _nothing_found(
    inputs: Sequence[InputFile],
    findings: Sequence[Finding],
    not_applicable: Sequence[NotApplicable],
    rules: Sequence[Rule],
) -> str:
    if not inputs:
        return "There is no input."
    if findings:
        title = next((rule.summary for rule in rules if rule.code == findings[0].code), findings[0].name)
        return f"{title.rstrip('.')}."
    skipped = len(not_applicable)
    applied = f"{len(rules) - skipped} rules applied and found nothing to change"
    return f"{applied}; {skipped} could not be applied to this input." if skipped else f"{applied}."


def _detail(inputs: Sequence[InputFile], summary: Mapping[str, Metric], idle_causes: Sequence[Share]) -> str:
    idle = summary["device_idle_ratio"].value
    if not inputs:
        return ""
    if summary["window_ms"].value is None:
        return "No trace was read, so no times are known: this is what logs, metrics and configuration tell."
    if idle is None:
        return "The input shows no work of a device, so nothing is said about how busy one is."
    unknown = summary["device_unknown_ratio"]
    untold = ""
    if unknown.value and unknown.numerator:
        what = f"its state in the first {format_ns(unknown.numerator * 1e6)} is not recorded and counts as neither"
        untold = f" ({what})"
    if idle < _NOTEWORTHY_IDLE or not idle_causes:
        return f"The device works {format_ratio(1 - idle)} of the time{untold}."
    main = idle_causes[0]
    largest = f"; the largest part: {kind_label(main.name)} ({format_ratio(main.share)})"
    return (
        f"The device stands idle {format_ratio(idle)} of the time{'' if main.name == 'unknown' else largest}{untold}."
    )


def _lower(title: str) -> str:
    """A title inside a sentence; abbreviations such as MME stay as they are."""
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]
