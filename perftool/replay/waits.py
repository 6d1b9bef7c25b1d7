"""Finds the waits of the host: for device work, for another thread, or for space in the launch queue."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perftool.replay.device import last_done
from perftool.replay.limits import FULL_QUEUE, WAKE_NS
from perftool.replay.links import Kind, Links
from perftool.replay.points import Points
from perftool.replay.recording import NONE, Bools, Int64s, Recording
from perftool.replay.threads import Handovers, Runs

# A call that takes more than this many times as long as an undelayed call was delayed.
_HELD_UP = 5
# These percentiles are taken as the time of an undelayed call and as the shortest delay of a return.
_UNDELAYED, _QUICKEST = 25, 2


@dataclass(frozen=True)
class Waits:
    """The waits of the host. ``links`` lead from causes to the ends of waits. For each point at which a wait ends,
    ``least_ns`` is the length of the stretch before it without the waiting; it is NONE for other points.
    ``unexplained`` is a mask of the ends of waits for which the trace shows no reason.
    """

    links: tuple[Links, ...]
    least_ns: Int64s
    unexplained: Bools


def wait_links(recording: Recording, points: Points, handovers: Handovers, first: int) -> Waits:
    """Find all waits of the host. ``first`` is the node of the first task; the nodes of ``points`` begin at 0."""
    least = np.full(len(points), NONE, dtype=np.int64)
    by_calls = _calls_that_wait(recording, points, first, least)
    unexplained = least == WAKE_NS
    links = [
        *by_calls,
        _calls_that_copy(recording, points, first, least),
        _full_queue(recording, points, first, least),
        _other_threads(points, handovers, least),
    ]
    return Waits(tuple(links), least, unexplained)


def _usual_ns(recording: Recording) -> int:
    """Return the length of an undelayed launch in ns."""
    calls = recording.launches
    return int(np.percentile(calls.end - calls.ts, _UNDELAYED, method="lower")) if len(calls) else 0


def _calls_that_wait(recording: Recording, points: Points, first: int, least: Int64s) -> list[Links]:
    """Build links to the ends of calls that wait, from the work that ended during each call. Set ``least`` at these
    ends."""
    waits, tasks = recording.waits, recording.tasks
    if not len(waits):
        return []
    target = points.at(waits.thread, waits.end)
    # If a call contains other calls that launch or wait, it begins to wait only after the last of them.
    begun = np.clip(points.time[np.maximum(target - 1, 0)], waits.ts, waits.end)
    released = np.full(len(waits), np.iinfo(np.int64).min, dtype=np.int64)
    causes = []
    for lane in np.unique(tasks.lane).tolist():
        cause = last_done(tasks, np.full(len(waits), lane), waits.end)
        ended = np.where(cause != NONE, tasks.end[cause], released) if len(tasks) else released
        causes.append((cause, ended > begun))
        released = np.maximum(released, ended)
    other, silent_since = _thread_that_ended(recording, waits.thread, begun, waits.end)
    by_thread = silent_since > np.maximum(released, begun)
    waited = (released > begun) | by_thread
    lasted = waits.end - begun
    tail = _tails(recording, waits.end - np.maximum(released, silent_since), lasted, waited)
    least[target[waited]] = np.minimum(np.minimum(lasted, _usual_ns(recording)), WAKE_NS - 1)[waited]
    least[target[~waited & (lasted > WAKE_NS)]] = WAKE_NS
    at = np.flatnonzero(by_thread)
    links = [Links.of(Kind.THREAD, points.at(other[at], silent_since[at]), target[at], tail[at])]
    for cause, inside in causes:
        at = np.flatnonzero(inside & waited)
        links.append(Links.of(Kind.DONE, first + cause[at], target[at], tail[at]))
    return links


def _tails(recording: Recording, observed: Int64s, lasted: Int64s, waited: Bools) -> Int64s:
    """Return the delays from causes to the ends of waits. They are shortened for calls of typical length, because these
    may have started after the work ended."""
    tail = np.minimum(observed, WAKE_NS)
    is_wait = waited & (lasted > _usual_ns(recording))
    quickest = int(np.percentile(tail[is_wait], _QUICKEST, method="lower")) if is_wait.any() else 0
    return np.where(is_wait, tail, np.minimum(tail, quickest))


def _thread_that_ended(recording: Recording, thread: Int64s, begun: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Return, for each wait, the other thread that was the last to stop working during the wait and then stayed silent
    until the wait ended, and the time when it stopped (the smallest integer if there is no such thread)."""
    other = np.zeros(len(begun), dtype=np.int64)
    ended = np.full(len(begun), np.iinfo(np.int64).min, dtype=np.int64)
    for number in range(recording.threads):
        runs = Runs.of(recording, number)
        if not len(runs.end):
            continue
        at = np.searchsorted(runs.end, end, side="right") - 1
        last = np.where(at >= 0, runs.end[np.maximum(at, 0)], np.iinfo(np.int64).min)
        good = (number != thread) & (last > begun) & ~runs.at_work(last, end) & (last > ended)
        other[good], ended[good] = number, last[good]
    return other, ended


def _calls_that_copy(recording: Recording, points: Points, first: int, least: Int64s) -> Links:
    """Build links from copies to the ends of the calls that submit them and wait for them. Set ``least`` at these
    ends."""
    tasks, calls = recording.tasks, recording.launches
    copies = np.flatnonzero(tasks.copy & (tasks.launch != NONE))
    call = tasks.launch[copies]
    inside = (tasks.end[copies] <= calls.end[call]) & (tasks.end[copies] > calls.ts[call])
    copies, call = copies[inside], call[inside]
    target = points.at(calls.thread[call], calls.end[call])
    free = least[target] == NONE
    copies, call, target = copies[free], call[free], target[free]
    least[target] = np.minimum(calls.end[call] - calls.ts[call], _usual_ns(recording))
    return Links.of(Kind.DONE, first + copies, target, calls.end[call] - tasks.end[copies])


def _full_queue(recording: Recording, points: Points, first: int, least: Int64s) -> Links:
    """Build links from work that made space in the queue to the ends of launches that waited for it. Set ``least`` at
    these ends."""
    tasks, calls = recording.tasks, recording.launches
    usual = _usual_ns(recording)
    order = np.argsort(calls.ts, kind="stable")
    launched = np.sort(np.concatenate([calls.ts[tasks.launch[tasks.launch != NONE]], _queued_since(recording)]))
    ends = np.sort(tasks.end)
    by_end = np.argsort(tasks.end, kind="stable")
    outstanding = np.searchsorted(launched, calls.ts[order]) - np.searchsorted(ends, calls.end[order], side="right")
    delayed = (calls.end - calls.ts)[order] > _HELD_UP * usual
    full = order[delayed & (outstanding >= FULL_QUEUE)]
    target = points.at(calls.thread[full], calls.end[full])
    at = np.searchsorted(ends, calls.end[full], side="right") - 1
    good = (at >= 0) & (least[target] == NONE)
    full, target, cause = full[good], target[good], by_end[np.maximum(at[good], 0)]
    least[target] = usual
    return Links.of(Kind.QUEUE, first + cause, target, np.minimum(calls.end[full] - tasks.end[cause], WAKE_NS))


def _queued_since(recording: Recording) -> Int64s:
    """Return an assumed submission time, just before the window, for each task that was queued when the window
    began.
    """
    return np.full(int(recording.tasks.queued.sum()), recording.begin - 1, dtype=np.int64)


def _other_threads(points: Points, handovers: Handovers, least: Int64s) -> Links:
    """Build links from a point on one thread to the point at which another thread resumes. Set ``least`` there."""
    target = points.at(handovers.to, handovers.resumed)
    least[target] = 0
    return Links.of(
        Kind.THREAD, points.at(handovers.cause, handovers.caused), target, handovers.resumed - handovers.caused
    )
