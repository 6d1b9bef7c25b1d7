"""Selects the findings that a human-readable report shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perftool.model.choices import SEVERITIES
from perftool.model.report import Finding

_ORDER: dict[str, int] = {severity: at for at, severity in enumerate(SEVERITIES)}


@dataclass(frozen=True)
class Choice:
    """Which findings to show: at most ``top`` (if None, as many as fit on the screen), of at least ``severity``."""

    top: int | None = None
    severity: str = "info"

    def of(self, findings: Sequence[Finding]) -> list[Finding]:
        """Keep the ``findings`` that are severe enough."""
        worst = _ORDER[self.severity]
        return [finding for finding in findings if _ORDER[finding.severity] <= worst]
