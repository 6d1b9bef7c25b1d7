"""Ends a script after a number of steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from perftool.sim.machine.annotations import LOADER, MARK_STEP, OPTIMIZER, PROFILER_STEP
from perftool.sim.machine.steps import SOURCES
from perftool.sim.session.script import StepLimit
from perftool.sim.session.simulation import Simulation


@contextmanager
def step_limit(simulation: Simulation, limit: int | None, source: str | None) -> Iterator[None]:
    """Within the block, StepLimit is raised when the step after the last allowed step starts.

    ``source`` says what marks a step, as in :func:`perftool.sim.machine.steps.step_bounds`.
    """
    if limit is not None:
        counter = _Counter(limit, source)
        simulation.annotations.on_enter = counter.enter
        simulation.annotations.on_leave = counter.leave
        simulation.annotations.on_step = counter.optimizer
        simulation.annotations.on_mark_step = counter.mark_step
    yield


class _Counter:
    """Counts completed steps: those of the script's profiler or, if it has none, of its optimizer. Without either, it
    counts batches or calls to ``mark_step``."""

    def __init__(self, limit: int, source: str | None) -> None:
        self._limit = limit
        self._steps: Counter[int] = Counter()
        self._marks: Counter[str] = Counter()
        self._ended = dict.fromkeys(SOURCES.values() if source is None else [SOURCES[source]], 0)

    def enter(self, name: str) -> None:
        """Check the limit when a profiler step or a request for a batch starts."""
        if name.startswith((LOADER, PROFILER_STEP)):
            self._check()

    def optimizer(self, owner: int) -> None:
        """Count a step of the optimizer ``owner``. An iteration ends when every optimizer has stepped."""
        if self._steps[owner] >= self._limit:
            self._check()
        self._steps[owner] += 1

    def leave(self, name: str) -> None:
        """Note the end of the annotation ``name``."""
        for kind in self._ended:
            if name.startswith(kind):
                self._ended[kind] = min(self._steps.values(), default=0) if kind == OPTIMIZER else self._ended[kind] + 1

    def mark_step(self, line: str) -> None:
        """Count a ``mark_step`` at ``line``. An iteration ends when every repeated line has been counted."""
        if MARK_STEP not in self._ended:
            return
        if self._marks[line] >= self._limit:
            self._check()
        self._marks[line] += 1
        repeated = [count for count in self._marks.values() if count > 1]
        self._ended[MARK_STEP] = min(repeated or self._marks.values())

    def _check(self) -> None:
        counted = next((count for count in self._ended.values() if count), 0)
        if counted >= self._limit:
            raise StepLimit(f"the script was stopped after {self._limit} steps (--max-steps)")
