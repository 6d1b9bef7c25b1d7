"""Traces of ranks that other traces show already: copies, and older recordings of the same process."""

from __future__ import annotations

import filecmp
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from perftool.readers.files.identity import Identity, identify
from perftool.readers.files.remote import is_url
from perftool.readers.files.stream import reads_once
from perftool.units import NS_PER_S

# The schedule of a profiler repeats within hours; later the system may have given the number of a process again.
_ONE_RUN_NS = 6 * 3600 * NS_PER_S


@dataclass(frozen=True)
class SetAside:
    """The trace ``path``, which is not read, since ``instead`` shows its rank."""

    path: str
    rank: int
    instead: str
    why: Literal["copy", "older recording"]

    def __str__(self) -> str:
        what = "a copy" if self.why == "copy" else "an older recording of the same process"
        return f"{self.path} is {what}, rank {self.rank}, and was set aside for {self.instead}"


def without_duplicates(traces: Sequence[str]) -> tuple[list[str], list[SetAside]]:
    """``traces`` without those that hold the same bytes as one before, and of several recordings of a process the last.

    A profiler whose schedule repeats leaves several. Those set aside come with the trace that is read in their place.
    """
    kept: list[Identity] = []
    aside: list[SetAside] = []
    seen: dict[int, list[Identity]] = {}
    for trace in traces:
        own = identify(trace)
        same = [other for other in seen.get(own.rank, ()) if _again(own, other)] if own.rank is not None else []
        if own.rank is None or not same:
            kept.append(own)
            seen.setdefault(-1 if own.rank is None else own.rank, []).append(own)
            continue
        first = same[0]
        if _copy(own, first) or (own.start_ns or 0) <= (first.start_ns or 0):
            aside.append(SetAside(trace, own.rank, first.path, "copy" if _copy(own, first) else "older recording"))
            continue
        # The later one takes the place of the other, and of what was set aside for that.
        kept[kept.index(first)] = own
        seen[own.rank][seen[own.rank].index(first)] = own
        aside = [SetAside(one.path, one.rank, trace, one.why) if one.instead == first.path else one for one in aside]
        aside.append(SetAside(first.path, own.rank, trace, "older recording"))
    return [one.path for one in kept], aside


def _again(own: Identity, other: Identity) -> bool:
    return _copy(own, other) or _same_process(own, other)


def _copy(own: Identity, other: Identity) -> bool:
    if any(is_url(path) or reads_once(path) for path in (own.path, other.path)):
        return False
    try:
        return filecmp.cmp(own.path, other.path, shallow=False)
    except OSError:
        return False


def _same_process(own: Identity, other: Identity) -> bool:
    if own.process is None or own.start_ns is None or other.start_ns is None:
        return False
    alike = (own.process, own.device, own.world_size) == (other.process, other.device, other.world_size)
    return alike and 0 < abs(own.start_ns - other.start_ns) < _ONE_RUN_NS
