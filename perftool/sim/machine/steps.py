"""What a step of a script is: found in its annotations, since the script does not say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from perftool.sim.machine.annotations import LOADER, OPTIMIZER, PROFILER_STEP, Mark

# A step that still compiles after these is no warm-up any more.
_LONGEST_WARM_UP = 3


def step_bounds(marks: Sequence[Mark], begin: int, end: int) -> list[tuple[int, int]]:
    """Start and end of each step of a run from ``begin`` to ``end``; empty when nothing repeats.

    A script that uses PyTorch's profiler marks its steps itself. Otherwise a step ends where the next batch is asked
    for after an optimizer step; without a loader, at the end of the optimizer step; without an optimizer, a batch is
    a step. Of several optimizers, as of a GAN, the one that steps least often counts, and of equals the last.
    """
    ordered = sorted(marks, key=lambda mark: mark.begin)
    if any(mark.name.startswith(PROFILER_STEP) for mark in ordered):
        return []
    loads = [mark.begin for mark in ordered if mark.name.startswith(LOADER)]
    updates = _updates([mark for mark in ordered if mark.name.startswith(OPTIMIZER)])
    cuts = _cuts(loads, updates, end)
    first = max(begin, min(loads[:1] + updates[:1], default=begin)) if loads else begin
    edges = [first, *(cut for cut in cuts if cut > first)]
    return list(pairwise(edges))


def warm_up(bounds: Sequence[tuple[int, int]], compiled_at: Sequence[int]) -> int:
    """How many of the first steps compile, one after the other: at most as many as are left, and at most three."""
    most = min(_LONGEST_WARM_UP, len(bounds) // 2)
    compiling = [any(start <= at < end for at in compiled_at) for start, end in bounds[:most]]
    return next((number for number, compiles in enumerate(compiling) if not compiles), len(compiling))


def _updates(marks: Sequence[Mark]) -> list[int]:
    """When the steps of the optimizer that closes an iteration ended."""
    counts = Counter(mark.owner for mark in marks)
    closing = min(counts, key=lambda owner: (counts[owner], -owner), default=0)
    return [mark.end for mark in marks if mark.owner == closing]


def _cuts(loads: Sequence[int], updates: Sequence[int], end: int) -> list[int]:
    if not updates:
        return [*loads[1:], end] if loads else []
    if not loads:
        return list(updates)
    cuts = [next((load for load in loads if load >= update), end) for update in updates]
    return sorted(set(cuts))
