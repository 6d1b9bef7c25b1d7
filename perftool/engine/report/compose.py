"""Builds a report from a store and the findings of rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from perftool.engine.report import overview
from perftool.engine.report.apart import apart_sentence
from perftool.engine.report.causes import causes
from perftool.engine.report.chains import chains
from perftool.engine.report.device_words import named_modules
from perftool.engine.report.disturbances import growing_sentence, lengthening_sentence, waiting_sentence
from perftool.engine.report.efficiency import EFFICIENCY_TABLES, efficiency, repeated_rate
from perftool.engine.report.functions import (
    functions_sentence,
    narrow_sentence,
    one_off_sentence,
    optimizer_sentence,
)
from perftool.engine.report.left import left
from perftool.engine.report.long_calls import LongCalls, long_calls
from perftool.engine.report.memory import memory_uses
from perftool.engine.report.modules import annotated_work, backward_passes, called_ops, enclosing_call, modules, op_loop
from perftool.engine.report.moves import moves_sentence
from perftool.engine.report.parallel import group_roles, parallel_text, passed_on
from perftool.engine.report.serving import serving
from perftool.engine.report.step_spread import step_spread
from perftool.engine.report.unseen import unseen
from perftool.engine.report.verdict import verdict
from perftool.engine.report.verdict_input import OnCpu, VerdictInput
from perftool.engine.rules.evaluate import Outcome, make_finding
from perftool.engine.rules.predict import slowest
from perftool.engine.rules.ranking import led_by_largest
from perftool.engine.rules.rule_queries import Context
from perftool.errors import UNFORESEEN, InputError, unexpected_input_error
from perftool.model.inputs import ImportIssue, InputFile
from perftool.model.modules import ModuleTime
from perftool.model.report import Device, Finding, Report, Run, Share, Step, Verdict
from perftool.model.rule import Rule
from perftool.readers.files.remote import shown_path
from perftool.store.captures import read_capture
from perftool.store.ranks import rank_of
from perftool.store.readings import Reading, read_text, with_one_dump_per_rank
from perftool.store.requested_device import requested_device
from perftool.store.trace_store import TraceStore

_TABLES = (
    "summary", "steps", "run_kinds", "ranks", "_idle_totals", "_device_op_totals", "_op_totals", "engines", "recipes",
    "fallbacks", "device_windows", "_phase_totals", "frames", "feeding_tracks", "serving_iterations",
    "chains", "modules", "optimizer_steps", "_annotation_work", "_called_op_work", "_gap_neighbours", "_memory_uses",
    *EFFICIENCY_TABLES,
)  # fmt: skip

# 146 years. The sum of two shorter times fits in 64 bits.
_LONGEST_RUN_NS = 2**62
_WHOLE = """
SELECT sum(w.steps)::BIGINT AS steps, sum(w.dur) AS ns, sum(o.ns)::BIGINT AS once_ns
FROM windows AS w LEFT JOIN one_offs AS o USING (rank)
"""


def compose(
    store: TraceStore, rules: Sequence[Rule], device: Device, evaluated: Callable[[Context], Outcome]
) -> Report:
    """Build the report on ``store``. ``evaluated`` runs ``rules`` in a given context."""
    # One call for all tables, so that they can be built in parallel.
    store.build(_TABLES)
    steps = tuple(overview.steps(store))
    return _composed(store, rules, device, steps, _concluded(store, rules, steps, device, evaluated))


def _composed(
    store: TraceStore, rules: Sequence[Rule], device: Device, steps: tuple[Step, ...], outcome: Outcome
) -> Report:
    """Build the report on ``store``, whose ``steps`` and ``outcome`` are known."""
    summary = overview.summary(store)
    groups = group_roles(store)
    readable = len(store.metadata)
    run = replace(overview.run(store), parallel=parallel_text(store, groups, readable))
    ranks = overview.ranks(store)
    inputs = (*store.inputs_with_issues(), *store.unreadable)
    findings = outcome.findings
    idle_causes = overview.shares(store, overview.IDLE_CAUSES)
    device_ops = overview.shares(store, overview.TOP_DEVICE_OPS)
    model = slowest(outcome.models)
    phases = overview.phases(store)
    rates = efficiency(store, device.type)
    memory = memory_uses(store)
    remaining = left(store, rates)
    by_module = modules(store)
    verdict_input = VerdictInput(
        inputs=inputs, summary=summary, idle_causes=idle_causes, findings=findings,
        not_applicable=outcome.not_applicable, rules=rules, causes=causes(store, findings, rules, device.type),
        device_ops=device_ops, steps=steps, reached=overview.roofline(store), model=model, phases=phases, run=run,
        unseen=unseen(store), device=device.type, left=remaining,
        top_reached=remaining.reached_by(device_ops[0].name) if device_ops else None,
        passed_on=passed_on(store, findings), memory=memory, modules=by_module, annotated=annotated_work(store),
        called=called_ops(store),
        on_cpu=_on_cpu(store, device_ops, by_module, run) if device.type == "cpu" else OnCpu(),
    )  # fmt: skip
    return Report(
        inputs=inputs,
        device=device,
        summary=summary,
        steps=steps,
        idle_causes=idle_causes,
        top_device_ops=device_ops,
        top_ops=overview.shares(store, overview.TOP_OPS),
        engines=overview.engines(store),
        recipes=overview.recipes(store),
        fallbacks=overview.fallbacks(store),
        findings=findings,
        not_applicable=outcome.not_applicable,
        verdict=verdict(verdict_input),
        run=run,
        rules=tuple(rules),
        ranks=ranks,
        model=model,
        replayed_run=outcome.run,
        efficiency=rates,
        phases=phases,
        serving=serving(store),
        groups=groups,
        chains=chains(store),
        modules=by_module,
        memory=memory,
    )


def compose_for_gate(
    store: TraceStore, rules: Sequence[Rule], device: Device, evaluated: Callable[[Context], Outcome]
) -> Report:
    """Return the report of ``compose`` if ``rules`` find anything to advise. Otherwise, return only what decides
    whether a gate passes: the inputs, steps, ranks and findings. This takes half the time.
    """
    steps = tuple(overview.steps(store))
    outcome = _concluded(store, rules, steps, device, evaluated)
    if any(finding.advice for finding in outcome.findings):
        store.build(_TABLES)
        return _composed(store, rules, device, steps, outcome)
    return Report(
        inputs=(*store.inputs_with_issues(), *store.unreadable), device=device, summary=overview.metrics([]),
        steps=steps, idle_causes=(), top_device_ops=(), top_ops=(), engines=(), recipes=(), fallbacks=(),
        findings=outcome.findings, not_applicable=outcome.not_applicable, verdict=Verdict("", "", ()),
        run=overview.run(store), rules=tuple(rules), ranks=overview.ranks(store),
    )  # fmt: skip


def _on_cpu(store: TraceStore, ops: Sequence[Share], by_module: Sequence[ModuleTime], run: Run) -> OnCpu:
    stepped = run.steps_from is not None
    by_function, functions = functions_sentence(store, stepped, bool(by_module))
    largest = ops[0].name if ops else None
    return OnCpu(
        enclosing=enclosing_call(store, largest) if largest else "",
        repeated=repeated_rate(store, largest) if largest else None,
        backward_passes=backward_passes(store),
        op_loop=op_loop(store),
        by_function=by_function,
        optimizer=optimizer_sentence(store),
        moves=moves_sentence(store),
        long_calls=long_calls(store, largest, named_modules(by_module), functions, stepped) if largest else LongCalls(),
        apart=apart_sentence(store),
        narrow=narrow_sentence(store) if stepped else "",
        one_off=one_off_sentence(store) if stepped else "",
        waiting=waiting_sentence(store),
        growing=growing_sentence(store),
        lengthened=lengthening_sentence(store),
        spread=step_spread(store, run.step_word) if stepped else None,
    )


def conclude_only(
    store: TraceStore, rules: Sequence[Rule], device: Device, evaluated: Callable[[Context], Outcome]
) -> Outcome:
    """Return the findings of ``rules`` on ``store``, as in the report of ``compose``. Replays for descriptions are
    skipped.
    """
    return _concluded(
        store, rules, tuple(overview.steps(store)), device, lambda context: evaluated(replace(context, describes=False))
    )


def _concluded(
    store: TraceStore,
    rules: Sequence[Rule],
    steps: Sequence[Step],
    device: Device,
    evaluated: Callable[[Context], Outcome],
) -> Outcome:
    outcome = evaluated(context_of(store, steps, device.type))
    if len(outcome.findings) < 2:
        # Causes are needed only to decide which of several findings comes first.
        return replace(outcome, findings=(*_unreadable_findings(rules, store.unreadable), *outcome.findings))
    blaming = {rule.code for rule in rules if rule.whatif_ranks is not None}
    on_host = {rule.code for rule in rules if rule.relieves == "host"}
    ordered = led_by_largest(outcome.findings, causes(store, outcome.findings, rules, device.type), blaming | on_host)
    return replace(outcome, findings=(*_unreadable_findings(rules, store.unreadable), *ordered))


def context_of(store: TraceStore, steps: Sequence[Step], device: str | None) -> Context:
    """Return the context for rules: the windows of all ranks, and the typical length of ``steps``.

    Raise InputError if the windows are so long that their sum does not fit in 64 bits.
    """
    store.build(["windows", "one_offs"])
    whole = store.select(_WHOLE)[0]
    if (whole["ns"] or 0) > _LONGEST_RUN_NS:
        raise InputError("the recordings of all ranks together last more than 146 years, so their times are wrong")
    usual_ns, word = overview.usual_step_ns(store, steps), overview.run(store).step_word
    return Context(
        device, whole["steps"] or 0, usual_ns, whole["ns"] or 0, _simulated(store), word, whole["once_ns"] or 0
    )


def _simulated(store: TraceStore) -> bool:
    """Whether all traces of ``store`` are simulated."""
    traces = [read for read in store.inputs if read.kind == "trace"]
    return bool(traces) and all(any(issue.kind == "simulated" for issue in read.issues) for read in traces)


def unreadable(path: str, error: InputError) -> InputFile:
    """Return the input ``path``, which is unreadable because of ``error``. Its rank is known only from the file
    name.
    """
    return InputFile(
        shown_path(path), "trace", rank_of(path, {}), 0, 0, "unreadable", (ImportIssue("unreadable", 1, str(error)),)
    )


def read_texts(
    paths: Iterable[str], captures: Iterable[str] = (), device: str | None = None
) -> tuple[list[Reading], list[InputFile]]:
    """Read ``paths`` (logs, metrics, configuration), ``captures`` and ``device``. Return the readings and the files
    that could not be read. Raise InputError if a rank has two flight-recorder dumps."""
    readings, failed = [] if device is None else [requested_device(device)], []
    wanted = [*((path, read_text) for path in paths), *((path, read_capture) for path in captures)]
    for path, read in wanted:
        try:
            readings.append(read(path))
        except (InputError, *UNFORESEEN) as error:
            failed.append(unreadable(path, unexpected_input_error(path, error)))
    return with_one_dump_per_rank(readings), failed


def require_input(store: TraceStore) -> None:
    """Raise InputError, with the reasons, if no input of ``store`` could be read."""
    if not store.inputs and not store.readings:
        raise InputError("; ".join(issue.message for read in store.unreadable for issue in read.issues))


def _unreadable_findings(rules: Sequence[Rule], files: Sequence[InputFile]) -> list[Finding]:
    rule = next((rule for rule in rules if rule.code == "TRC000"), None)
    if rule is None:
        return []
    rows = [(read.path, {"subject": read.path, "error": read.issues[0].message}) for read in files]
    return [replace(make_finding(rule, row), path=path) for path, row in rows]
