"""Counts what a reader drops or repairs, so that thousands of similar problems make one import issue."""

from __future__ import annotations

from perftool.model.inputs import ImportIssue


class IssueTally:
    """One counter per kind of problem; the first occurrence sets the message of its kind."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._messages: dict[str, str] = {}

    def note(self, kind: str, message: str, line: int | None = None) -> None:
        """Count one occurrence, in ``line``; only the first line is kept."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        place = "" if line is None else f", first in line {line}"
        self._messages.setdefault(kind, message + place)

    def issues(self) -> tuple[ImportIssue, ...]:
        """One issue per kind, in the order in which the kinds first occurred."""
        return tuple(ImportIssue(kind, count, self._messages[kind]) for kind, count in self._counts.items())
