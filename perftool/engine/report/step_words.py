"""Sentences about the steps of a run: how they were found, what repeats in them, and the phases around them."""

from __future__ import annotations

import re
from collections import Counter

from perftool.engine.report.device_words import short_name
from perftool.engine.report.verdict_input import VerdictInput
from perftool.model.modules import INSIDE
from perftool.model.report import Phase
from perftool.units import format_ns, format_ratio

# The rule for steps that compile or start up.
_WARM_UP = "STP102"
_FOUND_BY = {
    "optimizer": "Steps are not marked; each ends with a call to the optimizer.",
    "annotation": "Steps are not marked; each begins with a recurring annotation.",
    "copies": "Steps are not marked; each seems to begin where inputs are copied to the device.",
}
# Names of phases for use in a sentence.
_PHASES = {
    "startup": "start-up", "warmup": "warm-up", "capture": "the capture of graphs",
    "profiler": "the profiler's own work", "checkpoint": "saving checkpoints", "evaluation": "evaluation",
}  # fmt: skip
# The profiler's notation for a Python function.
_FRAME = re.compile(r".+\(\d+\): (.+)")
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


def steps_and_phases(run: VerdictInput, named: str | None, headline: str) -> tuple[str, str, str]:
    """Return three sentences, any of which may be empty: how steps were found, what repeats (unless the ``headline``
    says so), and how long the phases other than the steady one and ``named`` take.
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
    """Return a sentence about the backward passes of a step, if there are many: one pass over a batch could replace
    them.
    """
    passes, times = run.on_cpu.backward_passes or (0.0, 0)
    if passes < _SEVERAL:
        return ""
    if times > 1 and not run.summary["steps"].value:
        return f"Each update follows {round(passes):,} backward passes."
    return f"{_repeated(run)} has {round(passes):,} backward passes."


def _calls(run: VerdictInput) -> str:
    """Return a sentence about how often a step calls the model, or a module calls a submodule. The result is empty if
    that is rare.
    """
    if run.device != "cpu":
        return ""
    steps = run.summary["steps"].value or 1
    single = {one.path: one for one in run.modules if one.path and one.modules == 1}
    outermost = max((one for one in single.values() if one.depth == 1), key=lambda one: one.share, default=None)
    if outermost and outermost.calls >= _CALLS * steps:
        if outermost.module == run.on_cpu.long_calls.module:
            return ""
        return f"{_repeated(run)} calls {short_name(outermost.module or '')} {round(outermost.calls / steps):,} times."
    computing = 1 - (run.summary["device_idle_ratio"].value or 0)
    inner = [
        (one, around)
        for path, one in single.items()
        if one.share * computing >= _LOOPED
        and (around := single.get(path.rpartition(INSIDE)[0]))
        and one.calls >= _CALLS * around.calls
    ]
    if not inner:
        return ""
    one, around = max(inner, key=lambda pair: pair[0].share)
    times = round(one.calls / around.calls)
    names = short_name(around.module or ""), short_name(one.module or "")
    return f"Each call to {names[0]} calls the same {names[1]} {times:,} times: {format_ratio(one.share)} of the work."


def _loop(run: VerdictInput) -> str:
    """Return a sentence about the loop of ops in a step, or in a recording without steps. It is empty if the loop takes
    little time, if the names of its ops are unknown, or if its ops may be those of the model's layers.
    """
    loop, steps = run.on_cpu.op_loop, run.summary["steps"].value
    if loop is None or loop.names is None or loop.share < _LOOPED or loop.times < (_LAYERS if steps else _SEVERAL):
        return ""
    layers = Counter[str | None]()
    for one in run.modules:
        layers[one.module] += one.modules
    if 2 * max(layers.values(), default=0) >= loop.times:
        return ""
    ops = f"about {loop.length:,} ops ({loop.names})"
    return f"{_repeated(run)} repeats {ops} {round(loop.times):,} times: {format_ratio(loop.share)} of the time."


def _repeated(run: VerdictInput) -> str:
    """Return the subject of a sentence about what repeats: a step, or the recording if it has no steps."""
    return with_article(run.run.step_word).capitalize() if run.summary["steps"].value else "The recording"


def _phase_clause(phase: Phase) -> str:
    frame = _FRAME.fullmatch(phase.evidence or "")
    evidence = frame[1] if frame else short_name(phase.evidence or "").strip()
    by = f" ({evidence})" if evidence else ""
    return f"{format_ns(phase.total_ns)} is {_PHASES[phase.name]}{by}"


def mostly_once(run: VerdictInput) -> Phase | None:
    """Return the largest phase other than the steady one, if the recording hardly shows the steady state; otherwise,
    return None.
    """
    once = [phase for phase in run.phases if phase.name in _PHASES]
    known = run.run.steps_from is not None and not run.unseen and run.summary["device_unknown_ratio"].value != 1
    if not once or not known or sum(phase.share for phase in once) < _NEARLY_ALL:
        return None
    return max(once, key=lambda phase: phase.total_ns)


def once_sentence(phase: Phase, run: VerdictInput) -> str:
    whole = sum(phase.total_ns for phase in run.phases)
    compiling = sum(found.evidence.get("compile_ns") or 0 for found in run.findings if found.code == _WARM_UP)
    compilation = f", {format_ns(compiling)} of it compilation" if phase.name == "warmup" and compiling else ""
    later = ": record later steps" if phase.name in ("startup", "warmup") else ""
    return (
        f"{format_ratio(phase.share)} of the {format_ns(whole)} recorded is {_PHASES[phase.name]}{compilation}{later}."
    )


def with_article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"
