"""Finds the steps of a script by its annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from perftool.sim.machine.annotations import LOADER, MARK_STEP, NO_BATCH, OPTIMIZER, PROFILER_STEP, Mark

# The sources of steps, and the names of their marks.
SOURCES = {"profiler": PROFILER_STEP, "optimizer": OPTIMIZER, "loader": LOADER, "mark_step": MARK_STEP}
# A step that compiles after this many steps is not warm-up.
_LONGEST_WARM_UP = 3


def step_bounds(marks: Sequence[Mark], begin: int, end: int, source: str | None = None) -> list[tuple[int, int]]:
    """Return the start and end of each step of a run from ``begin`` to ``end``. The result is empty if nothing marks a
    step.

    A script that uses PyTorch's profiler marks its steps itself, so the result is empty. Otherwise a step ends at the
    request for the next batch after an optimizer step; without a loader, at the end of the optimizer step. Without an
    optimizer, a batch is a step. With neither, a step ends at ``mark_step``. If there are several optimizers, as in a
    GAN, the optimizer that steps least often is used; in a tie, the last optimizer. The same applies to several lines
    that call ``mark_step``. If ``source`` is given (one of SOURCES), only its marks are used.
    """
    counted = [mark for mark in marks if source is None or mark.name.startswith(SOURCES[source])]
    ordered = sorted(counted, key=lambda mark: mark.begin)
    if any(mark.name.startswith(PROFILER_STEP) for mark in ordered):
        return []
    load_marks = [mark for mark in ordered if mark.name.startswith(LOADER)]
    loads = [mark.begin for mark in load_marks]
    updates = _updates([mark for mark in ordered if mark.name.startswith(OPTIMIZER)])
    if not loads and not updates:
        updates = _updates([mark for mark in ordered if mark.name == MARK_STEP])
    received = [mark.begin for mark in load_marks if mark.owner != NO_BATCH]
    cuts = _cuts(loads, updates or received, end) if loads else updates
    first = max(begin, min(loads[:1] + updates[:1], default=begin)) if loads else begin
    edges = [first, *(cut for cut in cuts if cut > first)]
    return list(pairwise(edges))


def warm_up(bounds: Sequence[tuple[int, int]], compiled_at: Sequence[int]) -> int:
    """Return the number of initial steps that compile: at most half of all steps, and at most three."""
    most = min(_LONGEST_WARM_UP, len(bounds) // 2)
    compiling = [any(start <= at < end for at in compiled_at) for start, end in bounds[:most]]
    return next((number for number, compiles in enumerate(compiling) if not compiles), len(compiling))


def _updates(marks: Sequence[Mark]) -> list[int]:
    """Return the ends of iterations: the end times of the marks of the owner with the fewest marks, or of the last such
    owner. An owner with a single mark is ignored if others have several."""
    counts = Counter(mark.owner for mark in marks)
    order = {owner: place for place, owner in enumerate(counts)}
    closing = min(counts, key=lambda owner: (counts[owner] == 1, counts[owner], -order[owner]), default=0)
    return [mark.end for mark in marks if mark.owner == closing]


def _cuts(loads: Sequence[int], done: Sequence[int], end: int) -> list[int]:
    """For each time in ``done``, return when the next batch is requested. If the next time in ``done`` comes before
    that request, return the time itself."""
    cuts = []
    for at, following in zip(done, [*done[1:], end], strict=True):
        request = next((load for load in loads if load > at), end)
        cuts.append(request if request <= following else at)
    return cuts
