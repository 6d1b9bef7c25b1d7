"""Runs tasks that each analyse some ranks, in this process or in several."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from perftool.engine.ranks.batch import Batch
from perftool.signals import after_native_imports
from perftool.store.sizing import cores

# Called with the current activity, and the number of bytes read so far.
Progress = Callable[[str, int], None]
Made = TypeVar("Made")
Work = Callable[[Batch, Progress | None], Made]

# The memory limit for the database of a worker.
WORKER_MEMORY_MB = 750


# How long a worker may take to end its own child processes before it is killed.
_ENDING_S = 5.0


@dataclass(frozen=True)
class TaskFailed:
    """The reason why a task has no result."""

    why: str


class Schedule(Protocol):
    """Where tasks run, and how many at a time."""

    @property
    def workers(self) -> int:
        """The number of tasks that run at once."""

    def share(self) -> tuple[int, int]:
        """The database memory in MB, and the number of cores, for each task."""

    def run(self, tasks: Sequence[Batch], work: Work[Made], progress: Progress | None) -> Iterator[Made | TaskFailed]:
        """Run ``work`` on each task, and return the results in the order of ``tasks``."""


@dataclass(frozen=True)
class InProcess:
    """Runs one task after another in this process."""

    @property
    def workers(self) -> int:
        """One task at a time."""
        return 1

    def share(self) -> tuple[int, int]:
        """Return the memory of a worker in MB, and all cores, because no other task runs."""
        return WORKER_MEMORY_MB, cores()

    def run(self, tasks: Sequence[Batch], work: Work[Made], progress: Progress | None) -> Iterator[Made | TaskFailed]:
        """Run each task when its result is requested, so that only one database exists at a time."""
        for task in tasks:
            yield work(task, progress)


IN_PROCESS = InProcess()


@dataclass(frozen=True)
class Processes:
    """``workers`` processes on this machine, each with its share of the cores."""

    workers: int

    def share(self) -> tuple[int, int]:
        """Return the memory of a worker in MB, and an equal share of the cores."""
        return WORKER_MEMORY_MB, max(1, cores() // self.workers)

    def run(self, tasks: Sequence[Batch], work: Work[Made], progress: Progress | None) -> Iterator[Made | TaskFailed]:
        """Run the tasks in newly started processes, which share no state with this process.

        If a process dies, the unfinished tasks are retried one by one. A task whose process dies again is lost.
        """
        show = Count(tasks, progress)
        done = _pooled(tasks, work, self.workers, show)
        for task in tasks:
            if task not in done:
                alone = _pooled([task], work, 1, show)
                done[task] = alone.get(task) or TaskFailed(
                    "the process that analysed it was killed twice (out of memory?)"
                )
        yield from (done[task] for task in tasks)


class Count:
    """Reports to ``progress`` how many ranks are done."""

    def __init__(self, tasks: Sequence[Batch], progress: Progress | None) -> None:
        self._done, self._progress = 0, progress
        self._total = sum(len(task.files) for task in tasks)
        self._notify()

    def add(self, task: Batch) -> None:
        """Count ``task`` as done."""
        self._done += len(task.files)
        self._notify()

    def _notify(self) -> None:
        if self._progress:
            self._progress(f"{self._done} of {self._total} ranks analysed", 0)


def _pooled(tasks: Sequence[Batch], work: Work[Made], workers: int, show: Count) -> dict[Batch, Made | TaskFailed]:
    """Run ``tasks`` in ``workers`` new processes. If one of them dies, return only the results finished before."""
    # Imported here because an analysis in this process does not need these modules.
    import multiprocessing
    from concurrent.futures import Future, ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    done: dict[Batch, Made | TaskFailed] = {}
    context = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    # All workers keep their temporary files in this folder, which is removed even if a worker was killed.
    with (
        tempfile.TemporaryDirectory(prefix="perftool-", ignore_cleanup_errors=True) as folder,
        _isolated_children(),
        ProcessPoolExecutor(min(workers, len(tasks)), context, _prepare_worker, (folder,)) as pool,
    ):
        try:
            with _ctrl_c_later():
                started: dict[Future[Made], Batch] = {pool.submit(_run_in_worker, work, task): task for task in tasks}
            for future in as_completed(started):
                try:
                    done[started[future]] = future.result()
                except BrokenProcessPool:
                    continue
                show.add(started[future])
        except BaseException:
            # Unlike the pool, an interrupted program must not wait for running tasks.
            pool.shutdown(wait=False, cancel_futures=True)
            ending = set(multiprocessing.active_children()) - before
            for worker in ending:
                worker.terminate()
            for worker in ending:
                worker.join(_ENDING_S)
                worker.kill()
            raise
    return done


# In a worker, the signal that it has received (empty until then), and the tasks that it is running.
_ended_by: list[int] = []
_running: list[Batch] = []


@contextmanager
def _isolated_children() -> Iterator[None]:
    """Start Python processes with -I.

    multiprocessing starts them with -c, so without -I they would import modules from the working directory, which may
    contain a pull request or traces. They get the module path of this process afterwards.
    """
    from multiprocessing import util

    flags = util._args_from_interpreter_flags  # type: ignore[attr-defined]
    util._args_from_interpreter_flags = lambda: [*flags(), "-I"]  # type: ignore[attr-defined]
    try:
        yield
    finally:
        util._args_from_interpreter_flags = flags  # type: ignore[attr-defined]


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Block SIGINT. Processes started within the block inherit the signal mask, so Ctrl-C does not reach them; this
    process ends them instead."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare_worker(folder: str) -> None:
    """Use ``folder`` for temporary files, and make SIGTERM raise an exception in a task, so that it cleans up.

    Outside of tasks, the pool would catch the exception, and a worker that waits for a lock of a killed worker would
    wait for ever.
    """
    tempfile.tempdir = folder

    def leave(number: int, _: object) -> None:
        if not _running:
            os._exit(128 + number)
        _ended_by.append(number)
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, after_native_imports(leave))


def _run_in_worker(work: Work[Made], task: Batch) -> Made:
    """Run ``work`` on ``task`` in a worker. Exit after SIGTERM; otherwise, the worker would get another task."""
    _running.append(task)
    try:
        return work(task, None)
    finally:
        _running.clear()
        if _ended_by:
            os._exit(128 + _ended_by[0])
