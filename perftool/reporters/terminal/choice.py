"""Which findings a report for people shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perftool.model.choices import SEVERITIES
from perftool.model.report import Finding

_ORDER: dict[str, int] = {severity: at for at, severity in enumerate(SEVERITIES)}


@dataclass(frozen=True)
class Choice:
    """Which findings to show: at most ``top`` (None: as many as fit the screen), at least as bad as ``severity``."""

    top: int | None = None
    severity: str = "info"

    def of(self, findings: Sequence[Finding]) -> list[Finding]:
        """Those of ``findings`` that are bad enough."""
        worst = _ORDER[self.severity]
        return [finding for finding in findings if _ORDER[finding.severity] <= worst]
