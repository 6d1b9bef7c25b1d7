"""The relevant times of the host: where it launches, waits, or wakes another thread."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from perftool.replay.recording import Bools, Int64s


@dataclass(frozen=True)
class Points:
    """Moments on host threads, each once, in order of thread and time (ns)."""

    thread: Int64s
    time: Int64s
    _times: Int64s
    _keys: Int64s

    def __len__(self) -> int:
        return len(self.time)

    @classmethod
    def of(cls, moments: Iterable[tuple[Int64s | int, Int64s]]) -> Points:
        """All ``moments``, given as arrays of threads (or one thread) and of times."""
        pairs = [(np.broadcast_to(np.asarray(thread), time.shape), time) for thread, time in moments]
        thread = np.concatenate([pair[0] for pair in pairs])
        time = np.concatenate([pair[1] for pair in pairs])
        # Keys contain positions instead of ns, which could overflow with a clock that jumps by years.
        times = np.unique(time)
        keys = np.unique(thread * (len(times) + 1) + np.searchsorted(times, time))
        return cls(keys // (len(times) + 1), times[keys % (len(times) + 1)], times, keys)

    def at(self, thread: Int64s | int, time: Int64s) -> Int64s:
        """Index of the moments ``time`` on ``thread``, all of which must exist."""
        found = self.last(thread, time)
        assert np.array_equal(self.time[found], time)
        return found

    def last(self, thread: Int64s | int, time: Int64s) -> Int64s:
        """Index of the last moment on ``thread`` at or before ``time``; if there is none, the result is of another
        thread."""
        later = np.asarray(thread) * (len(self._times) + 1) + np.searchsorted(self._times, time, side="right")
        found: Int64s = np.searchsorted(self._keys, later) - 1
        return np.maximum(found, 0)

    @property
    def first_of_thread(self) -> Bools:
        """Mask of the first moment of each thread."""
        first: Bools = np.ones(len(self), dtype=bool)
        first[1:] = self.thread[1:] != self.thread[:-1]
        return first
