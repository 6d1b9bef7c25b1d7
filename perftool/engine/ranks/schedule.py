"""Where the tasks of many ranks run: in this process, or in several."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from perftool.engine.ranks.batch import Batch
from perftool.store.sizing import cores

# Called with what is being done and how many bytes of text were read so far.
Progress = Callable[[str, int], None]
Made = TypeVar("Made")
Work = Callable[[Batch, Progress | None], Made]

# The database of a worker.
WORKER_MEMORY_MB = 750


# What a worker may take to remove its temporary folder.
_ENDING_S = 5.0


@dataclass(frozen=True)
class Lost:
    """Why a task gave nothing."""

    why: str


class Schedule(Protocol):
    """A way to run tasks."""

    @property
    def workers(self) -> int:
        """How many tasks run at a time."""

    def share(self) -> tuple[int, int]:
        """The database memory in MB, and the processor cores, that each task may use."""

    def run(self, tasks: Sequence[Batch], work: Work[Made], progress: Progress | None) -> Iterator[Made | Lost]:
        """What ``work`` makes of each task, in the order of ``tasks``."""


@dataclass(frozen=True)
class InProcess:
    """One task after the other, here."""

    @property
    def workers(self) -> int:
        """This process."""
        return 1

    def share(self) -> tuple[int, int]:
        """All cores: nothing else runs."""
        return WORKER_MEMORY_MB, cores()

    def run(self, tasks: Sequence[Batch], work: Work[Made], progress: Progress | None) -> Iterator[Made | Lost]:
        """Work as the results are asked for, so that one database exists at a time."""
        for task in tasks:
            yield work(task, progress)


IN_PROCESS = InProcess()


@dataclass(frozen=True)
class Processes:
    """``workers`` processes on this machine, each with its share of the cores."""

    workers: int

    def share(self) -> tuple[int, int]:
        """An equal part of the cores for each process."""
        return WORKER_MEMORY_MB, max(1, cores() // self.workers)

    def run(self, tasks: Sequence[Batch], work: Work[Made], progress: Progress | None) -> Iterator[Made | Lost]:
        """Work in processes that are started anew, so that they share nothing with this one.

        When one dies, the tasks that were not done are done again, each alone; one that kills that process as well
        is lost.
        """
        show = Count(tasks, progress)
        done = _pooled(tasks, work, self.workers, show)
        for task in tasks:
            if task not in done:
                alone = _pooled([task], work, 1, show)
                done[task] = alone.get(task) or Lost("the process that analysed it was killed twice (out of memory?)")
        yield from (done[task] for task in tasks)


class Count:
    """Tells ``progress`` how many ranks are done."""

    def __init__(self, tasks: Sequence[Batch], progress: Progress | None) -> None:
        self._done, self._progress = 0, progress
        self._total = sum(len(task.files) for task in tasks)
        self._tell()

    def add(self, task: Batch) -> None:
        """``task`` is done."""
        self._done += len(task.files)
        self._tell()

    def _tell(self) -> None:
        if self._progress:
            self._progress(f"{self._done} of {self._total} ranks analysed", 0)


def _pooled(tasks: Sequence[Batch], work: Work[Made], workers: int, show: Count) -> dict[Batch, Made | Lost]:
    """What ``workers`` new processes make of ``tasks``, until one of them dies."""
    # What a trace that this process reads by itself has no use for.
    import multiprocessing
    from concurrent.futures import Future, ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    done: dict[Batch, Made | Lost] = {}
    context = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    with ProcessPoolExecutor(min(workers, len(tasks)), context, _end_by_exception) as pool:
        try:
            started: dict[Future[Made], Batch] = {pool.submit(_worked, work, task): task for task in tasks}
            for future in as_completed(started):
                try:
                    done[started[future]] = future.result()
                except BrokenProcessPool:
                    continue
                show.add(started[future])
        except BaseException:
            # Whoever ends this process wants no more of the work: the pool would wait for what has begun.
            pool.shutdown(wait=False, cancel_futures=True)
            ending = set(multiprocessing.active_children()) - before
            for worker in ending:
                worker.terminate()
            for worker in ending:
                worker.join(_ENDING_S)
            raise
    return done


# In a worker: whether it was told to end.
_told_to_end: list[int] = []


def _end_by_exception() -> None:
    """Let SIGTERM end the task of a worker through every ``with``, so that its temporary folder goes too."""

    def leave(number: int, _: object) -> None:
        _told_to_end.append(number)
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def _worked(work: Work[Made], task: Batch) -> Made:
    """What ``work`` makes of ``task``, in a worker; one that was told to end would else be given the next task."""
    try:
        return work(task, None)
    finally:
        if _told_to_end:
            os._exit(128 + _told_to_end[0])
