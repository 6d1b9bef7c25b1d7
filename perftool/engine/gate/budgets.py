"""Budgets: limits on metrics and query results. A budget that is exceeded or has no value becomes a finding."""

from __future__ import annotations

import math
import operator
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perftool.engine.rules.evaluate import make_finding
from perftool.engine.settings.settings import BudgetText
from perftool.errors import QueryError, SettingsError
from perftool.model.metrics import MetricKind
from perftool.model.report import Finding, Metric
from perftool.model.rule import Rule
from perftool.units import format_bytes, format_count, format_ns, format_ratio, quantity

# Runs a SELECT over the tables of the run, and returns column names and rows.
Query = Callable[[str], tuple[list[str], list[tuple[Any, ...]]]]
BROKEN, MISSING = "BUD101", "BUD102"
# The limit for all queries together. Each query also has its own limit, but a configuration may contain hundreds.
_MOST_SECONDS = 120
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "==": operator.eq,
}  # fmt: skip
_LIMIT = re.compile(r"\s*(<=|>=|==|<|>|)\s*(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+)\s*(%?)\s*")
_OPTION = re.compile(r"\s*([\w-]+)\s*((?:<=|>=|==|<|>)[^<>=]*)")
_QUERY_OPTION = re.compile(
    r"\s*([\w-]+)\s*:\s*(select\b.*?|with\b.*?)\s*((?:<=|>=|==|<|>)\s*[\d.]+\s*%?)\s*", re.I | re.S
)


@dataclass(frozen=True)
class Budget:
    """A limit on the metric ``name``, or on the number that ``query`` returns."""

    name: str
    comparison: str
    limit: float
    query: str | None = None

    def holds(self, value: float) -> bool:
        """Whether ``value`` is within the budget."""
        return _COMPARE[self.comparison](value, self.limit)


def budget_option(text: str, origin: str = "--budget") -> BudgetText:
    """Parse a budget from the command line: ``step_time_ms<=120``, or ``name: SELECT ... <= 10``."""
    if query := _QUERY_OPTION.fullmatch(text):
        return BudgetText(query[1], query[3], query[2], origin)
    plain = _OPTION.fullmatch(text)
    if plain is None:
        expected = "such as 'step_time_ms<=120' or 'name: SELECT ... <= 10'"
        raise SettingsError(f"{origin} {text!r}: expected a metric and its limit, {expected}")
    return BudgetText(plain[1], plain[2], None, origin)


def parse_budgets(texts: Iterable[BudgetText], metrics: Iterable[MetricKind]) -> tuple[Budget, ...]:
    """Parse ``texts`` into budgets. A number alone is a maximum, but only for metrics where lower is better. Raise
    SettingsError for any other limit without a comparison, a malformed or infinite limit, or an unknown metric."""
    better = {metric.name: metric.better for metric in metrics}
    budgets = []
    for text in texts:
        limit = _LIMIT.fullmatch(text.limit)
        if limit is None:
            raise SettingsError(f"{text.origin}: {text.limit!r} is not a limit; write '<= 120' or '<= 5%'")
        if text.query is None and text.name not in better:
            known = ", ".join(sorted(better))
            raise SettingsError(f"{text.origin}: unknown metric {text.name!r}; the metrics are {known}")
        if not limit[1] and (text.query is not None or better[text.name] != "lower"):
            alone = text.limit.strip()
            unclear = f"{alone!r} does not say whether it is a maximum or a minimum"
            raise SettingsError(f"{text.origin}: {unclear}; write '<= {alone}' or '>= {alone}'")
        number = float(limit[2]) / (100 if limit[3] else 1)
        if math.isinf(number):
            raise SettingsError(f"{text.origin}: the limit {text.limit!r} is too large")
        budgets.append(Budget(text.name, limit[1] or "<=", number, text.query))
    return tuple(budgets)


def check_budgets(
    budgets: Sequence[Budget], summary: Mapping[str, Metric], query: Query, rules: Sequence[Rule]
) -> list[Finding]:
    """Return a finding for each budget that is exceeded or has no value, if the rule that reports it is in ``rules``.

    ``query`` runs budgets that are given as a SELECT.
    """
    by_code = {rule.code: rule for rule in rules}
    findings = []
    until = time.monotonic() + _MOST_SECONDS
    for budget in budgets:
        if budget.query is not None and time.monotonic() >= until:
            raise QueryError(f"budget {budget.name}: not checked; earlier queries took {_MOST_SECONDS} s in total")
        metric = summary.get(budget.name) if budget.query is None else None
        value = metric.value if metric else _query(budget, query) if budget.query else None
        code = MISSING if value is None else BROKEN
        if code in by_code and (value is None or not budget.holds(value)):
            findings.append(_finding(by_code[code], budget, value, metric.unit if metric else None))
    return findings


def _query(budget: Budget, query: Query) -> float | None:
    assert budget.query is not None
    try:
        columns, rows = query(budget.query)
    except QueryError as error:
        raise QueryError(f"budget {budget.name}: {error}") from None
    if len(rows) != 1 or len(columns) != 1:
        size = f"{quantity(len(rows), 'row', 'rows')} of {quantity(len(columns), 'column', 'columns')}"
        raise SettingsError(f"budget {budget.name}: the query must return one number, not {size}")
    value = rows[0][0]
    if value is None:
        return None
    if isinstance(value, (str, bytes, bool, list, dict)) or not hasattr(value, "__float__"):
        raise SettingsError(f"budget {budget.name}: the query must return a number, not {value!r}")
    return float(value) if math.isfinite(float(value)) else None


def _finding(rule: Rule, budget: Budget, value: float | None, unit: str | None) -> Finding:
    row: dict[str, Any] = {
        "subject": budget.name,
        "limit": f"{budget.comparison} {_shown(budget.limit, unit)}",
        "actual": None if value is None else _shown(value, unit),
    }
    finding = make_finding(rule, row)
    numbers = {"value": value, "comparison": budget.comparison, "limit": budget.limit, "query": budget.query}
    return replace(finding, evidence=numbers)


def _shown(value: float, unit: str | None) -> str:
    if unit == "ms":
        return format_ns(value * 1e6)
    if unit == "ratio":
        return format_ratio(value)
    return format_bytes(value) if unit == "bytes" else format_count(value)
