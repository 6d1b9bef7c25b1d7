"""Infers waits between threads from their events. Traces do not record that one thread waits for another. They only
show that one thread is silent (no op, no runtime call) while another works: the main thread during the backward pass,
and the autograd thread during the rest of the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perftool.replay.limits import PAUSE_NS
from perftool.replay.recording import Bools, Int64s, Recording

MAIN = 0


@dataclass(frozen=True)
class Handovers:
    """Points at which one thread lets another resume: ``to``, silent since ``since``, resumes at ``resumed``.

    ``cause`` is the thread that lets it resume, and ``caused`` the time at which it does so. All times are in ns.
    """

    to: Int64s
    since: Int64s
    resumed: Int64s
    cause: Int64s
    caused: Int64s

    def __len__(self) -> int:
        return len(self.to)


@dataclass(frozen=True)
class Runs:
    """The stretches in which a thread works without a pause, in time order."""

    ts: Int64s
    end: Int64s

    @classmethod
    def of(cls, recording: Recording, thread: int) -> Runs:
        """Find the stretches of ``thread``. A pause of more than ``PAUSE_NS`` ends a stretch."""
        mine = recording.leaves.thread == thread
        ts, end = recording.leaves.ts[mine], np.maximum.accumulate(recording.leaves.end[mine])
        begins = np.ones(len(ts), dtype=bool)
        begins[1:] = ts[1:] > end[:-1] + PAUSE_NS
        ends = np.append(np.flatnonzero(begins)[1:] - 1, len(ts) - 1) if len(ts) else np.zeros(0, dtype=np.int64)
        return cls(ts[begins], end[ends])

    def at_work(self, begin: Int64s, end: Int64s) -> Bools:
        """Return a mask of the periods from ``begin`` to ``end`` that overlap a stretch."""
        before = np.searchsorted(self.ts, end, side="left") - 1
        return (before >= 0) & (self.end[np.maximum(before, 0)] > begin)


def hand_overs(recording: Recording) -> Handovers:
    """Find the points at which the main thread wakes another thread, or resumes after waiting for one."""
    main = Runs.of(recording, MAIN)
    found: list[tuple[Int64s, Int64s, Int64s, Int64s, Int64s]] = []
    if len(main.ts):
        for thread in range(1, recording.threads):
            other = Runs.of(recording, thread)
            if len(other.ts):
                found += [_woken_by_main(main, other, thread), _awaited(main, other, thread)]
    columns = [np.concatenate(parts) for parts in zip(*found, strict=True)] if found else [np.zeros(0, np.int64)] * 5
    return Handovers(*columns)


def _woken_by_main(main: Runs, other: Runs, thread: int) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
    """Return the columns of Handovers where the main thread wakes ``thread``: where ``thread`` resumes after a silence
    during which the main thread worked."""
    since = np.append(np.int64(np.iinfo(np.int64).min // 4), other.end[:-1])
    woken = main.at_work(since, other.ts)
    resumed = other.ts[woken]
    # If the main thread is silent by then, it woke the other thread when its own work ended.
    run = np.searchsorted(main.ts, resumed, side="right") - 1
    caused = np.where(run >= 0, np.minimum(main.end[np.maximum(run, 0)], resumed), resumed)
    count = len(resumed)
    return np.full(count, thread), since[woken], resumed, np.full(count, MAIN), caused


def _awaited(main: Runs, other: Runs, thread: int) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
    """Return the columns of Handovers where the main thread resumes after being silent until the work of ``thread`` was
    done."""
    since, resumed = main.end[:-1], main.ts[1:]
    last = np.searchsorted(other.end, resumed, side="right") - 1
    done = other.end[np.maximum(last, 0)]
    later = other.ts[np.minimum(last + 1, len(other.ts) - 1)]
    silent = (last + 1 >= len(other.ts)) | (later >= resumed)
    waited = (last >= 0) & (done > since) & silent
    count = int(waited.sum())
    return np.full(count, MAIN), since[waited], resumed[waited], np.full(count, thread), done[waited]
