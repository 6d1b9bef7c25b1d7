"""Chooses the schedule: the one named on the command line, or the best for this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence

from perftool.engine.ranks.cluster import connect
from perftool.engine.ranks.schedule import IN_PROCESS, Processes, Schedule
from perftool.errors import SettingsError
from perftool.model.machine_memory import free_memory_mb
from perftool.readers.files.stream import reads_once
from perftool.store.sizing import cores

# The memory of a worker process: its database, a batch of text, and the slices while their nesting is computed.
_WORKER_MB = 1280
# Below this input size in bytes, starting processes takes longer than reading.
_WORTH_PROCESSES = 32 << 20


def choose_schedule(paths: Sequence[str], jobs: int | None = None, scheduler: str | None = None) -> Schedule:
    """Choose the schedule for the traces at ``paths``.

    ``scheduler`` is None or ``local`` for this machine, or an address for ``connect``. If ``jobs`` is None, the number
    of processes depends on cores, files and memory. Raise SettingsError for invalid values, and the errors of
    ``connect``.
    """
    if scheduler not in (None, "local"):
        if jobs is not None:
            raise SettingsError("--jobs requires --scheduler local; a cluster has a fixed number of workers")
        return connect(scheduler)
    if jobs is not None and jobs < 1:
        raise SettingsError(f"--jobs {jobs}: expected at least 1")
    wanted = jobs if jobs is not None else _suggested(paths)
    count = min(wanted, len(paths))
    return Processes(count) if count > 1 and not any(map(reads_once, paths)) else IN_PROCESS


def _suggested(paths: Sequence[str]) -> int:
    sizes = [os.path.getsize(path) for path in paths if os.path.exists(path)]
    if len(sizes) == len(paths) and sum(sizes) < _WORTH_PROCESSES:
        return 1
    return max(1, min(cores(), free_memory_mb() // _WORKER_MB))
