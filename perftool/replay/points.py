"""The points in time at which the host launches work, waits, or wakes another thread."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from perftool.replay.recording import Bools, Int64s


@dataclass(frozen=True)
class Points:
    """Unique moments on host threads, sorted by thread and time (ns)."""

    thread: Int64s
    time: Int64s
    _times: Int64s
    _keys: Int64s

    def __len__(self) -> int:
        return len(self.time)

    @classmethod
    def of(cls, moments: Iterable[tuple[Int64s | int, Int64s]]) -> Points:
        """Collect ``moments``: pairs of an array of threads (or a single thread) and an array of times."""
        pairs = [(np.broadcast_to(np.asarray(thread), time.shape), time) for thread, time in moments]
        thread = np.concatenate([pair[0] for pair in pairs])
        time = np.concatenate([pair[1] for pair in pairs])
        # Build the keys from positions, not from times in ns: those would overflow if a clock jumped by years.
        times = np.unique(time)
        keys = np.unique(thread * (len(times) + 1) + np.searchsorted(times, time))
        return cls(keys // (len(times) + 1), times[keys % (len(times) + 1)], times, keys)

    def at(self, thread: Int64s | int, time: Int64s) -> Int64s:
        """Return the indices of the moments ``time`` on ``thread``, all of which must exist."""
        found = self.last(thread, time)
        assert np.array_equal(self.time[found], time)
        return found

    def last(self, thread: Int64s | int, time: Int64s) -> Int64s:
        """Return the index of the last moment on ``thread`` at or before ``time``. If there is none, the result belongs
        to another thread."""
        later = np.asarray(thread) * (len(self._times) + 1) + np.searchsorted(self._times, time, side="right")
        found: Int64s = np.searchsorted(self._keys, later) - 1
        return np.maximum(found, 0)

    @property
    def first_of_thread(self) -> Bools:
        """A mask of the first moment of each thread."""
        first: Bools = np.ones(len(self), dtype=bool)
        first[1:] = self.thread[1:] != self.thread[:-1]
        return first
