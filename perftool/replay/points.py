"""The moments of the host that matter to the rest: where it launches, waits, or hands over to another thread."""

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
    _span: int
    _base: int

    def __len__(self) -> int:
        return len(self.time)

    @classmethod
    def of(cls, moments: Iterable[tuple[Int64s | int, Int64s]]) -> Points:
        """All ``moments``, given as arrays of threads (or one thread) and of times."""
        pairs = [(np.broadcast_to(np.asarray(thread), time.shape), time) for thread, time in moments]
        thread = np.concatenate([pair[0] for pair in pairs])
        time = np.concatenate([pair[1] for pair in pairs])
        base = int(time.min(initial=0))
        span = int(time.max(initial=0)) - base + 2
        keys = np.unique(thread * span + (time - base))
        return cls(keys // span, keys % span + base, span, base)

    def at(self, thread: Int64s | int, time: Int64s) -> Int64s:
        """Index of the moments ``time`` on ``thread``, which must be among them."""
        found = self.last(thread, time)
        assert np.array_equal(self.time[found], time)
        return found

    def last(self, thread: Int64s | int, time: Int64s) -> Int64s:
        """Index of the last moment on ``thread`` at or before ``time``; one of another thread when there is none."""
        keys = np.asarray(thread) * self._span + np.clip(time - self._base, 0, self._span - 1)
        found: Int64s = np.searchsorted(self.thread * self._span + (self.time - self._base), keys, side="right") - 1
        return np.maximum(found, 0)

    @property
    def first_of_thread(self) -> Bools:
        """Which of them have none before them on their thread."""
        first: Bools = np.ones(len(self), dtype=bool)
        first[1:] = self.thread[1:] != self.thread[:-1]
        return first
