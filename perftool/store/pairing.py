"""Joins begin and end events of a track into slices."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class Pairs:
    """Slices made of begin and end events, and the number of unmatched ends and begins."""

    begin: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    unmatched_ends: int = 0
    unmatched_begins: int = 0

    def close(self, begins: Sequence[int], end_ns: int) -> None:
        """Record that the slices of ``begins`` end at ``end_ns``."""
        self.begin += begins
        self.end_ns += [end_ns] * len(begins)


class _OpenBegins:
    """The open begins of a track, the innermost last. Counts by name avoid searches that would fail."""

    def __init__(self) -> None:
        self._stack: list[tuple[int, str | None]] = []
        self._names: Counter[str | None] = Counter()

    def push(self, begin: int, name: str | None) -> None:
        self._stack.append((begin, name))
        self._names[name] += 1

    def close(self, name: str | None) -> list[int]:
        """Remove and return the innermost begin of ``name`` (of any name if None) and those inside it, if any."""
        if not (self._stack if name is None else self._names[name]):
            return []
        closed = [self._pop()]
        while name is not None and closed[-1][1] != name:
            closed.append(self._pop())
        return [begin for begin, _ in closed]

    def close_all(self) -> list[int]:
        """Remove and return all open begins, the innermost first."""
        return [self._pop()[0] for _ in range(len(self._stack))]

    def _pop(self) -> tuple[int, str | None]:
        innermost = self._stack.pop()
        self._names[innermost[1]] -= 1
        return innermost


def pair(events: Iterable[tuple[int, object, str, str | None, int]]) -> Pairs:
    """Match begins and ends, given as (id, track, phase, name, ts) in time order.

    Within a track, an end closes the innermost open begin of the same name, or of any name if it has none. Begins
    inside that one, whose ends are missing (as after an exception), close at the same time. An end without a begin is
    dropped; a begin without an end closes with the last event of its track.
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
