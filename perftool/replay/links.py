"""Dependencies of the graph: a source, a target, and the least delay between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from perftool.replay.recording import Bools, Int64s


class Kind(IntEnum):
    """Why one node depends on another."""

    ORIGIN = 0
    """The start of the replay."""
    HOST = 1
    """The thread works between the two points."""
    CALL = 2
    """The thread makes a call that waits; the lag is the least time that the call takes."""
    LAUNCH = 3
    """The host launches the task."""
    STREAM = 4
    """The task follows work on its own lane."""
    ACROSS = 5
    """The task waits for work on another lane, or for earlier work of its launch."""
    DONE = 6
    """The host waits for the task."""
    THREAD = 7
    """A thread waits for another thread."""
    QUEUE = 8
    """A launch waits for space in the queue."""


@dataclass(frozen=True)
class Links:
    """Pairs of nodes: ``target`` starts no earlier than ``lag`` ns after ``source`` ends."""

    source: Int64s
    target: Int64s
    lag: Int64s
    kind: Int64s

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def of(cls, kind: Kind, source: Int64s, target: Int64s, lag: Int64s | int) -> Links:
        """Return links of one ``kind``."""
        count = len(source)
        lags = np.broadcast_to(np.asarray(lag, dtype=np.int64), (count,))
        return cls(source.astype(np.int64), target.astype(np.int64), lags, np.full(count, kind, dtype=np.int64))

    @classmethod
    def together(cls, parts: Sequence[Links]) -> Links:
        """Return all links of ``parts``."""
        return cls(
            np.concatenate([part.source for part in parts]),
            np.concatenate([part.target for part in parts]),
            np.concatenate([part.lag for part in parts]),
            np.concatenate([part.kind for part in parts]),
        )

    def where(self, kept: Bools) -> Links:
        """Return the links that the mask ``kept`` selects."""
        return Links(self.source[kept], self.target[kept], self.lag[kept], self.kind[kept])
