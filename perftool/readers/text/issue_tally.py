"""Counts what a reader drops or repairs, so that thousands of similar problems become one import issue."""

from __future__ import annotations

from perftool.model.inputs import ImportIssue


class IssueTally:
    """Counts problems by kind. The message of a kind is that of its first occurrence."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._messages: dict[str, str] = {}

    def note(self, kind: str, message: str, line: int | None = None) -> None:
        """Count one occurrence, in line ``line``. Only the first line of each kind is kept."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        place = "" if line is None else f", first in line {line}"
        self._messages.setdefault(kind, message + place)

    def issues(self) -> tuple[ImportIssue, ...]:
        """One issue per kind, in the order of their first occurrences."""
        return tuple(ImportIssue(kind, count, self._messages[kind]) for kind, count in self._counts.items())
