"""Finds what each unit of device work depends on: its launch, earlier work on its stream, or work on other streams."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perftool.replay.limits import ACROSS_NS, LAUNCH_NS, NEAR_NS
from perftool.replay.links import Kind, Links
from perftool.replay.recording import NONE, Bools, Int64s, Intervals, Recording, Tasks

# The percentile of the observed delays that counts as the shortest delay.
_QUICKEST = 2


@dataclass(frozen=True)
class Anchors:
    """When each task may start: ``lag`` ns after ``time`` on ``thread``. ``thread`` is NONE for tasks that were queued
    before the window, and for tasks without a known launch that follow other work."""

    thread: Int64s
    time: Int64s
    lag: Int64s


@dataclass(frozen=True)
class Order:
    """The predecessor of each task on its lane (NONE for the first), and whether the task follows it directly.

    ``done_before``: for a task that starts before its predecessor ends, the last task on the lane that ends before it
    starts; otherwise NONE. ``quickest_ns``: approximately the shortest time between consecutive tasks.
    """

    before: Int64s
    follows: Bools
    done_before: Int64s
    quickest_ns: int


def lane_order(recording: Recording) -> Order:
    """Determine the order of tasks on their lanes. A task that starts soon after both its launch and other work follows
    the other work only if that explains its start better."""
    tasks, count = recording.tasks, len(recording.tasks)
    by_lane = np.lexsort((np.arange(count), tasks.lane))
    before = np.full(count, NONE, dtype=np.int64)
    same = tasks.lane[by_lane][1:] == tasks.lane[by_lane][:-1]
    before[by_lane[1:][same]] = by_lane[:-1][same]
    done = last_done(tasks, tasks.lane, tasks.ts)
    # A task of zero length would be its own predecessor.
    done = np.where(done == np.arange(count), before, done)
    gap = tasks.ts - tasks.end[before]
    overlaps = (before != NONE) & (gap < 0)
    gap = np.where(overlaps & (done != NONE), tasks.ts - tasks.end[done], gap)
    near = (before != NONE) & (gap <= NEAR_NS)
    since_launch = _since_launch(recording)
    # If a task was launched long before it starts, the gap before it shows the delay between consecutive tasks.
    close = gap[near & (gap >= 0) & (since_launch > NEAR_NS)]
    quickest = int(np.percentile(close, _QUICKEST, method="lower")) if len(close) else 0
    follows = near & (gap - quickest <= since_launch)
    return Order(before, follows, np.where(overlaps, done, NONE), quickest)


def _since_launch(recording: Recording) -> Int64s:
    """Return how long after its launch each task started, beyond the shortest such delay, in ns, or the largest integer
    if the launch is unknown."""
    tasks, calls = recording.tasks, recording.launches
    late = np.full(len(tasks), np.iinfo(np.int64).max)
    known = np.flatnonzero(tasks.launch != NONE)
    late[known] = tasks.ts[known] - calls.ts[tasks.launch[known]] - quickest_launch_ns(recording)
    return late


def last_done(tasks: Tasks, lane: Int64s, time: Int64s) -> Int64s:
    """Return the last task on each ``lane`` to end by ``time``, or NONE if there is none."""
    if not len(tasks):
        return np.full(len(time), NONE, dtype=np.int64)
    # Build the keys from positions, not from times in ns: those would overflow if a clock jumped by years.
    lanes, ends = np.unique(tasks.lane), np.unique(tasks.end)
    keys = np.searchsorted(lanes, tasks.lane) * (len(ends) + 1) + np.searchsorted(ends, tasks.end)
    order = np.argsort(keys, kind="stable")
    later = np.searchsorted(lanes, lane) * (len(ends) + 1) + np.searchsorted(ends, time, side="right")
    at = np.searchsorted(keys[order], later) - 1
    found = order[np.maximum(at, 0)]
    return np.where((at >= 0) & (tasks.lane[found] == lane), found, NONE)


def quickest_launch_ns(recording: Recording) -> int:
    """Return approximately the shortest time from the start of a launch to the start of its work, in ns."""
    tasks = recording.tasks
    launched = tasks.launch != NONE
    lags = tasks.ts[launched] - recording.launches.ts[tasks.launch[launched]]
    return max(0, int(np.percentile(lags, _QUICKEST, method="lower"))) if len(lags) else 0


def anchors(recording: Recording, order: Order) -> Anchors:
    """Determine when each task was submitted: at its launch or, if that was not recorded, just before its start. A task
    without a known launch that follows other work needs no submission."""
    tasks, calls = recording.tasks, recording.launches
    quickest = quickest_launch_ns(recording)
    known = tasks.launch != NONE
    call = np.where(known, tasks.launch, len(calls))
    begin, end = np.append(calls.ts, 0)[call], np.append(calls.end, 0)[call]
    lag, length = tasks.ts - begin, end - begin
    late = known & (lag > length)
    time = np.where(late, end, begin)
    lag = np.where(late, np.minimum(lag - length, LAUNCH_NS), np.maximum(lag, -LAUNCH_NS))
    least = np.where(late, np.maximum(0, quickest - length), quickest)
    lag = np.where(order.follows, np.minimum(lag, least), lag)
    thread = np.append(calls.thread, NONE)[call]
    unseen = ~known & ~tasks.queued & ~order.follows
    return Anchors(
        np.where(unseen, 0, thread),
        np.where(unseen, _before_waits(recording, tasks.ts - quickest), time),
        np.where(unseen, quickest, lag),
    )


def _before_waits(recording: Recording, time: Int64s) -> Int64s:
    """Move each ``time`` inside a wait of the main thread to the start of the wait, and clip it to the window."""
    mine = np.flatnonzero(recording.waits.thread == 0)
    if len(mine):
        ts, end = recording.waits.ts[mine], recording.waits.end[mine]
        at = np.searchsorted(ts, time, side="right") - 1
        inside = (at >= 0) & (end[np.maximum(at, 0)] > time)
        time = np.where(inside, ts[np.maximum(at, 0)], time)
    return np.clip(time, recording.begin, recording.steps.host_end[-1])


def stream_links(tasks: Tasks, order: Order, first: int) -> list[Links]:
    """Build the links to each task from earlier tasks on its lane. ``first`` is the node of the first task."""
    found = []
    for before in (order.before, order.done_before):
        has = np.flatnonzero(before != NONE)
        gap = tasks.ts[has] - tasks.end[before[has]]
        lag = np.where((gap < 0) | order.follows[has], np.minimum(gap, NEAR_NS), np.minimum(gap, order.quickest_ns))
        found.append(Links.of(Kind.STREAM, first + before[has], first + has, lag))
    return found


def across_links(recording: Recording, order: Order, submitted: Anchors, first: int) -> list[Links]:
    """Build the links to tasks that wait for another stream: collectives, tasks that the host made wait, and tasks
    whose start nothing else explains.
    """
    tasks = recording.tasks
    waiting = _cross_stream_waits(recording)
    waiters, cause = _pairs(tasks, recording.launches, waiting)
    gap = tasks.ts[waiters] - tasks.end[cause]
    links = [Links.of(Kind.ACROSS, first + cause, first + waiters, np.where(gap <= ACROSS_NS, gap, 0))]
    explained = order.follows | ((submitted.thread != NONE) & (tasks.ts - submitted.time - submitted.lag <= NEAR_NS))
    explained[waiters[gap <= ACROSS_NS]] = True
    open_ones = np.flatnonzero(~explained)
    return [*links, _after_last_finished(tasks, open_ones, first)]


def _cross_stream_waits(recording: Recording) -> Int64s:
    """Return the collectives with a known launch, and the first task that a thread launches after each call that makes
    a stream wait (cudaStreamWaitEvent and the like)."""
    tasks, calls = recording.tasks, recording.launches
    launched = np.flatnonzero(tasks.launch != NONE)
    wanted: list[Int64s] = [np.flatnonzero(tasks.collective & (tasks.launch != NONE))]
    for thread in np.unique(recording.event_waits.thread).tolist():
        mine = launched[calls.thread[tasks.launch[launched]] == thread]
        mine = mine[np.argsort(calls.ts[tasks.launch[mine]], kind="stable")]
        times = recording.event_waits.end[recording.event_waits.thread == thread]
        after = np.searchsorted(calls.ts[tasks.launch[mine]], times)
        wanted.append(mine[after[after < len(mine)]])
    return np.unique(np.concatenate(wanted))


def _pairs(tasks: Tasks, calls: Intervals, waiting: Int64s) -> tuple[Int64s, Int64s]:
    """Pair each task in ``waiting`` with the last task to end before it on every other lane, provided that the other
    task was submitted earlier.
    """
    waiters, causes = [waiting[:0]], [waiting[:0]]
    submitted = np.full(len(tasks), np.iinfo(np.int64).min)
    known = tasks.launch != NONE
    submitted[known] = calls.ts[tasks.launch[known]]
    for lane in np.unique(tasks.lane).tolist():
        others = waiting[tasks.lane[waiting] != lane]
        cause = last_done(tasks, np.full(len(others), lane), tasks.ts[others])
        good = cause != NONE
        good[good] &= submitted[cause[good]] < submitted[others[good]]
        waiters.append(others[good])
        causes.append(cause[good])
    return np.concatenate(waiters), np.concatenate(causes)


def _after_last_finished(tasks: Tasks, late: Int64s, first: int) -> Links:
    """Build links to the tasks ``late``, whose late start has no other explanation, from the work that ended just
    before or, failing that, from earlier work of the same launch."""
    by_end = np.argsort(tasks.end, kind="stable")
    ends = tasks.end[by_end]
    at = np.searchsorted(ends, tasks.ts[late], side="right") - 1
    cause = by_end[np.maximum(at, 0)]
    gap = tasks.ts[late] - tasks.end[cause]
    good = (at >= 0) & (gap <= ACROSS_NS) & (cause != late)
    inner = _same_launch(tasks, late)
    use_inner = ~good & (inner != NONE)
    cause = np.where(use_inner, inner, cause)
    gap = np.where(use_inner, tasks.ts[late] - tasks.end[cause], gap)
    good |= use_inner
    return Links.of(Kind.ACROSS, first + cause[good], first + late[good], gap[good])


def _same_launch(tasks: Tasks, late: Int64s) -> Int64s:
    """Return, for each task in ``late``, the last task of the same launch (for example, of a graph) to end before it
    starts, or NONE if there is none."""
    found = np.full(len(late), NONE, dtype=np.int64)
    together = {call: np.flatnonzero(tasks.launch == call) for call in set(tasks.launch[late].tolist()) - {NONE}}
    for number, (task, call) in enumerate(zip(late.tolist(), tasks.launch[late].tolist(), strict=True)):
        if call in together:
            done = together[call][tasks.end[together[call]] <= tasks.ts[task]]
            done = done[done != task]
            if len(done):
                found[number] = done[np.argmax(tasks.end[done])]
    return found
