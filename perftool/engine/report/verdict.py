"""The first thing a reader sees: what the run loses, in a sentence, and how its time goes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perftool.engine.report.causes import CLAUSES, LARGE
from perftool.model.inputs import InputFile
from perftool.model.replayed import ReplayModel
from perftool.model.report import BREAKDOWN, Cause, Finding, Metric, NotApplicable, Share, Step, Verdict
from perftool.model.rule import Rule
from perftool.model.words import kind_label
from perftool.units import format_ns, format_ratio

# Below this the device is as good as never idle, and naming causes would be noise.
_NOTEWORTHY_IDLE = 0.02
# A device that is idle less than this is fed in time: what can be won lies in its kernels.
_WELL_FED = 0.10
# Kernels that take about as long as the device needs at its best leave little to win.
_NEAR_BEST = 0.80
_LONGEST_NAME = 60
_NO_WORK = "The device does nothing in the recorded steps: all of its work lies outside them."
_UNKNOWN = (
    "Most events of the recording are missing, so neither idle time nor gains can be told: record again, whole, "
    "without sampling or filtering."
)
_ADVICE = {"start_up": " Nothing of it recurs: record after the warm-up."}
# What a single step compiles may be paid once, or in every step.
_ONE_STEP = {"compile": " Whether this recurs, one step does not show: record later steps."}
# A smaller share of the step is lost in what differs from run to run.
FELT = 0.005


@dataclass(frozen=True)
class Told:
    """What a verdict is made of. ``reached`` is the share of their roofline that the matrix products reach, or None."""

    inputs: Sequence[InputFile]
    summary: Mapping[str, Metric]
    idle_causes: Sequence[Share]
    findings: Sequence[Finding]
    not_applicable: Sequence[NotApplicable]
    rules: Sequence[Rule]
    causes: Sequence[Cause] = ()
    device_ops: Sequence[Share] = ()
    steps: Sequence[Step] = ()
    reached: float | None = None
    model: ReplayModel | None = None


def verdict(run: Told) -> Verdict:
    """What findings and numbers come to: the largest thing that is known, whether a rule names it or not."""
    summary, findings, rules, causes = run.summary, run.findings, run.rules, run.causes
    step = summary["step_time_ms"].value
    whole = _Whole(int(step * 1e6) if step else 0, int(summary["steps"].value or 0))
    first = next(
        (found for found in findings if found.advice and (not found.gain or found.gain.share_of_step >= FELT)), None
    )
    worth = {finding.code for finding in findings if finding.gain}
    untold = next((cause for cause in causes if not worth & set(cause.codes)), None)
    gain = first.gain.ns_per_step if first and first.gain else 0
    detail = _detail(run.inputs, summary, run.idle_causes)
    # A symptom says that time is lost, and the cause where.
    if summary["device_unknown_ratio"].value == 1:
        headline = _UNKNOWN
    elif untold and (untold.ns_per_step > gain or (first and _is_symptom(first, rules))):
        headline = _cause_sentence(untold, whole)
    elif first:
        headline = _finding_sentence(first, rules, gain, whole)
    elif limit := _limit_sentence(run):
        headline, detail = limit, _sentence("; ".join(filter(None, (_passes(summary), _unknown(summary)))))
    else:
        headline = _nothing_found(run)
    return Verdict(headline, detail, tuple(causes), _together(run.model))


@dataclass(frozen=True)
class _Whole:
    """What times are part of: the median step, or, without ``steps``, the recording."""

    ns: int
    steps: int

    def __str__(self) -> str:
        return f"a step of {format_ns(self.ns)}" if self.steps else f"the {format_ns(self.ns)} recorded"


def _together(model: ReplayModel | None) -> str:
    """What the fixes of several warnings would come to."""
    together = model and model.together
    if model is None or not together or not model.replayed_step_ns or len(together.codes) < 2:
        return ""
    if together.step_ns > (1 - FELT) * model.replayed_step_ns:
        return ""
    steps = f"{format_ns(model.replayed_step_ns)} to {format_ns(together.step_ns)} a step"
    return f"All fixes together that can be modelled: {steps} (predicted)."


def _is_symptom(finding: Finding, rules: Sequence[Rule]) -> bool:
    return any(rule.code == finding.code and rule.explained_by and not rule.explains for rule in rules)


def _cause_sentence(cause: Cause, whole: _Whole) -> str:
    longest = cause.longest.dur_ns if cause.longest else None
    stretch = f"; the longest stretch takes {format_ns(longest)}" if longest else ""
    text = cause.text[:1].upper() + cause.text[1:]
    each = " a step" if whole.steps > 1 else ""
    lost = f"{format_ratio(cause.share)} of the time, {format_ns(min(cause.ns_per_step, whole.ns))}{each}"
    advice = _ADVICE.get(cause.name, _ONE_STEP.get(cause.name, "") if whole.steps < 2 else "")
    return f"{text} {lost}{stretch}.{advice}"


def _finding_sentence(first: Finding, rules: Sequence[Rule], gain: int, whole: _Whole) -> str:
    rule = next((rule for rule in rules if rule.code == first.code), None)
    if rule is not None and rule.scope == "ranks" and (first.gain or first.severity == "error"):
        # Who keeps the others waiting, or the run from going on, matters more than that somebody does.
        return f"{first.message[:1].upper()}{first.message[1:].rstrip('.')}."
    title = rule.summary if rule else first.name.replace("-", " ")
    # A symptom knows the largest of its causes.
    title = CLAUSES.get(str(first.evidence.get("main_cause")), title)
    if gain and whole.ns:
        predicted = first.gain is not None and first.gain.kind == "predicted"
        lost = f"{'' if predicted else 'Up to '}{format_ns(gain)} of {whole}"
        return f"{lost} is lost ({'predicted' if predicted else 'estimate'}): {_lower(title)}."
    return f"{title.rstrip('.')}."


def _nothing_found(run: Told) -> str:
    """What is true of a run that no rule has advice for: what its time goes to."""
    if not run.inputs:
        return "There is no input."
    if broken := next((found for found in run.findings if found.severity == "error"), None):
        title = next((rule.summary for rule in run.rules if rule.code == broken.code), broken.name)
        return f"{title.rstrip('.')}."
    if run.summary["device_idle_ratio"].value == 1:
        return _NO_WORK
    skipped = len(run.not_applicable)
    quiet = f"{len(run.rules) - skipped} rules applied and found nothing to change"
    quiet = f"{quiet}; {skipped} could not be applied to this input." if skipped else f"{quiet}."
    idle = run.summary["device_idle_ratio"].value
    parts = {part: sum(step.parts_ns[part] for step in run.steps if not step.partial) for part in BREAKDOWN}
    total = sum(parts.values())
    part, ns = max(parts.items(), key=lambda item: item[1])
    if idle is None and total and ns > LARGE * total and part != "other":
        return f"{format_ratio(ns / total)} of the time goes to {kind_label(part)}, {format_ns(ns)}; {quiet}"
    return quiet


def _limit_sentence(run: Told) -> str:
    """What the time of a device goes to that always works, and how far from its best it is; empty for another."""
    if not run.inputs or any(found.severity == "error" for found in run.findings):
        return ""
    idle = run.summary["device_idle_ratio"].value
    if idle is None or idle >= _WELL_FED or not run.device_ops:
        return ""
    top = run.device_ops[0]
    share = f"{format_ratio(top.share)} of the time in {_short(top.name)}"
    reached = f"; its matrix products reach {format_ratio(run.reached)} of what it allows" if run.reached else ""
    best = run.summary["roofline_ratio"].value
    only = f" but only at {format_ratio(best)} of what it could do," if best and best < _NEAR_BEST else ""
    return f"The device is the limit: it works {format_ratio(1 - idle)} of the time,{only} {share}{reached}."


def _short(name: str) -> str:
    """A kernel's name without what its template was made with, which may take lines."""
    name = re.sub(r"^void |[<(].*$", "", name)
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _detail(inputs: Sequence[InputFile], summary: Mapping[str, Metric], idle_causes: Sequence[Share]) -> str:
    idle = summary["device_idle_ratio"].value
    if not inputs:
        return ""
    if summary["window_ms"].value is None:
        return "No trace was read, so no times are known: this is what logs, metrics and configuration tell."
    if summary["device_unknown_ratio"].value == 1:
        return ""
    if idle is None:
        return "The input shows no work of a device, so nothing is said about how busy one is."
    untold = f" ({what})" if (what := _unknown(summary)) else ""
    if idle < _WELL_FED:
        best = _best(summary)
        if best or idle < _NOTEWORTHY_IDLE or not idle_causes:
            return f"The device works {format_ratio(1 - idle)} of the time{untold}{best}."
    main = idle_causes[0]
    largest = f"; the largest part: {kind_label(main.name)} ({format_ratio(main.share)})"
    return (
        f"The device stands idle {format_ratio(idle)} of the time{'' if main.name == 'unknown' else largest}{untold}."
    )


def _unknown(summary: Mapping[str, Metric]) -> str:
    """How long the recording does not show what the device does."""
    unknown = summary["device_unknown_ratio"]
    if not unknown.value or not unknown.numerator:
        return ""
    return f"its state in {format_ns(unknown.numerator * 1e6)} at the edge is not recorded and counts as neither"


def is_well_fed(summary: Mapping[str, Metric]) -> bool:
    """Whether the device is so busy that what can be won lies in its kernels."""
    idle = summary["device_idle_ratio"].value
    return idle is not None and idle < _WELL_FED


def _best(summary: Mapping[str, Metric]) -> str:
    """How far from its best a busy device is, and what keeps it from there; empty where that is little or unknown."""
    best = summary["roofline_ratio"].value
    far = f", its kernels at {format_ratio(best)} of what it could do" if best and best < _NEAR_BEST else ""
    return "; ".join((far, passes)) if (passes := _passes(summary)) else far


def _passes(summary: Mapping[str, Metric]) -> str:
    """What goes to kernels that only read and write, where that is much."""
    passes, window = (summary[name].value for name in ("passes_time_ms", "window_ms"))
    if not passes or not window or passes < LARGE * window:
        return ""
    spent = f"{format_ns(passes * 1e6)} of {format_ns(window * 1e6)}"
    return f"{spent} go to pointwise, normalisation and copy kernels between the products"


def _sentence(clause: str) -> str:
    return clause and f"{clause[:1].upper()}{clause[1:]}."


def _lower(title: str) -> str:
    """A title inside a sentence; abbreviations such as MME stay as they are."""
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]
