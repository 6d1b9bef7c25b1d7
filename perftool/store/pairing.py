"""Combines the begin and end events of each track into slices."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class Pairs:
    """Slices as begins and end times (ns), and the numbers of unmatched ends and begins."""

    begin: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    unmatched_ends: int = 0
    unmatched_begins: int = 0

    def close(self, begins: Sequence[int], end_ns: int) -> None:
        """Record that the slices that start with ``begins`` end at ``end_ns``."""
        self.begin += begins
        self.end_ns += [end_ns] * len(begins)


class _OpenBegins:
    """The open begins of a track, innermost last. A count per name avoids searches that would find nothing."""

    def __init__(self) -> None:
        self._stack: list[tuple[int, str | None]] = []
        self._names: Counter[str | None] = Counter()

    def push(self, begin: int, name: str | None) -> None:
        self._stack.append((begin, name))
        self._names[name] += 1

    def close(self, name: str | None) -> list[int]:
        """Remove and return the innermost begin called ``name`` (any name if None) and the begins inside it."""
        if not (self._stack if name is None else self._names[name]):
            return []
        closed = [self._pop()]
        while name is not None and closed[-1][1] != name:
            closed.append(self._pop())
        return [begin for begin, _ in closed]

    def close_all(self) -> list[int]:
        """Remove and return all open begins, innermost first."""
        return [self._pop()[0] for _ in range(len(self._stack))]

    def _pop(self) -> tuple[int, str | None]:
        innermost = self._stack.pop()
        self._names[innermost[1]] -= 1
        return innermost


def pair(events: Iterable[tuple[int, object, str, str | None, int]]) -> Pairs:
    """Match begins and ends, given as (id, track, phase, name, ts) in time order.

    An end closes the innermost open begin with the same name on its track; an end without a name closes the innermost
    open begin of any name. Begins inside the closed begin lack an end, as after an exception, and close at the same
    time. Ends without a begin are dropped; begins without an end close at the last event of their track.
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
