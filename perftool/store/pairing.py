"""Begin and end events of a track joined into slices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Pairs:
    """Slices made of begin and end events, and the ends and begins that are left over."""

    begin: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    unmatched_ends: int = 0
    unmatched_begins: int = 0


def pair(events: Iterable[tuple[int, object, str, str | None, int]]) -> Pairs:
    """Match begins and ends, given as (id, track, phase, name, ts) in time order.

    Within a track the innermost open begin of the same name takes an end; an end without a name takes the
    innermost. Begins skipped over on the way (an exception can skip an end) close at the same time. An end
    without a begin started before the recording and is dropped; a begin without an end is still open when the
    recording stops and closes with the last event of its track.
    """
    pairs = Pairs()
    open_begins: dict[object, list[tuple[int, str | None]]] = {}
    last_ts: dict[object, int] = {}
    for event, track, phase, name, ts in events:
        stack = open_begins.setdefault(track, [])
        last_ts[track] = ts
        if phase == "B":
            stack.append((event, name))
            continue
        depth = _innermost(stack, name)
        if depth is None:
            pairs.unmatched_ends += 1
            continue
        for begin, _ in reversed(stack[depth:]):
            pairs.begin.append(begin)
            pairs.end_ns.append(ts)
        pairs.unmatched_begins += len(stack) - depth - 1
        del stack[depth:]
    for track, stack in open_begins.items():
        for begin, _ in reversed(stack):
            pairs.begin.append(begin)
            pairs.end_ns.append(last_ts[track])
        pairs.unmatched_begins += len(stack)
    return pairs


def _innermost(stack: list[tuple[int, str | None]], name: str | None) -> int | None:
    if name is None:
        return len(stack) - 1 if stack else None
    return next((at for at in range(len(stack) - 1, -1, -1) if stack[at][1] == name), None)
