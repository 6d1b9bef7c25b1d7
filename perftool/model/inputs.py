"""Inputs, and the issues found while reading them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

ReadingKind = Literal[
    "fallback_log",
    "metrics",
    "runtime_log",
    "config",
    "capture",
    "flight_record",
    "nodes",
    "graph",
    "serving",
    "device",
]
InputKind = Literal["trace", ReadingKind]
# The kind of issue for parts of a file that only other programs can read.
UNREAD = "not read"
# The kind of issue for benchmark results, metrics pages and the load of servers that are not used because others are
# used instead.
UNUSED = "not used"
# The kind of issue for the log of a server that had no request before its last start. Only the last start is used.
OLDER_START = "older start"
# Issues that lose no events: repairs, notes, and events truncated at the start or end of the recording. ``diff`` and
# ``trend`` do not judge a run with any other issue.
_NOTHING_LOST = (
    "repaired events", "trailing comma", "cut names", "long inputs", "damaged metadata", UNREAD, "unmatched ends",
    "unmatched begins", "begin without end", "end without begin", "rank taken", "rank assumed", "copy",
    "older recording", "part of a recording", OLDER_START, "handMade", "simulated", "interrupted",
)  # fmt: skip
InputStatus = Literal["ok", "repaired", "truncated", "unreadable"]


@dataclass(frozen=True)
class ImportIssue:
    """Something that a reader lost or repaired.

    ``count`` is the number of events, records or lines. ``bytes`` is the length of the affected text, and ``offset`` is
    where it first occurs, in bytes from the start of the uncompressed input. Both are None if unknown.
    """

    kind: str
    count: int
    message: str
    bytes: int | None = None
    offset: int | None = None


@dataclass(frozen=True)
class InputFile:
    """One file of an analysis. ``events`` is the number of records used, and ``bytes`` is the size on disk.

    ``events_end`` is the offset, in the uncompressed text, of the bracket that closes a trace's events. It is None if
    there is no such bracket, its position is unknown, or the text before it is corrupt.
    """

    path: str
    kind: InputKind
    rank: int | None
    bytes: int
    events: int
    status: InputStatus
    issues: tuple[ImportIssue, ...] = field(default=())
    events_end: int | None = None

    @property
    def loss(self) -> str:
        """A sentence about the loss if events were lost; otherwise empty."""
        if self.status == "unreadable":
            return self.issues[0].message if self.issues else f"{self.path} cannot be read"
        if self.status == "truncated":
            return f"{self.path}: the trace is truncated"
        lost = (issue for issue in self.issues if issue.kind not in _NOTHING_LOST and issue.bytes != 0)
        return next((f"{self.path}: {issue.message}" for issue in lost), "")
