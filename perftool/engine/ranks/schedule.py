"""Where the tasks of many ranks run: in this process, in several, or on a cluster."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from perftool.engine.ranks.rank_part import RankPart, RankTask, Shared, analyse_rank
from perftool.engine.report.compose import unreadable
from perftool.errors import InputError, SettingsError
from perftool.model.inputs import InputFile
from perftool.readers.files.stream import reads_once

# Called with what is being done and how many bytes of text were read so far.
Progress = Callable[[str, int], None]
Result = RankPart | InputFile

# The database of a worker, and what a worker needs in all: it also holds a batch of text and the nesting of slices.
WORKER_MEMORY_MB = 750
_WORKER_BYTES = 1280 << 20
# Below this much input it takes longer to start processes than to read it.
_WORTH_PROCESSES = 32 << 20


class Schedule(Protocol):
    """A way to run tasks."""

    def share(self) -> tuple[int, int]:
        """The database memory in MB, and the processor cores, that each task may use."""

    def run(self, tasks: Sequence[RankTask], shared: Shared, progress: Progress | None) -> Iterator[Result]:
        """The result of each task, in the order of ``tasks``."""


@dataclass(frozen=True)
class InProcess:
    """One task after the other, here."""

    def share(self) -> tuple[int, int]:
        """All cores: nothing else runs."""
        return WORKER_MEMORY_MB, _cores()

    def run(self, tasks: Sequence[RankTask], shared: Shared, progress: Progress | None) -> Iterator[Result]:
        """Analyse as the results are asked for, so that one database exists at a time."""
        for number, task in enumerate(tasks, 1):
            label = f"rank {number} of {len(tasks)}"
            yield analyse_rank(task, shared, partial(progress, label) if progress else None)


IN_PROCESS = InProcess()


@dataclass(frozen=True)
class Processes:
    """``jobs`` worker processes on this machine, each with its share of the cores."""

    jobs: int

    def share(self) -> tuple[int, int]:
        """An equal part of the cores for each process."""
        return WORKER_MEMORY_MB, max(1, _cores() // self.jobs)

    def run(self, tasks: Sequence[RankTask], shared: Shared, progress: Progress | None) -> Iterator[Result]:
        """Analyse in processes that are started anew, so that they share nothing with this one.

        When one dies, the tasks that were not done are done again, each alone; one that kills that process as well
        is unreadable.
        """
        show = _Count(len(tasks), progress)
        done = _pooled(tasks, shared, self.jobs, show)
        for task in tasks:
            if task not in done:
                alone = _pooled([task], shared, 1, show)
                error = InputError(f"{task.path}: the process that analysed it was killed twice (out of memory?)")
                done[task] = alone.get(task) or unreadable(task.path, error)
        yield from (done[task] for task in tasks)


class _Count:
    """Tells ``progress`` how many ranks are done."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress
        self._tell()

    def add(self) -> None:
        """One more is done."""
        self._done += 1
        self._tell()

    def _tell(self) -> None:
        if self._progress:
            self._progress(f"{self._done} of {self._total} ranks analysed", 0)


def _pooled(tasks: Sequence[RankTask], shared: Shared, jobs: int, show: _Count) -> dict[RankTask, Result]:
    """What ``jobs`` new processes make of ``tasks``, until one of them dies."""
    done: dict[RankTask, Result] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=context) as pool:
        started: dict[Future[Result], RankTask] = {pool.submit(analyse_rank, task, shared): task for task in tasks}
        for future in as_completed(started):
            try:
                done[started[future]] = future.result()
            except BrokenProcessPool:
                continue
            show.add()
    return done


def choose_schedule(paths: Sequence[str], jobs: int | None = None, scheduler: str | None = None) -> Schedule:
    """The schedule for the traces at ``paths``.

    ``scheduler`` is None or ``local`` for this machine, or ``dask://HOST:PORT``. Without ``jobs`` there are as many
    processes as cores, files and memory suggest. Raises SettingsError for anything else, and MissingExtraError.
    """
    if scheduler not in (None, "local"):
        from perftool.engine.ranks.cluster import connect

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
    return max(1, min(_cores(), _available_bytes() // _WORKER_BYTES))


def _cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
