"""Combines the begin and end events of each track into slices."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class Pairs:
    """Slices, as the ids of their begin events and their end times (ns), and the numbers of unmatched end and begin
    events."""

    begin: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    unmatched_ends: int = 0
    unmatched_begins: int = 0

    def close(self, begins: Sequence[int], end_ns: int) -> None:
        """Record that the slices with the begin events ``begins`` end at ``end_ns``."""
        self.begin += begins
        self.end_ns += [end_ns] * len(begins)


class _OpenBegins:
    """The begin events of a track whose slices are open, innermost last. A count per name avoids searches that would
    find nothing."""

    def __init__(self) -> None:
        self._stack: list[tuple[int, str | None]] = []
        self._names: Counter[str | None] = Counter()

    def push(self, begin: int, name: str | None) -> None:
        self._stack.append((begin, name))
        self._names[name] += 1

    def close(self, name: str | None) -> list[int]:
        """Remove and return the innermost begin event called ``name`` (any name if None) and the begin events inside
        it."""
        if not (self._stack if name is None else self._names[name]):
            return []
        closed = [self._pop()]
        while name is not None and closed[-1][1] != name:
            closed.append(self._pop())
        return [begin for begin, _ in closed]

    def close_all(self) -> list[int]:
        """Remove and return all begin events that are left, innermost first."""
        return [self._pop()[0] for _ in range(len(self._stack))]

    def _pop(self) -> tuple[int, str | None]:
        innermost = self._stack.pop()
        self._names[innermost[1]] -= 1
        return innermost


def pair(events: Iterable[tuple[int, object, str, str | None, int]]) -> Pairs:
    """Match begin and end events, given as (id, track, phase, name, ts) in time order.

    An end event closes the innermost open slice with the same name on its track or, if the event has no name, the
    innermost open slice of any name. Slices inside the closed slice lack an end event, as after an exception, and close
    at the same time. End events without a slice are dropped; slices without an end event close at the last event of
    their track.
    """
    pairs = Pairs()
    open_begins: defaultdict[object, _OpenBegins] = defaultdict(_OpenBegins)
    last_ts: dict[object, int] = {}
    for event, track, phase, name, ts in events:
        last_ts[track] = ts
        if phase == "B":
            open_begins[track].push(event, name)
        elif closed := open_begins[track].close(name):
            pairs.close(closed, ts)
            pairs.unmatched_begins += len(closed) - 1
        else:
            pairs.unmatched_ends += 1
    for track, still_open in open_begins.items():
        closed = still_open.close_all()
        pairs.close(closed, last_ts[track])
        pairs.unmatched_begins += len(closed)
    return pairs
