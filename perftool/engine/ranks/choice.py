"""Which schedule a command line asks for, and which one suits it when it does not say."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from perftool.engine.ranks.cluster import connect
from perftool.engine.ranks.schedule import IN_PROCESS, Processes, Schedule
from perftool.errors import SettingsError
from perftool.readers.files.stream import reads_once
from perftool.store.sizing import cores

# What a worker needs in all: its database, a batch of text, and the nesting of slices.
_WORKER_BYTES = 1280 << 20
# Below this much input it takes longer to start processes than to read it.
_WORTH_PROCESSES = 32 << 20


def choose_schedule(paths: Sequence[str], jobs: int | None = None, scheduler: str | None = None) -> Schedule:
    """The schedule for the traces at ``paths``.

    ``scheduler`` is None or ``local`` for this machine, or ``dask://HOST:PORT``. Without ``jobs`` there are as many
    processes as cores, files and memory suggest. Raises SettingsError for anything else, and MissingExtraError.
    """
    if scheduler not in (None, "local"):
        if jobs is not None:
            raise SettingsError("--jobs is for --scheduler local; a cluster has the workers it has")
        return connect(scheduler)
    if jobs is not None and jobs < 1:
        raise SettingsError(f"--jobs {jobs}: must be at least 1")
    wanted = jobs if jobs is not None else _suggested(paths)
    count = min(wanted, len(paths))
    return Processes(count) if count > 1 and not any(map(reads_once, paths)) else IN_PROCESS


def _suggested(paths: Sequence[str]) -> int:
    sizes = [os.path.getsize(path) for path in paths if os.path.exists(path)]
    if len(sizes) == len(paths) and sum(sizes) < _WORTH_PROCESSES:
        return 1
    return max(1, min(cores(), _available_bytes() // _WORKER_BYTES))


def _available_bytes() -> int:
    """The memory that new processes could have, where the system tells."""
    limits = [_number(Path("/sys/fs/cgroup/memory.max"), 0, 1), _number(Path("/proc/meminfo"), 1, 1024, "MemAvailable")]
    return min((limit for limit in limits if limit is not None), default=1 << 60)


def _number(path: Path, word: int, unit: int, begins: str = "") -> int | None:
    """The number that is the given word of the first line of ``path`` that ``begins`` so, times ``unit``."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    words = next((line.split() for line in lines if line.startswith(begins)), [])
    return int(words[word]) * unit if len(words) > word and words[word].isdigit() else None
