"""Writes the verdict: the first sentences of a report, on the largest loss and on where the time goes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from perftool.engine.report.causes import LARGE, clause_of
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
from perftool.engine.report.verdict_input import VerdictInput
from perftool.engine.rules.ranking import LOOSE, weight_ns
from perftool.engine.rules.sources import longest_function
from perftool.model.modules import INSIDE
from perftool.model.replayed import ReplayModel
from perftool.model.report import BREAKDOWN, Cause, Finding, Phase, Verdict
from perftool.model.rule import Rule
from perftool.model.words import kind_label, of_steps
from perftool.units import format_ns, format_ratio

# The rule that reports an overloaded machine.
_OVERLOADED = "TRC111"
# A run with more threads and loader workers than cores overloaded the machine by itself if the cores were busy for more
# than the first share, and other processes used less than the second share of the time that threads waited.
_BUSY, _OTHERS = 0.9, 0.5
# The rule that reports the time that the profiler takes.
_PROFILED = "TRC105"
# The rule for calls whose time varies. A finding of it without advice means that other work disturbed the recording.
_VARYING = "ENG107"
# The rule for calls that get new memory from the system.
_NEW_MEMORY = "MEM110"
# The rule for steps that take longer than others.
_UNSTABLE = "STP101"
# The rule for optimizers that update parameters one by one.
_UNFUSED = "FUS101"
# The rule for steps that compile or start up.
_WARM_UP = "STP102"
# The rule for ranks without a trace.
_MISSING = "TRC107"
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
    "between_ops": " Stacks (record --stacks, or with_stack=True) would show it.",
    "unknown": " Record all threads, and stacks (record --stacks, or with_stack=True), to see it.",
}
# Causes for which the program's annotation is mentioned, because they do not identify a place in the program.
_PLACED = ("framework_op", "python", "blocked", "no_core", "lock", "sleep", "copy", "sync", "between_ops", "unknown")
# The cause of stretches in which the thread either ran Python or waited for a core. The recording does not show which.
_NO_CORE = "no_core"
# The causes that occur only in one phase, and that phase.
_PHASE_OF = {"start_up": "startup", "capture": "capture"}
_FOUND_BY = {
    "optimizer": "Steps are not marked; each ends with a call of the optimizer.",
    "annotation": "Steps are not marked; each begins with a recurring annotation.",
    "copies": "Steps are not marked; each seems to begin where inputs are copied to the device.",
}
# A single step does not show whether its compilation recurs.
_ONE_STEP = {"compile": " One step does not show whether this recurs: record later steps."}
# Gains below this share of the step are within the noise between runs.
NOTICEABLE = 0.005


def verdict(run: VerdictInput) -> Verdict:
    """Write the verdict. Its headline names the largest loss, whether or not a rule explains it, or else says that the
    device is busy or that its state is unknown."""
    summary, findings, rules, causes = run.summary, run.findings, run.rules, run.causes
    mean_ns = run.run.mean_step_ns
    usual_ns = mean_ns or int(median_step_ns(run.steps))
    whole = _Whole(usual_ns, int(summary["steps"].value or 0), run.run.step_word, bool(mean_ns))
    first = next(
        (found for found in findings if found.advice and (not found.gain or found.gain.share_of_step >= NOTICEABLE)),
        None,
    )
    if first and causes and _is_symptom(first, rules):
        named = (found for found in findings if found.gain and found.code in causes[0].codes)
        first = next((found for found in named if not _is_symptom(found, rules)), first)
    worth = {finding.code for finding in findings if finding.gain}
    unexplained = next((cause for cause in causes if not worth & set(cause.codes)), None)
    # If the first finding explains a larger cause, a smaller unexplained one does not become the headline.
    if unexplained and first and any(first.code in cause.codes for cause in causes[: causes.index(unexplained)]):
        unexplained = None
    detail = detail_sentence(run)
    most = largest_op(run)
    named_phase, rest = None, ""
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
        overloaded = _overloaded(findings) if unexplained.name == _NO_CORE else ""
        headline = overloaded or _cause_sentence(unexplained, whole, run)
        named_phase = _PHASE_OF.get(unexplained.name)
    elif first:
        headline = _finding_sentence(first, rules, *_measured_by(first, whole, run), run.device)
        headline += _other_culprits(first, findings, rules)
        if _gains_below(_MINOR, first) and not _blames(first, rules) and (limit := limit_sentence(run, _MOSTLY_BUSY)):
            headline = limit if _gains_below(_TABLE_ONLY, first) else f"{limit} {headline}"
            detail, most = busy_detail(run), work_sentences(run) or most
    elif limit := limit_sentence(run):
        headline = f"{limit} No known cause of lost time was found." if run.device == "cpu" else limit
        detail, most = busy_detail(run), work_sentences(run) or most
    else:
        headline, most = _nothing_found(run), work_sentences(run) or most
        if is_memory_alone(run):
            headline, detail = detail, headline
    if named_phase is None and (once := _mostly_once(run)):
        named_phase, rest = once.name, f"The steady {run.run.step_word}s: {_lower(headline)}"
        headline = _once_sentence(once, run)
    told = (rest, _lengths(run, headline), run.passed_on, _missing(findings), _inflated(run))
    caveats = " ".join(filter(None, (*told, _disturbed(findings, headline))))
    optimizer = "" if first and first.code == _UNFUSED else run.on_cpu.optimizer
    outside = (*_steps_and_phases(run, named_phase, headline), run.on_cpu.apart)
    about = (*outside, *most, run.on_cpu.by_function, *run.on_cpu.long_calls.sentences, optimizer)
    together = _combined_gain(run.model)
    headline, detail, together, caveats, *context = (
        of_steps(text, whole.word) for text in (headline, detail, together, caveats, *filter(None, about))
    )
    return Verdict(headline, detail, tuple(causes), together, tuple(context), caveats)


@dataclass(frozen=True)
class _Whole:
    """The time that losses are compared with, in ns: the typical step or, if ``steps`` is 0, the recording."""

    ns: int
    steps: int
    word: str
    mean: bool = False

    def __str__(self) -> str:
        if not self.steps:
            return f"the {format_ns(self.ns)} recorded"
        which = "the" if self.steps == 1 else "each"
        if self.mean:
            return f"{which} {self.word} ({format_ns(self.ns)} on average)"
        return f"{which} {format_ns(self.ns)} {self.word}"


# Names of phases for use in a sentence.
_PHASES = {
    "startup": "start-up", "warmup": "warm-up", "capture": "the capture of graphs",
    "profiler": "the profiler's own work", "checkpoint": "saving checkpoints", "evaluation": "evaluation",
}  # fmt: skip
# The profiler's notation of a Python function.
_FRAME = re.compile(r".+\(\d+\): (.+)")
# If a single stretch accounts for more than this share of the lost time, the loss may have happened only once.
_AT_ONCE = 0.5
# A function is named in the sentence about lost time if it runs for more than this share of that time.
_MOSTLY = 0.5
# If start-up, checkpoints and similar phases take at least this share, the recording hardly shows the steady state.
_NEARLY_ALL = 0.9
# Phases with a smaller share are not mentioned.
_WEIGHTY = 0.05
# The backward passes of a step are mentioned if there are at least this many. Gradient accumulation rarely uses more.
_SEVERAL = 8
# If a step calls a model at least this often, one call could process all of its inputs.
_CALLS = 4
# A loop is mentioned if it runs at least this often per step. Identical layers look like a loop, but a model rarely has
# more of them.
_LAYERS = 12
# A loop or a module with a smaller share of the time is not worth a sentence.
_LOOPED = 0.3
# If the device is idle for less than this share, the verdict says where its time goes before it gives minor advice.
_MOSTLY_BUSY = 0.3
# The gain below which advice is minor.
_MINOR = 0.15
# If the device is busy, advice with a smaller gain appears only in the table.
_TABLE_ONLY = 0.1


def _gains_below(share: float, first: Finding) -> bool:
    """Whether the gain of ``first`` is known and less than ``share`` of the step."""
    return first.gain is not None and first.gain.share_of_step < share


def _steps_and_phases(run: VerdictInput, named: str | None, headline: str) -> tuple[str, str, str]:
    """Three sentences, any of which may be empty: how steps were found, what repeats (unless the ``headline`` says it),
    and how long the phases other than the steady one and ``named`` take.
    """
    whole = sum(phase.total_ns for phase in run.phases)
    weighty = [phase for phase in run.phases if phase.name in _PHASES and phase.share >= _WEIGHTY]
    clauses = [_phase_clause(phase) for phase in weighty if phase.name != named]
    named_there = "backward passes" in headline or "a loop" in headline
    passes = "" if named_there else _backward_passes(run) or _calls(run) or _loop(run)
    text = f"Of the {format_ns(whole)} recorded, {' and '.join(clauses)}." if clauses else ""
    unit = f"A step is {run.run.step_unit}." if run.run.step_unit else ""
    return _FOUND_BY.get(run.run.steps_from or "", unit), passes, text


def _backward_passes(run: VerdictInput) -> str:
    """A sentence on the backward passes of a step, if there are many: one pass over a batch could replace them."""
    passes, times = run.on_cpu.backward_passes or (0.0, 0)
    if passes < _SEVERAL:
        return ""
    if times > 1 and not run.summary["steps"].value:
        return f"Each update follows {round(passes):,} backward passes."
    return f"{_repeated(run)} has {round(passes):,} backward passes."


def _calls(run: VerdictInput) -> str:
    """A sentence on how often a step calls the model, or a module calls one of its submodules; empty if rarely."""
    if run.device != "cpu":
        return ""
    steps = run.summary["steps"].value or 1
    single = {one.path: one for one in run.modules if one.path and one.modules == 1}
    outermost = max((one for one in single.values() if one.depth == 1), key=lambda one: one.share, default=None)
    if outermost and outermost.calls >= _CALLS * steps:
        if outermost.module == run.on_cpu.long_calls.module:
            return ""
        return f"{_repeated(run)} calls {short_name(outermost.module or '')} {round(outermost.calls / steps):,} times."
    inner = [
        (one, around)
        for path, one in single.items()
        if one.share >= _LOOPED
        and (around := single.get(path.rpartition(INSIDE)[0]))
        and one.calls >= _CALLS * around.calls
    ]
    if not inner:
        return ""
    one, around = max(inner, key=lambda pair: pair[0].share)
    times = round(one.calls / around.calls)
    names = short_name(around.module or ""), short_name(one.module or "")
    return f"Each call of {names[0]} calls the same {names[1]} {times:,} times: {format_ratio(one.share)} of the work."


def _loop(run: VerdictInput) -> str:
    """A sentence on the loop of ops in a step, or in a recording without steps; empty if it takes little time, or if
    the names of its ops are unknown.
    """
    loop, steps = run.on_cpu.op_loop, run.summary["steps"].value
    if loop is None or loop.names is None or loop.share < _LOOPED or loop.times < (_LAYERS if steps else _SEVERAL):
        return ""
    ops = f"about {loop.length:,} ops ({loop.names})"
    return f"{_repeated(run)} repeats {ops} {round(loop.times):,} times: {format_ratio(loop.share)} of the time."


def _repeated(run: VerdictInput) -> str:
    """The subject of a sentence on what repeats: a step, or the recording if it has no steps."""
    return _with_article(run.run.step_word).capitalize() if run.summary["steps"].value else "The recording"


def _phase_clause(phase: Phase) -> str:
    frame = _FRAME.fullmatch(phase.evidence or "")
    evidence = frame[1] if frame else short_name(phase.evidence or "").strip()
    by = f" ({evidence})" if evidence else ""
    return f"{format_ns(phase.total_ns)} is {_PHASES[phase.name]}{by}"


def _lengths(run: VerdictInput, headline: str) -> str:
    """A sentence on steps of two lengths, and on the extra work in the long ones if the recording shows it.

    Empty if no finding explains the lengths but an overloaded machine might. Does not repeat the ``headline``.
    """
    found = _finding(run.findings, _UNSTABLE)
    if not run.run.lengths or (found is None and _finding(run.findings, _OVERLOADED)):
        return ""
    times = []
    for length in run.run.lengths:
        ends = dict.fromkeys((format_ns(length.shortest_ns), format_ns(length.longest_ns)))
        times.append(f"{length.steps} take {' to '.join(ends)}")
    does = found.evidence.get("does", "") if found else ""
    clause = found.evidence.get("clause") if found else None
    more = "" if clause and clause in headline else does
    if found and not does and found.evidence.get("part") not in (None, "other"):
        more = f"; the long ones spend {format_ns(found.evidence['more_ns'])} more on {found.evidence['part_text']}"
    return f"{run.run.step_word.capitalize()}s have two lengths: {', '.join(times)}{more}."


def _mostly_once(run: VerdictInput) -> Phase | None:
    """If the recording hardly shows the steady state, the largest other phase; otherwise None."""
    once = [phase for phase in run.phases if phase.name in _PHASES]
    known = run.run.steps_from is not None and not run.unseen and run.summary["device_unknown_ratio"].value != 1
    if not once or not known or sum(phase.share for phase in once) < _NEARLY_ALL:
        return None
    return max(once, key=lambda phase: phase.total_ns)


def _once_sentence(phase: Phase, run: VerdictInput) -> str:
    whole = sum(phase.total_ns for phase in run.phases)
    compiling = sum(found.evidence.get("compile_ns") or 0 for found in run.findings if found.code == _WARM_UP)
    compilation = f", {format_ns(compiling)} of it compilation" if phase.name == "warmup" and compiling else ""
    later = ": record later steps" if phase.name in ("startup", "warmup") else ""
    return (
        f"{format_ratio(phase.share)} of the {format_ns(whole)} recorded is {_PHASES[phase.name]}{compilation}{later}."
    )


def _finding(findings: Sequence[Finding], code: str) -> Finding | None:
    """The first finding of the rule ``code``."""
    return next((found for found in findings if found.code == code), None)


def _missing(findings: Sequence[Finding]) -> str:
    """A sentence on the ranks without a trace; empty if there are none, or fewer than two others to compare."""
    found = _finding(findings, _MISSING)
    if found is None or found.evidence["world_size"] - found.evidence["missing"] < 2:
        return ""
    one = found.evidence["missing"] == 1
    return (
        f"{'Rank' if one else 'Ranks'} {found.evidence['ranks']} {'has' if one else 'have'} no trace here, so it is "
        f"unknown whether others wait for {'it' if one else 'them'}."
    )


def _inflated(run: VerdictInput) -> str:
    """A sentence on the share of the time that the profiler takes on a CPU; empty if it is small.

    With an accelerator, the host may wait for the device anyway, so the profiler's time says little about steps.
    """
    found = [one for one in run.findings if one.code == _PROFILED] if run.device == "cpu" else []
    by_rank: dict[int | None, float] = {}
    for one in found:
        by_rank[one.rank] = by_rank.get(one.rank, 0) + one.evidence["cost_ratio"]
    if not by_rank:
        return ""
    share = format_ratio(min(max(by_rank.values()), 1))
    # If the profiler's cost per op and per frame was not measured, a low estimate is used.
    measured = all(one.evidence["known"] == "measured" for one in found)
    taken = f"{'' if measured else 'at least '}{share} of the recorded time ({'measured' if measured else 'estimated'})"
    return f"The profiler takes {taken} and slows small ops most: without it, steps are shorter and gains are smaller."


def _overloaded(findings: Sequence[Finding]) -> str:
    """A sentence on threads that waited for a core; empty if the machine was not overloaded."""
    found = _finding(findings, _OVERLOADED)
    if found is None:
        return ""
    share, waited, recorded = (found.evidence[name] for name in ("waited_ratio", "waited_ns", "recorded_ns"))
    busy, others = found.evidence.get("busy_ratio"), found.evidence.get("others")
    crowded = found.evidence.get("crowded") and busy is not None and others is not None and busy > _BUSY
    by_itself = crowded and others * recorded < _OTHERS * waited
    cause = "The run has more busy threads and loader workers than cores" if by_itself else "The machine was overloaded"
    return (
        f"{cause}: threads of the run waited for a core for {format_ratio(share)} of the recorded time "
        f"({format_ns(waited)} of {format_ns(recorded)}), so steps took too long, and gains are upper bounds."
    )


def _disturbed(findings: Sequence[Finding], headline: str) -> str:
    """A sentence on an overloaded machine, or on calls whose time varies without a known reason; empty if neither is
    the case, or if the ``headline`` already says it.
    """
    if overloaded := _overloaded(findings):
        return "" if headline == overloaded else overloaded
    found = _finding(findings, _VARYING)
    if found is None or found.advice or (found.evidence.get("new_memory") and _finding(findings, _NEW_MEMORY)):
        return ""
    times = (
        f"the worst takes {format_ns(found.evidence['longest_ns'])} instead of {format_ns(found.evidence['usual_ns'])}"
    )
    if found.evidence.get("new_memory"):
        return (
            f"Identical calls vary in length ({times}). The recording does not show the reason: other work on the "
            "machine, or new memory, which the system clears before its first use."
        )
    return f"Identical calls vary in length ({times}), as they do on a machine that is also doing other work."


def _combined_gain(model: ReplayModel | None) -> str:
    """A sentence on the predicted step time with all modelled fixes; empty if there are too few, or they save too
    little."""
    together = model and model.together
    if model is None or not together or not model.replayed_step_ns or len(together.codes) < 2:
        return ""
    if together.step_ns > (1 - NOTICEABLE) * model.replayed_step_ns:
        return ""
    mean = " on average" if model.steps > 1 else ""
    times = f"from {format_ns(model.replayed_step_ns)} to {format_ns(together.step_ns)}{mean}"
    return f"Together, all fixes that can be modelled shorten a step {times} (predicted)."


def _blames(finding: Finding | None, rules: Sequence[Rule]) -> bool:
    """Whether ``finding`` blames stragglers and has a gain. Such a finding comes first in a verdict."""
    blaming = {rule.code for rule in rules if rule.whatif_ranks is not None}
    return finding is not None and finding.code in blaming and finding.gain is not None


def _other_culprits(first: Finding, findings: Sequence[Finding], rules: Sequence[Rule]) -> str:
    """A sentence on other stragglers if ``first`` blames one; else empty."""
    if not _blames(first, rules):
        return ""
    others = [found for found in findings if found is not first and _blames(found, rules)]
    clauses = [
        f"{found.message.split(': ')[0]} ({found.code})"
        for found in others if found.gain and found.gain.share_of_step >= NOTICEABLE
    ]  # fmt: skip
    return f" In addition, {', and '.join(clauses)}." if clauses else ""


def _certain_gain(first: Finding | None, findings: Sequence[Finding], step_ns: int, loss: Cause) -> float:
    """The gain of ``first`` in ns, for comparison with the measured ``loss``. On an overloaded machine, a bound may be
    far above the real gain, so it is divided by ``LOOSE``, unless ``loss`` may be overstated as well (the time without
    a core).
    """
    if first is None:
        return 0
    loose = loss.name != _NO_CORE and first.gain and first.gain.kind == "bound" and _finding(findings, _OVERLOADED)
    return max(0, weight_ns(first, step_ns)) / (LOOSE if loose else 1)


def _is_symptom(finding: Finding, rules: Sequence[Rule]) -> bool:
    # A finding whose evidence names the cause is not a symptom.
    symptoms = (rule.code for rule in rules if rule.explained_by and not rule.explains)
    return not finding.evidence.get("clause") and finding.code in symptoms


def _cause_sentence(cause: Cause, whole: _Whole, run: VerdictInput) -> str:
    longest = cause.longest.dur_ns if cause.longest else None
    around = f", {cause.longest.name}" if cause.longest and cause.longest.name else ""
    stretch = f"; the longest stretch takes {format_ns(longest)}{around}" if longest else ""
    text = cause.text
    each = f"{format_ns(cause.ns_per_step)}{f' {_with_article(whole.word)}' if whole.steps > 1 else ''}"
    # If steps are uneven, or the loss happened once, the time per step would fit no step, so the total is given.
    if whole.steps > 1 and (whole.mean or _happened_once(longest or 0, cause.share, whole, run)):
        each = f"{format_ns(cause.share * _recorded_ns(run))} of the {format_ns(_recorded_ns(run))} recorded"
    text += _mostly_in(run.findings, run.rules, cause.ns_per_step) if cause.name == "python" else ""
    if cause.name in _PLACED and cause.within and ", mostly in " not in text:
        text += f", mostly inside the annotation {short_name(cause.within)}"
    advice = _ADVICE.get(cause.name, _ONE_STEP.get(cause.name, "") if whole.steps < 2 else "")
    return f"For {format_ratio(cause.share)} of the time ({each}), {text}{stretch}.{advice}"


def _mostly_in(findings: Sequence[Finding], rules: Sequence[Rule], ns_per_step: float) -> str:
    """A clause on the user's function that takes most of the ``ns_per_step`` of plain Python, and on the built-in
    function that it calls; empty if unknown.
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
    """The loss of ``first`` in ns, and the time to compare it with."""
    if first.gain is None:
        return 0, whole
    # If steps have two lengths, there are several long ones, so a long stretch is not a one-off event.
    recurs = first.code == _UNSTABLE and run.run.lengths
    longest_ns = 0 if recurs else first.location.dur_ns or 0
    if whole.steps > 1 and _happened_once(longest_ns, first.gain.share_of_step, whole, run):
        recorded_ns = _recorded_ns(run)
        return round(first.gain.share_of_step * recorded_ns), _Whole(recorded_ns, 0, whole.word)
    return first.gain.ns_per_step, whole


def _happened_once(longest_ns: int, share: float, whole: _Whole, run: VerdictInput) -> bool:
    """Whether a single stretch, longer than a typical step, accounts for most of a loss of this ``share``.

    Such a loss does not slow down the typical step.
    """
    return longest_ns > max(whole.ns, _AT_ONCE * share * _recorded_ns(run))


def _recorded_ns(run: VerdictInput) -> int:
    return round((run.summary["window_ms"].value or 0) * 1e6)


def _finding_sentence(first: Finding, rules: Sequence[Rule], gain: int, whole: _Whole, device: str | None) -> str:
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
    # If the fix is to do some work less often, its time is spent rather than lost.
    if (spent_on := first.evidence.get("spent_on")) and first.gain:
        spent = f"{format_ratio(first.gain.share_of_step)} of the time, {format_ns(gain)} of {whole},"
        return f"{spent} goes to {spent_on}."
    if gain and whole.ns:
        predicted = first.gain is not None and first.gain.kind == "predicted"
        lost = f"{'' if predicted else 'Up to '}{format_ns(gain)} of {whole}"
        # A fix for device work saves time in which the device is busy, so this time is not called lost.
        what = "can be saved" if rule is not None and rule.relieves == "device" else "is lost"
        return f"{lost} {what}{' (predicted)' if predicted else ''}: {_lower(title)}."
    return f"{title.rstrip('.')}."


def _nothing_found(run: VerdictInput) -> str:
    """A sentence for a run without advice: why there is none, or which part of the step takes the most time."""
    if not run.inputs:
        return "There is no input."
    if broken := next((found for found in run.findings if found.severity == "error"), None):
        title = next((rule.summary for rule in run.rules if rule.code == broken.code), broken.name)
        return f"{title.rstrip('.')}."
    if run.summary["device_idle_ratio"].value == 1:
        return _NO_WORK
    skipped = len(run.not_applicable)
    cannot = f"; {skipped} do not apply to this input" if skipped else ""
    quiet = f"no known cause of lost time was found ({len(run.rules) - skipped} rules applied{cannot})."
    idle = run.summary["device_idle_ratio"].value
    parts = {part: sum(step.parts_ns[part] for step in run.steps if not step.partial) for part in BREAKDOWN}
    total = sum(parts.values())
    part, ns = max(parts.items(), key=lambda item: item[1])
    if idle is None and total and ns > LARGE * total and part != "other":
        return f"{format_ratio(ns / total)} of the time goes to {kind_label(part)}, {format_ns(ns)}; {quiet}"
    return sentence(quiet.rstrip("."))


def _with_article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def _lower(title: str) -> str:
    """``title`` for use inside a sentence. Abbreviations such as MME keep their capitals."""
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]
