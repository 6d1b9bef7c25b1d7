"""Schedules with known answers: a small simulated host and device follow fixed rules that do not depend on the replay.

A launch takes CALL ns on its thread. Its work starts LATENCY ns after the call begins, but not before earlier work on
its stream has ended. A wait returns TAIL ns after all launched work is done and takes at least CALL ns. A copying call
waits in the same way for its own copy. A thread that calls another thread does nothing until that thread is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from perftool.replay.recording import Intervals, Recording, Steps, Tasks

CALL, LATENCY, TAIL = 4_000, 6_000, 3_000


@dataclass(frozen=True)
class Act:
    """What a host thread does next: work for ``ns``, launch (or copy) ``ns`` on a stream, wait, or call the other
    thread.
    """

    kind: Literal["work", "launch", "copy", "wait", "call"]
    ns: int = 0
    stream: int = 0
    acts: tuple[Act, ...] = ()


@dataclass
class Machine:
    """Runs acts and keeps what a profiler would record."""

    now: int = 1_000_000
    free: dict[int, int] = field(default_factory=dict)
    kernels: list[tuple[int, int, int, int, bool]] = field(default_factory=list)
    calls: list[tuple[int, int, int]] = field(default_factory=list)
    waits: list[tuple[int, int, int]] = field(default_factory=list)
    leaves: list[tuple[int, int, int]] = field(default_factory=list)

    def run(self, acts: Sequence[Act], thread: int = 0) -> None:
        for act in acts:
            began = self.now
            if act.kind == "call":
                self.run(act.acts, 1)
                continue
            if act.kind == "work":
                self.now += act.ns
            elif act.kind == "wait":
                self.now = max(began + CALL, max(self.free.values(), default=0) + TAIL)
                self.waits.append((thread, began, self.now))
            else:
                start = max(began + LATENCY, self.free.get(act.stream, 0))
                end = start + act.ns
                self.now = max(began + CALL, end + TAIL) if act.kind == "copy" else began + CALL
                self.free[act.stream] = end
                self.kernels.append((act.stream, start, end, len(self.calls), act.kind == "copy"))
                self.calls.append((thread, began, self.now))
            self.leaves.append((thread, began, self.now))

    @property
    def reach(self) -> int:
        return max(self.now, *self.free.values(), 0)


def step_ns(acts: Sequence[Act]) -> int:
    """Return the time from the start of ``acts``, when the device is idle, until everything is done."""
    machine = Machine()
    begin = machine.now
    machine.run(acts)
    return machine.reach - begin


def period_ns(acts: Sequence[Act], passes: int = 3) -> int:
    """Return the time of each repetition of ``acts`` after the first one."""
    machine, reached = Machine(), 0
    length = 0
    for _ in range(passes):
        machine.run(acts)
        length, reached = machine.reach - reached, machine.reach
    return length


def recording_of(acts: Sequence[Act], repeat: bool = False) -> Recording:
    """Return a profiler's recording of ``acts`` as a single step."""
    machine = Machine()
    begin = machine.now
    machine.run(acts)
    steps = Steps(*(np.array([value]) for value in (begin, machine.reach, begin, machine.now)), repeat=repeat)
    kernels = sorted(enumerate(machine.kernels), key=lambda item: (item[1][1], item[0]))
    lane, ts, end, launch, copy = (np.array([k[part] for _, k in kernels], dtype=np.int64) for part in range(5))
    flags = np.zeros(len(kernels), dtype=bool)
    ids = 1_000 + launch
    return Recording(
        steps=steps,
        threads=2,
        tracks={10: 0, 11: 1},
        tasks=Tasks(
            ids, lane, ts, end, launch if len(launch) else np.array([], np.int64), flags, flags, copy.astype(bool)
        ),
        launches=_intervals(machine.calls),
        waits=_intervals(machine.waits),
        event_waits=_intervals([]),
        leaves=_intervals(machine.leaves),
        computing=_intervals([]),
    )


def _intervals(rows: Sequence[tuple[int, int, int]]) -> Intervals:
    thread, ts, end = (np.array([row[part] for row in rows], dtype=np.int64) for part in range(3))
    return Intervals(np.arange(len(rows)), thread, ts, end)
