"""Counts what a reader drops or repairs, so that thousands of similar problems become one import issue."""

from __future__ import annotations

from perftool.model.inputs import ImportIssue

# Readers keep at most this many rows of each kind per file, because a row takes many times the memory of a short line.
MOST_ROWS = 100_000


class IssueTally:
    """Counts problems by kind. The message of a kind comes from its first occurrence."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._messages: dict[str, str] = {}

    def note(self, kind: str, message: str, line: int | None = None) -> None:
        """Count one occurrence, in line ``line``. Only the first line of each kind is kept."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        place = "" if line is None else f", first in line {line}"
        self._messages.setdefault(kind, message + place)

    def has_room(self, kept: int, rows: str, line: int | None = None, *, most: int = 0) -> bool:
        """Whether a reader that has kept ``kept`` rows may keep another. If not, count the row as left out. The limit
        is ``most`` or, if that is 0, MOST_ROWS."""
        limit = most or MOST_ROWS
        if kept >= limit:
            self.note(f"too many {rows}", f"only the first {limit:,} {rows} are kept", line)
        return kept < limit

    def issues(self) -> tuple[ImportIssue, ...]:
        """Return one issue per kind, in the order of their first occurrences."""
        return tuple(ImportIssue(kind, count, self._messages[kind]) for kind, count in self._counts.items())
