"""Evaluates rules on the tables: which rules apply, what they find, and the text of the findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from perftool.engine.rules.allowance import SpentError, taken
from perftool.engine.rules.fingerprint import fingerprint
from perftool.engine.rules.grading import graded
from perftool.engine.rules.limits import limited
from perftool.engine.rules.message import PREDICTION, fill, show_message
from perftool.engine.rules.pack import is_shipped
from perftool.engine.rules.predict import predicted
from perftool.engine.rules.predict_run import predicted_together
from perftool.engine.rules.ranking import claimed_once, ranked
from perftool.engine.rules.row_check import checked
from perftool.engine.rules.rule_queries import MOST_BYTES, Answer, Context, run_sql, sql_values
from perftool.engine.rules.shared_time import HostTime, host_time, with_fix_gains, with_overlaps
from perftool.engine.rules.sources import EVIDENCE_OF_PLACE, add_sources
from perftool.errors import QueryError, is_interrupt
from perftool.model.links import rule_url
from perftool.model.replayed import ReplayedRun, ReplayModel
from perftool.model.report import Finding, Gain, Location, NotApplicable, Source
from perftool.model.rule import Rule
from perftool.model.words import of_steps
from perftool.store.catalog import catalog
from perftool.store.trace_store import TraceStore

Made = TypeVar("Made")

# The maximum number of findings per rule and rank.
MOST_FINDINGS = 1_000
_TOO_MANY = (
    f"it found too many rows; only the first {MOST_FINDINGS:,} rows (at most {MOST_BYTES >> 20} MiB) become findings"
)
# The tag of rules whose advice is about recording.
RECORDER = "recorder"
# The estimated size of a finding in memory and in the output, without the strings that come from its rule.
_FINDING_BYTES = 1_000
_FOUND_NAMES = """
SELECT DISTINCT pattern FROM _name_roles, unnest($names) AS wanted(pattern)
WHERE cat NOT IN ('kernel', 'memcpy', 'memset') AND name GLOB pattern
"""
# The column with the host time of a row, kept while its findings are compared with those of other rules.
_HOST_TIME = "_host_time"
_PLACE = {
    "subject", "rank", "track", "step", "ts", "dur", "gain_ns", "predicted_ns", "tried_ns", "related", "benchmark",
    "fix", "fix_for", "short_fix", "sources", "explained_by", "gives_advice", PREDICTION, _HOST_TIME,
    *EVIDENCE_OF_PLACE,
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """The result of a set of rules, with findings in the order of ``perftool.engine.rules.ranking``."""

    findings: tuple[Finding, ...]
    not_applicable: tuple[NotApplicable, ...]
    models: tuple[ReplayModel, ...] = ()
    run: ReplayedRun | None = None


def evaluate(store: TraceStore, rules: Iterable[Rule], context: Context, crash_rule: Rule | None = None) -> Outcome:
    """Run ``rules`` on ``store``. A rule that fails becomes a finding of ``crash_rule``; if that is None, raise
    QueryError instead."""
    with_queries = [rule for rule in rules if rule.sql is not None]
    answers, models = predicted(
        store, with_queries, ask_all(store, with_queries, context), context, len(store.metadata)
    )
    answers, run = predicted_together(store, with_queries, answers, context)
    return replace(conclude(with_queries, answers, context, crash_rule), models=models, run=run)


def ask_all(store: TraceStore, rules: Sequence[Rule], context: Context) -> list[Answer]:
    """Run each of ``rules``, and return their results in the same order."""
    # Shipped rules run in parallel. Third-party rules share an allowance, so they run one after another, in order.
    shipped = [at for at, rule in enumerate(rules) if is_shipped(rule)]
    names, _ = _attempt(partial(_found_names, store, [rules[at] for at in shipped]))
    calls = [partial(ask, store, rules[at], context, names) for at in shipped]
    answers = dict(zip(shipped, store.side_by_side(calls), strict=True))
    return [answers.get(at) or ask(store, rule, context) for at, rule in enumerate(rules)]


def ask(store: TraceStore, rule: Rule, context: Context, names: frozenset[str] | None = None) -> Answer:
    """Run ``rule`` on ``store``: the answer contains its rows, the reason why it did not run, or its error. ``names``
    are those of ``needs_names`` that occur, if they are known."""

    def rows() -> Answer:
        reason = why_not(rule, context, store.has_rows)
        if reason:
            return Answer(rule.code, why_not=reason)
        try:
            return _query_rows(store, rule, context) if _may_find(store, rule, context, names) else Answer(rule.code)
        except SpentError:
            return Answer(rule.code, spent=True)

    answer, error = _attempt(rows)
    return answer or Answer(rule.code, error=error)


def conclude(
    rules: Sequence[Rule], answers: Sequence[Answer], context: Context, crash_rule: Rule | None = None
) -> Outcome:
    """Turn ``answers``, one for each of ``rules``, into ranked findings."""
    findings: list[Finding] = []
    times: dict[int, HostTime] = {}
    skipped: list[NotApplicable] = []
    for rule, answer in zip(rules, answers, strict=True):
        found, error = _attempt(partial(_findings, rule, answer, context))
        rows = zip(answer.rows, found or (), strict=False)
        times.update({len(findings) + at: row[_HOST_TIME] for at, (row, _) in enumerate(rows) if _HOST_TIME in row})
        findings += found or []
        if answer.why_not is not None:
            skipped.append(NotApplicable(rule.code, answer.why_not))
        elif answer.spent and not answer.rows:
            skipped.append(NotApplicable(rule.code, str(SpentError())))
        if problem := answer.error or error:
            if crash_rule is None:
                raise QueryError(f"{rule.code}: {problem}")
            findings.append(make_finding(crash_rule, {"subject": rule.code, "error": problem}))
        if answer.cut and crash_rule is not None:
            findings.append(make_finding(crash_rule, {"subject": rule.code, "error": _TOO_MANY}))
    if spent := [answer.code for answer in answers if answer.spent]:
        findings += _skipped_rules(spent, crash_rule)
    causes = {rule.code: rule.explained_by for rule in rules if rule.explained_by}
    over_ranks = {rule.code for rule in rules if rule.scope == "ranks"}
    blaming = {rule.code for rule in rules if rule.whatif_ranks is not None}
    explains = {rule.code: rule.explains for rule in rules if rule.explains}
    own = {rule.code: rule for rule in rules}
    claimed = claimed_once(findings, causes, over_ranks, explains, blaming)
    kept = [graded(found, own[found.code]) if found.code in own else found for found in claimed]
    if context.device == "cpu":
        kept = with_fix_gains(kept, {id(kept[at]): time for at, time in times.items()}, context.step_ns)
    altering = {rule.code for rule in rules if rule.changes_results}
    in_order = ranked(kept, causes, blaming, explains, altering, context.step_ns)
    if context.device == "cpu":
        in_order = with_overlaps(in_order, {id(kept[at]): time for at, time in times.items()}, context.step_ns)
    return Outcome(in_order, tuple(skipped))


def _skipped_rules(spent: Sequence[str], crash_rule: Rule | None) -> list[Finding]:
    """Return a single finding about all rules that did not run, or were not replayed, because the allowance was used
    up.
    """
    if crash_rule is None:
        raise SpentError
    others = f" and {len(spent) - 1} more" if len(spent) > 1 else ""
    return [make_finding(crash_rule, {"subject": f"{spent[0]}{others}", "error": str(SpentError())})]


def _findings(rule: Rule, answer: Answer, context: Context) -> list[Finding]:
    return [make_finding(rule, row, context) for row in answer.rows]


def _attempt(action: Callable[[], Made]) -> tuple[Made | None, str | None]:
    """Return the result of ``action``, or the message of the error it raises."""
    try:
        return action(), None
    except Exception as error:  # noqa: BLE001 - a third-party rule that crashes becomes a finding
        if is_interrupt(error):
            raise KeyboardInterrupt from None
        return None, str(error) or type(error).__name__


def make_finding(rule: Rule, row: Mapping[str, Any], context: Context | None = None) -> Finding:
    """Create a finding of ``rule`` from one row of its query."""
    evidence = {key: value for key, value in row.items() if key not in _PLACE}
    shown = {"subject": row["subject"], PREDICTION: row.get(PREDICTION) or "", **evidence}
    device, variant = context.device if context else None, row.get("fix_for")
    word = context.step_word if context else "step"
    advice = rule.advice and row.get("gives_advice") is not False
    shown |= {param.name: param.value for param in rule.params}
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=rule.severity,
        confidence=rule.confidence,
        subject=str(row["subject"]),
        message=of_steps(show_message(rule.message, shown), word),
        why=of_steps(rule.why, word),
        fix=of_steps(row.get("fix") or rule.fix.text_for(device, variant), word),
        short_fix=of_steps(row.get("short_fix") or fill(rule.short_fix.text_for(device, variant), shown), word),
        rank=row.get("rank"),
        location=_location(row),
        related=tuple(
            Location(place.get("track"), place.get("step"), place.get("ts"), place.get("dur"), place.get("name"))
            for place in row.get("related") or ()
        ),
        evidence=evidence,
        gain=_gain(row, context),
        fingerprint=fingerprint(rule.code, str(row["subject"])),
        benchmark=row.get("benchmark") or rule.benchmark,
        url=rule_url(rule.code, rule.references),
        advice=advice,
        explained_by=row.get("explained_by") if advice else None,
    )


def _location(row: Mapping[str, Any]) -> Location:
    sources = tuple(Source(**source) for source in row.get("sources") or ())
    return Location(row.get("track"), row.get("step"), row.get("ts"), row.get("dur"), sources=sources)


def why_not(rule: Rule, context: Context, has_rows: Callable[[str], bool]) -> str | None:
    """Return why ``rule`` does not apply to a run with these tables, or None if it applies."""
    if not rule.applies_to(context.device):
        return f"only for {rule.device_words}; this run used {context.device or 'no known device'}"
    if context.simulated and RECORDER in rule.tags:
        return "only for recordings; these traces are simulated"
    for need in rule.needs:
        alternatives = need.split(" or ")
        if unknown := [name for name in alternatives if name not in catalog()]:
            raise QueryError(f"{rule.code}: unknown table {unknown[0]}")
        if not any(has_rows(name) for name in alternatives):
            stated = catalog()[alternatives[0]].absent if len(alternatives) == 1 else None
            return stated or f"the input shows no {' and no '.join(alternatives).replace('_', ' ')}"
    return None


def _found_names(store: TraceStore, rules: Sequence[Rule]) -> frozenset[str]:
    """Those of the names that ``rules`` need that host slices have. One query for all rules, because each query costs
    time."""
    wanted = {name: None for rule in rules for name in rule.needs_names}
    if not wanted:
        return frozenset()
    rows = run_sql(store, rules[0], _FOUND_NAMES, {"names": list(wanted)}, len(wanted))[1]
    return frozenset(name for (name,) in rows)


def _may_find(store: TraceStore, rule: Rule, context: Context, names: frozenset[str] | None) -> bool:
    """Whether ``rule`` can find anything: a host slice has one of the names that it needs, and ``only_if`` holds."""
    if rule.needs_names:
        found = _found_names(store, [rule]) if names is None else names
        if found.isdisjoint(rule.needs_names):
            return False
    return rule.only_if is None or bool(
        run_sql(store, rule, rule.only_if, sql_values(rule, rule.only_if, context), 1)[1]
    )


def _query_rows(store: TraceStore, rule: Rule, context: Context) -> Answer:
    assert rule.sql is not None
    values = sql_values(rule, rule.sql, context)
    most = MOST_FINDINGS * (len(store.metadata) or 1) if is_shipped(rule) else MOST_FINDINGS
    columns, rows, cut = run_sql(store, rule, rule.sql, values, most)
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    if not is_shipped(rule):
        found = checked(found)
        texts = [rule.message, rule.why, *(text for _, text in (*rule.fix.texts, *rule.short_fix.texts))]
        taken(store).add_rows(len(found), _FINDING_BYTES + sum(map(len, texts)))
    elif context.device == "cpu":
        # Only for a CPU: with an accelerator, host time and device time overlap.
        found = [{**row, _HOST_TIME: host_time(row)} for row in found]
    bounded = limited(store, rule.relieves, found, context) if found else found
    return Answer(rule.code, tuple(add_sources(store, rule, list(bounded))), cut=cut)


def _gain(row: Mapping[str, Any], context: Context | None) -> Gain | None:
    predicted_ns = row.get("predicted_ns")
    gain_ns = row.get("gain_ns") if predicted_ns is None else predicted_ns
    if gain_ns is None or context is None or context.step_ns <= 0:
        return None
    if predicted_ns is None:
        bounded, tried_ns = _of_step(gain_ns, context), row.get("tried_ns")
        if tried_ns is None:
            return Gain(bounded, bounded / context.step_ns, "bound")
        saved = min(bounded, _of_step(tried_ns, context))
        return Gain(saved, saved / context.step_ns, "tried", bounded / context.step_ns)
    allowed = row.get("gain_ns")
    most = None if allowed is None else _of_step(allowed, context) / context.step_ns
    # A prediction may exceed the bound from the evidence, because the host also waits less for the device in a replay.
    # On a CPU there is no separate device, so the bound is the limit. A rule may set its own limit (at_most_ns).
    at_most = row.get("at_most_ns", allowed if context.device == "cpu" else None)
    limit = context.step_ns if at_most is None else _of_step(at_most, context)
    saved = max(0, min(int(gain_ns), limit))
    return Gain(saved, saved / context.step_ns, "predicted", most)


def _of_step(evidence_ns: float, context: Context) -> int:
    """Return the part of the typical step, in ns, that corresponds to ``evidence_ns`` per step.

    Evidence is summed over the window and divided by the number of steps, so it is a share of the mean step. The result
    is the same share of the typical step.
    """
    mean_ns = context.mean_step_ns
    share = min(1.0, max(0.0, float(evidence_ns)) / mean_ns) if mean_ns else 0.0
    return int(share * context.step_ns)
