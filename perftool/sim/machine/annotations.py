"""Named intervals of host time that ``record_function`` marks: loader requests, optimizer and profiler steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from perftool.sim.machine.machine import Machine

LOADER = "enumerate(DataLoader)#"
OPTIMIZER = "Optimizer.step#"
PROFILER_STEP = "ProfilerStep#"
MARK_STEP = "mark_step"
# The ``owner`` of a mark for a loader call that returned no batch.
NO_BATCH = "no batch"


@dataclass(frozen=True)
class Mark:
    """A finished annotation, or a ``mark_step``.

    ``owner`` is the number of the optimizer that stepped, or the line that called ``mark_step``. For a loader, it is 0
    or NO_BATCH.
    """

    name: str
    begin: int
    end: int
    owner: int | str = 0


class Annotations:
    """Keeps the stack of open annotations; finished annotations become events and :attr:`marks`."""

    def __init__(self, machine: Machine) -> None:
        self.marks: list[Mark] = []
        self.on_enter: Callable[[str], None] = _nothing
        self.on_leave: Callable[[str], None] = _nothing
        self.on_step: Callable[[int], None] = _nothing
        self.on_mark_step: Callable[[str], None] = _nothing
        self._machine = machine
        self._open: list[tuple[str, int]] = []
        self._owners: dict[int, int] = {}
        self._stepping = 0

    def about_to_step(self, optimizer: object) -> None:
        """Assign the open annotation to ``optimizer``; optimizers are numbered in the order of their first steps."""
        self._stepping = self._owners.setdefault(id(optimizer), len(self._owners))
        try:
            self.on_step(self._stepping)
        except BaseException:
            # The step limit ends the script here, but the annotation of this step has already started, so drop it.
            self._open.pop()
            self._open.append(("", self._machine.now))
            raise

    def mark_step(self, line: str) -> None:
        """Record a call to ``mark_step`` at ``line``."""
        self.on_mark_step(line)
        self.marks.append(Mark(MARK_STEP, self._machine.now, self._machine.now, line))

    def no_batch(self) -> None:
        """Record that the last request to the loader returned no batch."""
        if self.marks and self.marks[-1].name.startswith(LOADER):
            self.marks[-1] = replace(self.marks[-1], owner=NO_BATCH)

    def enter(self, name: str) -> None:
        """Start an annotation."""
        self.on_enter(name)
        self._open.append((name, self._machine.now))
        self._machine.spend(self._machine.costs.host_call_us)

    def leave(self) -> None:
        """End the innermost annotation."""
        if not self._open:
            return
        name, begin = self._open.pop()
        if not name:
            return
        self.on_leave(name)
        has_line = not name.startswith(PROFILER_STEP)
        self._machine.recorder.host(name, begin, self._machine.now, "user_annotation", has_line=has_line)
        self.marks.append(Mark(name, begin, self._machine.now, self._stepping if name.startswith(OPTIMIZER) else 0))

    def close(self) -> None:
        """End annotations that the script left open."""
        while self._open:
            self.leave()


def _nothing(what: object) -> None:
    """Do nothing; this is the default listener."""
