"""The result of a lint run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perftool.model.choices import Severity
from perftool.model.report import Finding, Report, Source
from perftool.model.rule import Rule

BaselineState = Literal["new", "unchanged"]


@dataclass(frozen=True)
class LintFinding:
    """A finding with the input file it belongs to.

    ``file`` is relative to the project root, with forward slashes. ``baseline`` is None if there is no baseline. An
    ``unchanged`` finding is accepted by the baseline and does not fail the run. ``step_word`` is the run's word for a
    step.
    """

    finding: Finding
    file: str
    baseline: BaselineState | None = None
    step_word: str = "step"

    @property
    def source(self) -> Source | None:
        """The line of the project that accounts for most of the finding's time; None if unknown."""
        return next((source for source in self.finding.location.sources if source.here), None)

    @property
    def place(self) -> tuple[str, int]:
        """The file and line where CI shows the finding: its ``source``, or else the first line of its input."""
        source = self.source
        return (source.file, source.line or 1) if source and source.file else (self.file, 1)

    @property
    def suppressed(self) -> bool:
        return self.finding.suppressed


@dataclass(frozen=True)
class BaselineEntry:
    """``count`` accepted findings with the same ``fingerprint``. ``message`` is for human readers and not compared."""

    fingerprint: str
    code: str
    file: str
    subject: str
    message: str
    count: int


@dataclass(frozen=True)
class LintReport:
    """One lint run.

    ``report``: the report, without absolute paths.
    ``findings``: all findings to list, worst first, including suppressed ones.
    ``stale``: the baseline entries that no longer match a finding.
    ``idle_ignores``: the per-file ignores (pattern and selector) that suppress nothing in the files they match.
    ``hidden``: the number of findings below --min-severity or --min-confidence.
    """

    report: Report
    findings: tuple[LintFinding, ...]
    stale: tuple[BaselineEntry, ...] = ()
    fails: bool = False
    idle_ignores: tuple[str, ...] = ()
    hidden: int = 0

    @property
    def active(self) -> tuple[LintFinding, ...]:
        """The findings that are not suppressed."""
        return tuple(found for found in self.findings if not found.suppressed)

    @property
    def suppressed(self) -> int:
        """The number of findings that the baseline accepts."""
        return len(self.findings) - len(self.active)

    def count(self, severity: Severity) -> int:
        """Return the number of findings of ``severity`` that are not suppressed."""
        return sum(found.finding.severity == severity for found in self.active)

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self.report.rules
