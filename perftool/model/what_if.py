"""A step as it was, as the replay gives it, and as it would be after changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perftool.model.replayed import BoundShare


@dataclass(frozen=True)
class PathTask:
    """What bounds the step under one ``name`` (None where no slice says what the host did), in ns of a step."""

    kind: str
    name: str | None
    ns_per_step: int
    stretches: int


@dataclass(frozen=True)
class Path:
    """Who bounds the replayed step: shares by kind, and the tasks with most of it; the largest first."""

    bounds: tuple[BoundShare, ...]
    tasks: tuple[PathTask, ...]


@dataclass(frozen=True)
class Applied:
    """One change that was asked for: ``what`` as the command line has it, and how many tasks it is about.

    ``step_ns`` is what a step would take with this change alone.
    """

    kind: Literal["fix", "scale", "without"]
    what: str
    tasks: int
    step_ns: int


@dataclass(frozen=True)
class WhatIf:
    """The replayed steps of ``rank`` with ``changes``; times are mean lengths of a step in ns.

    With fixes of rules over ranks it is all ``ranks`` together that are replayed, and ``rank`` is None.

    ``predicted_step_ns`` and the path ``after`` are None when nothing may be predicted, and ``why_not`` is one sentence
    then; the other numbers are None where there is nothing to replay. ``error_ratio`` is how far the unchanged replay
    is off the measured step.
    """

    rank: int | None
    steps: int
    measured_step_ns: int | None
    replayed_step_ns: int | None
    error_ratio: float | None
    predicted_step_ns: int | None
    changes: tuple[Applied, ...]
    before: Path | None
    after: Path | None
    why_not: str | None = None
    ranks: int = 1

    @property
    def fixes(self) -> tuple[str, ...]:
        """The codes of the rules whose fixes were made."""
        return tuple(applied.what for applied in self.changes if applied.kind == "fix")

    def __repr__(self) -> str:
        return f"<WhatIf: {self.measured_step_ns} ns a step measured, {self.predicted_step_ns} predicted>"
