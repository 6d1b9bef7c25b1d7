"""What a rule may ask, and what it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perftool.model.rule import Rule

_PARAM = re.compile(r"\$(\w+)")


@dataclass(frozen=True)
class Context:
    """What rules may refer to besides tables: $steps, $step_ns (median), $window_ns (all ranks)."""

    device: str | None
    steps: int
    step_ns: int
    window_ns: int


@dataclass(frozen=True)
class Answer:
    """What asking one rule gave: rows of its query; or why it was not asked; or how it failed."""

    code: str
    rows: tuple[Mapping[str, Any], ...] = ()
    why_not: str | None = None
    error: str | None = None


def sql_values(rule: Rule, sql: str, context: Context) -> dict[str, Any]:
    """The values of what ``sql`` refers to with $name: the context, and parameters of ``rule``. KeyError for others."""
    values: dict[str, Any] = {
        "steps": max(context.steps, 1), "step_ns": context.step_ns, "window_ns": context.window_ns,
        **{param.name: param.value for param in rule.params},
    }  # fmt: skip
    return {name: values[name] for name in set(_PARAM.findall(sql))}
