"""How a rule asks the tables, and what it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perftool.engine.rules.allowance import charged
from perftool.engine.rules.pack import is_shipped
from perftool.model.rule import Rule
from perftool.store.room.room import Bounds
from perftool.store.trace_store import TraceStore

# What a query of a rule may take.
RULE_TIME_LIMIT_S = 30.0
MOST_BYTES = 16 << 20

_PARAM = re.compile(r"\$(\w+)")


@dataclass(frozen=True)
class Context:
    """What rules may refer to besides tables: $step_ns (median), and $steps and $window_ns (windows, all ranks).

    Of ``simulated`` traces nothing that concerns a recorder is worth saying.
    """

    device: str | None
    steps: int
    step_ns: int
    window_ns: int
    simulated: bool = False


@dataclass(frozen=True)
class Answer:
    """What asking one rule gave: rows of its query; or why it was not asked; or how it failed.

    ``cut`` says that there were more rows than a rule may give, ``spent`` that the rules of packs before it left it no
    time to be asked, or replayed.
    """

    code: str
    rows: tuple[Mapping[str, Any], ...] = ()
    why_not: str | None = None
    error: str | None = None
    cut: bool = False
    spent: bool = False


def sql_values(rule: Rule, sql: str, context: Context) -> dict[str, Any]:
    """The values of what ``sql`` refers to with $name: the context, and parameters of ``rule``. KeyError for others."""
    values: dict[str, Any] = {
        "steps": max(context.steps, 1), "step_ns": context.step_ns, "window_ns": context.window_ns,
        **{param.name: param.value for param in rule.params},
    }  # fmt: skip
    return {name: values[name] for name in set(_PARAM.findall(sql))}


def run_sql(
    store: TraceStore, rule: Rule, sql: str, values: dict[str, Any], most: int
) -> tuple[list[str], list[tuple[Any, ...]], bool]:
    """Columns, ``most`` rows, and whether there were more. Our own SQL runs here, that of others in a room apart."""
    if is_shipped(rule):
        columns, rows = store.timed(sql, values, RULE_TIME_LIMIT_S)
        return columns, rows[:most], len(rows) > most
    with charged(store) as allowance:
        result = store.ask(sql, values, Bounds(RULE_TIME_LIMIT_S, most, MOST_BYTES))
        allowance.bytes += result.bytes
        allowance.add_rows(len(result.rows))
    return result.columns, result.rows, result.cut
