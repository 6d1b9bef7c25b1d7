"""A step as measured, as replayed, and as predicted after changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perftool.model.replayed import BoundShare


@dataclass(frozen=True)
class PathTask:
    """All work on the critical path with the same ``name`` (None for host work outside named slices)."""

    kind: str
    name: str | None
    ns_per_step: int
    stretches: int


@dataclass(frozen=True)
class Path:
    """The critical path of the replayed step: its shares by kind, and the tasks that take the most time, both in
    descending order."""

    bounds: tuple[BoundShare, ...]
    tasks: tuple[PathTask, ...]


@dataclass(frozen=True)
class Applied:
    """A requested change. ``what`` is its text on the command line, and ``tasks`` is the number of tasks that it
    affects.

    ``step_ns`` is the length of a step with this change only.
    """

    kind: Literal["fix", "scale", "without"]
    what: str
    tasks: int
    step_ns: int


@dataclass(frozen=True)
class FixBound:
    """An upper bound on the gain from the fix of rule ``code``. ``ns_per_step`` is None if the recording does not show
    a bound."""

    code: str
    ns_per_step: int | None


@dataclass(frozen=True)
class WhatIf:
    """The replayed steps of ``rank`` with ``changes``. Times are mean step times in ns.

    For the fix of a cross-rank rule, all ``ranks`` are replayed together, and ``rank`` is None.

    If nothing can be predicted, ``predicted_step_ns`` and the path ``after`` are None, and ``why_not`` says why. If
    nothing can be replayed at all, the other numbers are None as well.

    ``error_ratio``: the deviation of the unchanged replay from the measured step.
    ``bounds``: upper bounds for fixes that cannot be replayed, or that mainly affect steps that are not replayed.
    ``mean_step_ns``: the mean of all steps if it is far above the mean of the replayed, typical steps; otherwise None.
    ``step_word``: the run's word for a step.
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
    bounds: tuple[FixBound, ...] = ()
    mean_step_ns: int | None = None
    step_word: str = "step"

    @property
    def fixes(self) -> tuple[str, ...]:
        """The codes of the rules whose fixes were applied."""
        return tuple(applied.what for applied in self.changes if applied.kind == "fix")

    def __repr__(self) -> str:
        return f"<WhatIf: {self.measured_step_ns} ns per step measured, {self.predicted_step_ns} predicted>"
