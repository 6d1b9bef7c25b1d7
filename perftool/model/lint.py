"""The result of a lint run: everything the formats for CI may show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perftool.model.choices import Severity
from perftool.model.report import Finding, Report, Source
from perftool.model.rule import Rule

BaselineState = Literal["new", "unchanged"]


@dataclass(frozen=True)
class LintFinding:
    """A finding with the place that CI shows it at.

    ``file`` is relative to the root of the project, with forward slashes. ``baseline`` is None without a baseline;
    what is ``unchanged`` is accepted and fails nothing.
    """

    finding: Finding
    file: str
    baseline: BaselineState | None = None

    @property
    def source(self) -> Source | None:
        """The heaviest line of code that lies in the project; CI shows the finding there."""
        return next((source for source in self.finding.location.sources if source.here), None)

    @property
    def place(self) -> tuple[str, int]:
        """File and line that CI shows the finding at: its source, else the first line of its input."""
        source = self.source
        return (source.file, source.line or 1) if source and source.file else (self.file, 1)

    @property
    def suppressed(self) -> bool:
        return self.finding.suppressed


@dataclass(frozen=True)
class BaselineEntry:
    """Findings that were accepted: ``count`` of one fingerprint. ``message`` is for people and not compared."""

    fingerprint: str
    code: str
    file: str
    subject: str
    message: str
    count: int


@dataclass(frozen=True)
class LintReport:
    """One lint run.

    ``report`` carries no absolute paths. ``findings`` are sorted, the worst first, and hold the suppressed ones
    too; ``report.rules`` are the rules that were selected. ``stale`` are the entries of the baseline that were
    not found again, ``idle_ignores`` the per-file ignores (pattern and selector) that silenced nothing in the files
    they mean. ``hidden`` counts the findings below --min-severity or --min-confidence.
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
        """How many findings the baseline accepts."""
        return len(self.findings) - len(self.active)

    def count(self, severity: Severity) -> int:
        """How many findings of ``severity`` are not suppressed."""
        return sum(found.finding.severity == severity for found in self.active)

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self.report.rules
