"""Runs the queries of rules with their parameters and limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perftool.engine.rules.allowance import charged
from perftool.engine.rules.pack import is_shipped
from perftool.model.rule import Rule
from perftool.store.sandbox.sandbox import Bounds
from perftool.store.trace_store import TraceStore

# The time limit of a rule's query.
RULE_TIME_LIMIT_S = 30.0
# The limit in CPU seconds: a constant, plus an amount per MiB of text. Shipped rules take less than 1 s for 230 MB.
_LEAST_S, _S_PER_MB = 5.0, 0.25
MOST_BYTES = 16 << 20

_PARAM = re.compile(r"\$(\w+)")


@dataclass(frozen=True)
class Context:
    """Values for the queries of rules: $step_ns, and $steps and $window_ns, which are totals over the windows of all
    ranks.

    The step time is the median, or the mean if steps are uneven. Rules about recording do not apply to ``simulated``
    traces. ``step_word`` is the run's word for a step. ``once_ns`` is the part of ``window_ns`` in calls that only one
    of a few steps makes; gains do not refer to it. Without ``describes``, steps are replayed only for the fixes of
    findings, and the outcome may lack the descriptions of these replays.
    """

    device: str | None
    steps: int
    step_ns: int
    window_ns: int
    simulated: bool = False
    step_word: str = "step"
    once_ns: int = 0
    describes: bool = True

    @property
    def mean_step_ns(self) -> float:
        """The mean step time in ns, for comparison with evidence summed over the whole window."""
        return (self.window_ns - self.once_ns) / max(self.steps, 1)


@dataclass(frozen=True)
class Answer:
    """The result of one rule: the rows of its query, the reason why it did not run, or its error.

    ``cut`` means that the query returned more rows than allowed. ``spent`` means that earlier third-party rules used up
    the time or memory for its query or replay.
    """

    code: str
    rows: tuple[Mapping[str, Any], ...] = ()
    why_not: str | None = None
    error: str | None = None
    cut: bool = False
    spent: bool = False


def sql_values(rule: Rule, sql: str, context: Context) -> dict[str, Any]:
    """Return the values for the $names in ``sql``, from ``context`` and the parameters of ``rule``. Raise KeyError for
    an unknown name."""
    values: dict[str, Any] = {
        "steps": max(context.steps, 1), "step_ns": context.step_ns, "window_ns": context.window_ns,
        **{param.name: param.value for param in rule.params},
    }  # fmt: skip
    return {name: values[name] for name in set(_PARAM.findall(sql))}


def cpu_limit_s(input_bytes: int) -> float:
    """Return the CPU time limit, in seconds, of a shipped rule's query over ``input_bytes`` of text (0 if unknown)."""
    own_s = _LEAST_S + _S_PER_MB * (input_bytes >> 20)
    return min(own_s, RULE_TIME_LIMIT_S) if input_bytes else RULE_TIME_LIMIT_S


def run_sql(
    store: TraceStore, rule: Rule, sql: str, values: dict[str, Any], most: int
) -> tuple[list[str], list[tuple[Any, ...]], bool]:
    """Run ``sql`` in this process if it is shipped, otherwise in a sandbox. Return the columns, the first ``most``
    rows, and whether there are more."""
    if is_shipped(rule):
        columns, rows = store.timed(sql, values, cpu_limit_s(store.input_bytes))
        return columns, rows[:most], len(rows) > most
    with charged(store) as allowance:
        result = store.ask(sql, values, Bounds(RULE_TIME_LIMIT_S, most, MOST_BYTES))
        allowance.bytes += result.bytes
        allowance.add_rows(len(result.rows))
    return result.columns, result.rows, result.cut
