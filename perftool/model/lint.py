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
    """A finding with the file that CI shows for it.

    ``file`` is relative to the root of the project, with forward slashes. ``baseline`` is None without a baseline; an
    ``unchanged`` finding is accepted and does not fail the run. ``step_word`` is the run's word for a step.
    """

    finding: Finding
    file: str
    baseline: BaselineState | None = None
    step_word: str = "step"

    @property
    def source(self) -> Source | None:
        """The line of the project with the most time of the finding, where CI shows the finding; None if unknown."""
        return next((source for source in self.finding.location.sources if source.here), None)

    @property
    def place(self) -> tuple[str, int]:
        """File and line for CI: the line of the finding's ``source``, else the first line of its input."""
        source = self.source
        return (source.file, source.line or 1) if source and source.file else (self.file, 1)

    @property
    def suppressed(self) -> bool:
        return self.finding.suppressed


@dataclass(frozen=True)
class BaselineEntry:
    """Accepted findings: ``count`` findings with one ``fingerprint``. ``message`` is for people and is not compared."""

    fingerprint: str
    code: str
    file: str
    subject: str
    message: str
    count: int


@dataclass(frozen=True)
class LintReport:
    """One lint run.

    ``report``: has no absolute paths, and holds the selected rules.
    ``findings``: sorted, the worst first, with suppressed ones.
    ``stale``: the baseline entries that were not found again.
    ``idle_ignores``: the per-file ignores (pattern and selector) that silenced nothing in the files they match.
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
        """The number of findings of ``severity`` that are not suppressed."""
        return sum(found.finding.severity == severity for found in self.active)

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self.report.rules
