"""Writes the verdict: the first sentences of a report, about the largest loss and where the time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perftool.engine.report.causes import LARGE, clause_of
from perftool.engine.report.caveats import (
    UNSTABLE,
    are_longer,
    caveat_sentences,
    is_overloaded,
    overload_sentence,
    unusable_sentence,
)  # fmt: skip
from perftool.engine.report.complete_steps import median_step_ns
from perftool.engine.report.device_words import (
    busy_detail,
    detail_sentence,
    is_memory_alone,
    largest_op,
    limit_sentence,
    sentence,
    short_name,
    work_sentences,
)  # fmt: skip
from perftool.engine.report.step_words import mostly_once, once_sentence, steps_and_phases, with_article
from perftool.engine.report.verdict_input import VerdictInput
from perftool.engine.rules.ranking import LOOSE, weight_ns
from perftool.engine.rules.sources import longest_function
from perftool.model.replayed import ReplayModel
from perftool.model.report import BREAKDOWN, Cause, Finding, GainKind, Verdict, included_in
from perftool.model.rule import Rule
from perftool.model.words import kind_label, of_steps
from perftool.units import format_ns, format_ratio, quantity

# The rule for optimizers that update parameters one by one.
_UNFUSED = "FUS101"
_NO_WORK = "The device is idle in the recorded steps: all of its work is outside them."
_UNKNOWN = (
    "Many events are missing from the recording, so idle time and gains are unknown: record again in full, without "
    "sampling or filtering."
)
_UNSEEN = (
    "The run uses a device ({sign} shows it), but none of its events was recorded: record device activities, and all "
    "threads."
)
_ADVICE = {
    "start_up": " This time does not recur: record after the warm-up.",
    "capture": " This time does not recur: record after the capture.",
    "no_core": " The recording does not distinguish running from waiting: record again while cores are free.",
    "between_ops": " Stacks (record --stacks, or with_stack=True) would show what the program does.",
    "unknown": " To see what the program does, record all threads, and stacks (record --stacks, or with_stack=True).",
}
# Causes for which the program's annotation is mentioned, because they do not identify a place in the program.
_PLACED = ("framework_op", "python", "blocked", "no_core", "lock", "sleep", "copy", "sync", "between_ops", "unknown")
# The cause named if the thread either ran Python or waited for a core, and the recording does not show which.
_NO_CORE = "no_core"
# The causes that occur only in one phase, and that phase.
_PHASE_OF = {"start_up": "startup", "capture": "capture"}
# A single step does not show whether its compilation recurs.
_ONE_STEP = {"compile": " One step does not show whether this recurs: record later steps."}
# Gains below this share of the step are within the noise between runs.
NOTICEABLE = 0.005


def verdict(run: VerdictInput) -> Verdict:
    """Write the verdict. Its headline names the largest loss, whether or not a rule explains it. If there is no loss,
    the headline says that the device is busy or that its state is unknown."""
    summary, findings, rules, causes = run.summary, run.findings, run.rules, run.causes
    mean_ns = run.run.mean_step_ns
    usual_ns = mean_ns or int(median_step_ns(run.steps))
    steps = int(summary["steps"].value or 0)
    whole = _Whole(usual_ns, steps, run.run.step_word, bool(mean_ns), are_longer(run))
    first = next(
        (found for found in findings if found.advice and (not found.gain or found.gain.share_of_step >= NOTICEABLE)),
        None,
    )
    if first and causes and _is_symptom(first, rules):
        named = (found for found in findings if found.gain and found.code in causes[0].codes)
        first = next((found for found in named if not _is_symptom(found, rules)), first)
    worth = {finding.code for finding in findings if finding.gain}
    unexplained = next((cause for cause in causes if not worth & set(cause.codes)), None)
    if unexplained and first and _outweighs(first, unexplained, causes, rules):
        unexplained = None
    detail = detail_sentence(run)
    most = largest_op(run)
    named_phase, steady = None, ""
    # The first case that applies determines the headline.
    if summary["device_unknown_ratio"].value == 1:
        headline = _UNKNOWN
    elif run.unseen:
        headline, detail = _UNSEEN.format(sign=run.unseen.sign), run.unseen.shown
    elif (
        unexplained
        and not _blames(first, rules)
        and (
            unexplained.ns_per_step > _certain_gain(first, findings, whole.ns, unexplained)
            or (first and _is_symptom(first, rules))
        )
    ):
        overloaded = overload_sentence(findings) if unexplained.name == _NO_CORE else ""
        headline = overloaded or _cause_sentence(unexplained, whole, run)
        named_phase = _PHASE_OF.get(unexplained.name)
    elif first:
        same_fix = included_in(first, findings)
        headline = _finding_sentence(same_fix, rules, *_measured_by(first, whole, run), run.device)
        headline += _other_culprits(first, findings, rules)
        if _gains_below(_MINOR, first) and not _blames(first, rules) and (limit := limit_sentence(run, _MOSTLY_BUSY)):
            headline = limit if _gains_below(_TABLE_ONLY, first) else f"{limit} {headline}"
            detail, most = busy_detail(run), work_sentences(run) or most
    elif limit := limit_sentence(run):
        unknown = f"{limit} No known cause of lost time was found." if run.device == "cpu" else limit
        headline = unusable_sentence(findings) or unknown
        detail, most = busy_detail(run), work_sentences(run) or most
    else:
        headline, most = _nothing_found(run), work_sentences(run) or most
        if is_memory_alone(run):
            headline, detail = detail, headline
    if named_phase is None and (once := mostly_once(run)):
        named_phase, steady = once.name, f"The steady {run.run.step_word}s: {_lower(headline)}"
        headline = once_sentence(once, run)
    caveats = " ".join(filter(None, caveat_sentences(run, headline)))
    optimizer = "" if first and first.code == _UNFUSED else run.on_cpu.optimizer
    outside = (*steps_and_phases(run, named_phase, headline), run.on_cpu.apart)
    # New memory is slow to write, so copies to it say little about the program.
    moves = "" if run.on_cpu.growing else run.on_cpu.moves
    about = (*outside, *most, run.on_cpu.by_function, *run.on_cpu.long_calls.sentences, moves, optimizer)
    together = _combined_gain(run.model)
    headline, detail, together, steady, caveats, *context = (
        of_steps(text, whole.word) for text in (headline, detail, together, steady, caveats, *filter(None, about))
    )
    return Verdict(headline, detail, tuple(causes), together, tuple(context), steady, caveats)


@dataclass(frozen=True)
class _Whole:
    """The time that losses are compared with, in ns: the typical step or, if ``steps`` is 0, the recording. ``longer``
    is set if the recorded steps are longer than other steps; a loss is then given as a share, not as a time."""

    ns: int
    steps: int
    word: str
    mean: bool = False
    longer: bool = False

    def share(self, loss_ns: int) -> str:
        """Return a loss as text, with the time that it is part of."""
        if self.longer and self.steps:
            return f"{format_ratio(loss_ns / self.ns)} of {self._article} {self.word}"
        return f"{format_ns(loss_ns)} of {self}"

    def __str__(self) -> str:
        if not self.steps:
            return f"the {format_ns(self.ns)} recorded"
        if self.mean:
            return f"{self._article} {self.word} ({format_ns(self.ns)} on average)"
        return f"{self._article} {format_ns(self.ns)} {self.word}"

    @property
    def _article(self) -> str:
        return "the" if self.steps == 1 else "each"


# If a single stretch accounts for more than this share of the lost time, the loss may have happened only once.
_AT_ONCE = 0.5
# A function is named in the sentence about lost time if it runs for more than this share of that time.
_MOSTLY = 0.5
# If the device is idle for less than this share, the verdict says where its time goes before it gives minor advice.
_MOSTLY_BUSY = 0.3
# The gain below which advice is minor.
_MINOR = 0.15
# If the device is busy, advice with a smaller gain appears only in the table.
_TABLE_ONLY = 0.1
_HOW_KNOWN: dict[GainKind, str] = {"bound": "", "predicted": " (predicted)", "tried": " (tried on a copy of the model)"}


def _gains_below(share: float, first: Finding) -> bool:
    """Whether the gain of ``first`` is known and less than ``share`` of the step."""
    return first.whole_gain is not None and first.whole_gain.share_of_step < share


def _combined_gain(model: ReplayModel | None) -> str:
    """Return a sentence about the predicted step time with all modelled fixes. The result is empty if there are too
    few, or they save too little."""
    together = model and model.together
    if model is None or not together or not model.replayed_step_ns or len(together.codes) < 2:
        return ""
    if together.step_ns > (1 - NOTICEABLE) * model.replayed_step_ns:
        return ""
    step = "the mean step" if model.steps > 1 else "the step"
    times = f"from {format_ns(model.replayed_step_ns)} to {format_ns(together.step_ns)}"
    return f"With all modelled fixes applied, {step} drops {times} (predicted)."


def _blames(finding: Finding | None, rules: Sequence[Rule]) -> bool:
    """Whether ``finding`` blames stragglers and has a gain. Such a finding comes first in a verdict."""
    blaming = {rule.code for rule in rules if rule.whatif_ranks is not None}
    return finding is not None and finding.code in blaming and finding.gain is not None


def _other_culprits(first: Finding, findings: Sequence[Finding], rules: Sequence[Rule]) -> str:
    """Return a sentence about other stragglers if ``first`` blames one; otherwise, return an empty string."""
    if not _blames(first, rules):
        return ""
    others = [found for found in findings if found is not first and _blames(found, rules)]
    clauses = [
        f"{found.message.split(': ')[0]} ({found.code})"
        for found in others if found.gain and found.gain.share_of_step >= NOTICEABLE
    ]  # fmt: skip
    return f" In addition, {', and '.join(clauses)}." if clauses else ""


def _certain_gain(first: Finding | None, findings: Sequence[Finding], step_ns: int, loss: Cause) -> float:
    """Return the gain of ``first`` in ns, for comparison with the measured ``loss``. On an overloaded machine, a bound
    may be far above the real gain, so it is divided by ``LOOSE``, unless ``loss`` is the time that threads wait for a
    core, which may be overstated as well.
    """
    if first is None:
        return 0
    loose = loss.name != _NO_CORE and first.whole_gain and first.whole_gain.kind == "bound" and is_overloaded(findings)
    return max(0, weight_ns(first, step_ns)) / (LOOSE if loose else 1)


def _outweighs(first: Finding, unexplained: Cause, causes: Sequence[Cause], rules: Sequence[Rule]) -> bool:
    """Whether the headline is about the finding ``first`` even if the cause ``unexplained`` takes more time: if
    ``first`` explains a larger cause, or saves much of the device's work while the cause is the wait for a core, which
    the program cannot shorten.
    """
    if any(first.code in cause.codes for cause in causes[: causes.index(unexplained)]):
        return True
    saves_work = any(rule.code == first.code and rule.relieves == "device" for rule in rules)
    return unexplained.name == _NO_CORE and saves_work and first.gain is not None and not _gains_below(_MINOR, first)


def _is_symptom(finding: Finding, rules: Sequence[Rule]) -> bool:
    # A finding whose evidence names the cause is not a symptom.
    symptoms = (rule.code for rule in rules if rule.explained_by and not rule.explains)
    return not finding.evidence.get("clause") and finding.code in symptoms


def _cause_sentence(cause: Cause, whole: _Whole, run: VerdictInput) -> str:
    longest = cause.longest.dur_ns if cause.longest else None
    around = f", {cause.longest.name}" if cause.longest and cause.longest.name else ""
    stretch = f"; the longest stretch takes {format_ns(longest)}{around}" if longest else ""
    text = cause.text
    each = f"{format_ns(cause.ns_per_step)}{f' {with_article(whole.word)}' if whole.steps > 1 else ''}"
    # If steps are uneven, or the loss happened only once, the mean per step describes no step, so the total is given.
    if whole.steps > 1 and (whole.mean or _happened_once(longest or 0, cause.share, whole, run)):
        each = f"{format_ns(cause.share * _recorded_ns(run))} of the {format_ns(_recorded_ns(run))} recorded"
    text += _mostly_in(run.findings, run.rules, cause.ns_per_step) if cause.name == "python" else ""
    if cause.name in _PLACED and cause.within and ", mostly in " not in text:
        text += f", mostly inside the annotation {short_name(cause.within)}"
    advice = _ADVICE.get(cause.name, _ONE_STEP.get(cause.name, "") if whole.steps < 2 else "")
    return f"For {format_ratio(cause.share)} of the time ({each}), {text}{stretch}.{advice}"


def _mostly_in(findings: Sequence[Finding], rules: Sequence[Rule], ns_per_step: float) -> str:
    """Return a clause about the user's function that takes most of the ``ns_per_step`` of plain Python, and about the
    built-in function that it calls. The result is empty if it is unknown.
    """
    about = {rule.code for rule in rules if "python" in rule.tags}
    for found in findings:
        gain = found.gain.ns_per_step if found.gain and found.code in about else 0
        sources = found.location.sources if gain else ()
        function, ns = longest_function((one.file, one.function, one.share * gain) for one in sources)
        if ns > _MOSTLY * ns_per_step:
            doing = found.evidence.get("doing")
            return f", mostly {f'{doing} ' if doing else ''}in {function}"
    return ""


def _measured_by(first: Finding, whole: _Whole, run: VerdictInput) -> tuple[int, _Whole]:
    """Return the loss of ``first`` in ns, and the time to compare it with."""
    gain = first.whole_gain
    if gain is None:
        return 0, whole
    # If steps have two lengths, there are several long ones, so a long stretch is not a one-off event.
    recurs = first.code == UNSTABLE and run.run.lengths
    longest_ns = 0 if recurs else first.location.dur_ns or 0
    if whole.steps > 1 and _happened_once(longest_ns, gain.share_of_step, whole, run):
        recorded_ns = _recorded_ns(run)
        return round(gain.share_of_step * recorded_ns), _Whole(recorded_ns, 0, whole.word)
    return gain.ns_per_step, whole


def _happened_once(longest_ns: int, share: float, whole: _Whole, run: VerdictInput) -> bool:
    """Whether a single stretch, longer than a typical step, accounts for most of a loss of this ``share``.

    Such a loss does not slow down the typical step.
    """
    return longest_ns > max(whole.ns, _AT_ONCE * share * _recorded_ns(run))


def _recorded_ns(run: VerdictInput) -> int:
    return round((run.summary["window_ms"].value or 0) * 1e6)


def _finding_sentence(
    same_fix: Sequence[Finding], rules: Sequence[Rule], gain: int, whole: _Whole, device: str | None
) -> str:
    """Return a sentence about the first of several findings with the same fix. It gives the sum of their gains."""
    first, more = same_fix[0], len(same_fix) - 1
    rule = next((rule for rule in rules if rule.code == first.code), None)
    if rule is not None and rule.scope == "ranks" and (first.gain or first.severity == "error"):
        # The message identifies the straggler, and the ranks that wait for it are not at fault.
        return f"{first.message[:1].upper()}{first.message[1:].rstrip('.')}."
    title = rule.summary if rule else first.name.replace("-", " ")
    # The evidence of a symptom contains its largest cause.
    title = clause_of(str(first.evidence.get("main_cause")), device, first.evidence.get("main_ratio")) or title
    # For a rule about many ops, the evidence contains a clause about the op.
    title = str(first.evidence.get("clause") or title)
    title += _mostly_in([first], rules, first.gain.ns_per_step) if first.gain else ""
    others = quantity(more, f"more {first.code} finding", f"more {first.code} findings")
    title += f" (with {others})" if more else ""
    # If the fix is to do some work less often, the time of that work is spent rather than lost.
    if (spent_on := first.evidence.get("spent_on")) and first.whole_gain:
        spent = f"{format_ratio(first.whole_gain.share_of_step)} of the time, {format_ns(gain)} of {whole},"
        names = [str(found.evidence.get("spent_on")).split(", which ")[0] for found in same_fix]
        return f"{spent} goes to {' and '.join(names)}{str(spent_on).removeprefix(names[0])}."
    if gain and whole.ns:
        kind = first.whole_gain.kind if first.whole_gain else "bound"
        lost = f"{'Up to ' if kind == 'bound' else ''}{whole.share(gain)}"
        # A fix for device work saves time that the device spends working, so this time is not called lost.
        what = "can be saved" if rule is not None and rule.relieves == "device" else "is lost"
        return f"{lost} {what}{_HOW_KNOWN[kind]}: {_lower(title)}."
    return f"{title.rstrip('.')}."


def _nothing_found(run: VerdictInput) -> str:
    """Return a sentence for a run without advice: why there is none, or which part of the step takes the most time."""
    if not run.inputs:
        return "There is no input."
    if broken := next((found for found in run.findings if found.severity == "error"), None):
        title = next((rule.summary for rule in run.rules if rule.code == broken.code), broken.name)
        return f"{title.rstrip('.')}."
    if run.summary["device_idle_ratio"].value == 1:
        return _NO_WORK
    skipped = len(run.not_applicable)
    applied = quantity(len(run.rules) - skipped, "rule", "rules")
    cannot = f"; {quantity(skipped, 'does', 'do')} not apply to this input" if skipped else ""
    quiet = f"no known cause of lost time was found ({applied} applied{cannot})."
    idle = run.summary["device_idle_ratio"].value
    parts = {part: sum(step.parts_ns[part] for step in run.steps if not step.partial) for part in BREAKDOWN}
    total = sum(parts.values())
    part, ns = max(parts.items(), key=lambda item: item[1])
    if idle is None and total and ns > LARGE * total and part != "other":
        return f"{format_ratio(ns / total)} of the time goes to {kind_label(part)}, {format_ns(ns)}; {quiet}"
    return sentence(quiet.rstrip("."))


def _lower(title: str) -> str:
    """Return ``title`` for use inside a sentence. Abbreviations such as MME, and names of classes such as LayerNorm,
    keep their capitals."""
    return title if any(map(str.isupper, title.split(" ")[0][1:])) else title[:1].lower() + title[1:]
