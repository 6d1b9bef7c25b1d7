"""Simulates the processes that a script spawns, such as one for each card; each writes its own trace. A spawned process
unpickles its parent's data before it imports the script, and this unpickling starts the simulation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import spawn, util
from pathlib import Path
from typing import Any

from perftool.errors import PerfToolError
from perftool.sim.machine.costs import device_facts
from perftool.sim.machine.write import require_replaceable
from perftool.sim.patches import attribute
from perftool.sim.places import files, of_rank
from perftool.sim.session.simulation import Simulation
from perftool.sim.stubs.modules import standing_in

_ENTRANCE = "perftool"
# Finalizers with a higher priority run first; those of Python's own modules have lower priorities than this.
_EARLY = 200


@dataclass(frozen=True)
class Settings:
    """What a process gets from its parent: options, the path of its ``trace``, and the folder ``started``, in which
    each rank that writes a trace creates a file named after the rank. If a rank may not write its files, a file
    ``refused`` there says why."""

    device: str
    mode: str
    max_steps: int | None
    skip_steps: int | None
    steps_from: str | None
    trace: Path
    started: Path

    def written(self) -> tuple[Path, ...]:
        """Return the traces that ranks have written."""
        ranks = sorted(int(each.name) for each in self.started.iterdir() if each.name.isdigit())
        return tuple(of_rank(self.trace, rank) for rank in ranks)

    def require_written(self) -> None:
        """Raise PerfToolError if a rank did not write its files because they would replace other files."""
        if self._refused.exists():
            raise PerfToolError(self._refused.read_text(encoding="utf-8", errors="surrogateescape"))

    def write(self, simulation: Simulation) -> None:
        """Write the files of a rank, unless the files of any rank would replace files that are not from a
        simulation."""
        try:
            for rank in {*range(simulation.ranks), simulation.rank}:
                require_replaceable(*files(of_rank(self.trace, rank)))
        except PerfToolError as error:
            if self.started.is_dir():
                self._refused.write_text(str(error), encoding="utf-8", errors="surrogateescape")
            return
        simulation.write(*files(of_rank(self.trace, simulation.rank)), None)
        if self.started.is_dir():
            (self.started / str(simulation.rank)).touch()

    @property
    def _refused(self) -> Path:
        return self.started / "refused"


class _SimulationStart:
    """Starts the simulation of the process that unpickles it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __reduce__(self) -> tuple[Callable[[Settings], None], tuple[Settings]]:
        return _enter, (self._settings,)


@contextmanager
def spawning(settings: Settings) -> Iterator[None]:
    """Within the block, spawned processes are also simulated."""
    plain = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {**plain(name), _ENTRANCE: _SimulationStart(settings)}

    with attribute(spawn, "get_preparation_data", get_preparation_data):
        yield


def _enter(settings: Settings) -> None:
    stack = ExitStack()
    simulation = Simulation(device_facts(settings.device), settings.mode)
    stack.enter_context(spawning(settings))
    stack.enter_context(standing_in(simulation, settings.max_steps, settings.steps_from))
    stack.enter_context(simulation.running())
    util.Finalize(None, _leave, (simulation, settings, stack, os.getpid()), exitpriority=_EARLY)


def _leave(simulation: Simulation, settings: Settings, stack: ExitStack, owner: int) -> None:
    """Write the files, except in a forked child. In a run with a single rank, a process that submitted no device work,
    such as a loader's worker, does not write any files.
    """
    if os.getpid() != owner:
        return
    stack.close()
    if simulation.ranks == 1 and not simulation.machine.used:
        return
    simulation.finish(settings.skip_steps, settings.steps_from)
    settings.write(simulation)
