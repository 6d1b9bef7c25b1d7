"""Ends a script after a number of steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from perftool.sim.machine.annotations import LOADER, OPTIMIZER, PROFILER_STEP
from perftool.sim.session.script import StepLimit
from perftool.sim.session.simulation import Simulation


@contextmanager
def step_limit(simulation: Simulation, limit: int | None) -> Iterator[None]:
    """Inside, StepLimit is raised where the step after the last allowed one would begin."""
    if limit is not None:
        counter = _Counter(limit)
        simulation.annotations.on_enter = counter.enter
        simulation.annotations.on_leave = counter.leave
        simulation.annotations.on_step = counter.optimizer
        simulation.on_mark_step = counter.mark_step
    yield


class _Counter:
    """Counts what ends a step: the script's own profiler, else optimizer steps, else batches, else mark_step."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._steps: Counter[int] = Counter()
        self._ended = dict.fromkeys((PROFILER_STEP, OPTIMIZER, LOADER, "mark_step"), 0)

    def enter(self, name: str) -> None:
        """A step that is counted by its batch or by the script's profiler begins."""
        if name.startswith((LOADER, PROFILER_STEP)):
            self._check()

    def optimizer(self, owner: int) -> None:
        """An optimizer begins a step; those of one iteration count once."""
        if self._steps[owner] >= self._limit:
            self._check()
        self._steps[owner] += 1

    def leave(self, name: str) -> None:
        """Something ended."""
        for kind in self._ended:
            if name.startswith(kind):
                self._ended[kind] = min(self._steps.values(), default=0) if kind == OPTIMIZER else self._ended[kind] + 1

    def mark_step(self) -> None:
        """A script without annotations is counted by its marks."""
        if not any(count for kind, count in self._ended.items() if kind != "mark_step"):
            self._check()
        self._ended["mark_step"] += 1

    def _check(self) -> None:
        counted = next((count for count in self._ended.values() if count), 0)
        if counted >= self._limit:
            raise StepLimit(f"the script was stopped after {self._limit} steps (--max-steps)")
