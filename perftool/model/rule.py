"""A rule as its file declares it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "info"]
Confidence = Literal["high", "medium", "low"]
Status = Literal["preview", "stable", "deprecated"]
Scope = Literal["rank", "ranks"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")
STATUSES: tuple[Status, ...] = ("preview", "stable", "deprecated")
SCOPES: tuple[Scope, ...] = ("rank", "ranks")


@dataclass(frozen=True)
class Param:
    """A threshold of a rule, with the reason for its default."""

    name: str
    value: float | int | str | bool
    unit: str
    why: str


@dataclass(frozen=True)
class Rule:
    """A declared condition. ``sql`` is None for the rules the engine itself reports (TRC000, TRC001).

    ``scope`` says whether it is asked of each rank on its own or once of all of them. ``retired`` are codes and names
    that meant this rule, or what it took over, in earlier versions. ``explained_by`` are codes, or how these
    begin, of rules that name causes of what this one sees; it ranks below the cause that explains it.
    ``needs_names`` are names of host slices, with ``*`` for any text: where none occurs the rule finds nothing, and its
    query is not run. ``advice`` is false for a rule that speaks of the trace instead of the run. ``explains`` are the
    causes of idle time (the table gap_causes), or ``exposed_collectives``, that a finding of this rule accounts for.
    """

    code: str
    name: str
    summary: str
    severity: Severity
    confidence: Confidence
    status: Status
    since: str
    devices: tuple[str, ...]
    tags: tuple[str, ...]
    needs: tuple[str, ...]
    benchmark: str | None
    params: tuple[Param, ...]
    sql: str | None
    message: str
    why: str
    fix: str
    example: str
    references: tuple[str, ...] = field(default=())
    retired: tuple[str, ...] = field(default=())
    scope: Scope = "rank"
    explained_by: tuple[str, ...] = field(default=())
    needs_names: tuple[str, ...] = field(default=())
    advice: bool = True
    explains: tuple[str, ...] = field(default=())

    def applies_to(self, device: str | None) -> bool:
        """Whether the rule is meant for runs on ``device`` (hpu, cuda, rocm, xpu, mtia, cpu; None when unknown).

        A configuration file alone names no device: then nothing speaks against a rule.
        """
        return device is None or self.devices == ("any",) or device in self.devices
