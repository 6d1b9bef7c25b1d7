"""Samples what the worker processes of data loaders do. A trace only shows how long the program waits for them."""

from __future__ import annotations

import json
import mmap
import signal
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from time import sleep
from types import CodeType, FrameType
from typing import Any, NamedTuple

from torch.utils.data._utils import fetch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from perftool.integrations.call_lines import is_users, relative_path

# CPU time, in s.
_INTERVAL_S = 0.005
# A worker shows its counts after this many samples of fetches.
_SHOWN_AFTER = 5
# Later workers overwrite the counts of the first ones.
_MOST_WORKERS, _BYTES = 64, 1 << 14
# Length and checksum of a worker's counts.
_HEAD = struct.Struct("<II")
_MOST_CALLS, _MOST_SHOWN, _LONGEST = 2_000, 50, 200
_DEEPEST = 200
_STARTS: CodeType = _MultiProcessingDataLoaderIter.__init__.__code__
_FETCHES: set[CodeType] = {kind.fetch.__code__ for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher)}


class Call(NamedTuple):
    """The innermost of the user's own lines during a fetch, and the function that ran inside it. ``file`` is empty if
    no line was the user's, and ``inside`` if the line called no Python function."""

    file: str
    line: int
    function: str
    inside: str


class LoaderWorkers:
    """Adds up the samples of the workers that start before ``end``. Call ``before_fork`` and ``forked`` around each
    fork, and ``begin`` when the recording begins."""

    def __init__(self) -> None:
        # Memory that this process shares with its workers: a flag that tells them to stop, and counts from each worker.
        self._shared: mmap.mmap | None = None
        self._started = 0
        # The loader of each worker.
        self._loaders: dict[int, int] = {}
        # How many samples each loader had when the recording began.
        self._before: dict[int, int] = {}
        self._ended = False

    def before_fork(self) -> None:
        loader = None if self._ended else _starting_loader()
        if loader is None:
            return
        with suppress(OSError, ValueError):
            if self._shared is None:
                self._shared = mmap.mmap(-1, mmap.PAGESIZE + _MOST_WORKERS * _BYTES)
            self._loaders[self._started % _MOST_WORKERS] = id(loader)
            self._started += 1

    def forked(self) -> None:
        """Sample this process if it is a worker."""
        shared, place = self._shared, _place((self._started - 1) % _MOST_WORKERS)
        is_worker = shared is not None and not self._ended and _starting_loader() is not None
        # Workers of a worker are not sampled.
        ended = self._ended or is_worker
        self.__init__()  # type: ignore[misc]
        self._ended = ended
        if is_worker and shared is not None:
            # A process without a signal for this, and threads other than the main one, are not sampled.
            with suppress(ValueError, OSError, AttributeError):
                _sample(shared, place)

    def begin(self) -> None:
        self._before = {loader: calls.total() for loader, calls in self._calls().items()}

    def end(self) -> None:
        """Let the workers stop sampling."""
        self._ended = True
        if self._shared is not None:
            self._shared[0] = 1

    def found(self) -> list[dict[str, Any]]:
        """The calls in which the workers spend most of their time, and the number of samples in each.

        A trace does not show which loader the program waits for, so the result is empty if workers of several loaders
        fetched while it was recorded.
        """
        every = self._calls()
        working = [loader for loader, calls in every.items() if calls.total() > self._before.get(loader, 0)]
        if len(working or every) != 1:
            return []
        calls = every[(working or [*every])[0]]
        fetching = calls.total()
        return [
            {**call._asdict(), "samples": samples, "fetching": fetching}
            for call, samples in calls.most_common(_MOST_SHOWN)
        ]

    def _calls(self) -> dict[int, Counter[Call]]:
        """What the workers of each loader have done."""
        found: dict[int, Counter[Call]] = {}
        for number, loader in self._loaders.items():
            for *call, samples in _shown(self._shared, _place(number)) if self._shared is not None else ():
                found.setdefault(loader, Counter())[Call(*call)] += samples
        return found


def _place(worker: int) -> int:
    return mmap.PAGESIZE + worker * _BYTES


def _starting_loader() -> Any:
    """Return the data loader that is starting a worker, or None."""
    frames = (frame for frame in _outwards(sys._getframe()) if frame.f_code is _STARTS)
    return next((frame.f_locals.get("loader") for frame in frames), None)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield ``frame`` and its callers."""
    for _ in range(_DEEPEST):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _sample(shared: mmap.mmap, place: int) -> None:
    """Count what this process does until the recording ends, and show the counts in ``shared``.

    A signal interrupts the main thread wherever it is. A thread of ours would get to run mostly where the program
    gives up Python's lock, so the samples would show only such calls.
    """
    calls: Counter[Call] = Counter()

    def tick(_: int, frame: FrameType | None) -> None:
        # The program must not get our errors.
        with suppress(Exception):
            if shared[0]:
                # Without a handler, a signal that is on its way would end the process.
                signal.setitimer(signal.ITIMER_PROF, 0)
                return
            call = _call_of(frame)
            if call is not None and (call in calls or len(calls) < _MOST_CALLS):
                calls[call] += 1
                if calls.total() % _SHOWN_AFTER == 0:
                    _show(calls, shared, place)

    if signal.getsignal(signal.SIGPROF) is signal.SIG_DFL and not any(signal.getitimer(signal.ITIMER_PROF)):
        signal.signal(signal.SIGPROF, tick)
        # Libraries in C may not expect that a system call is interrupted.
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, _INTERVAL_S, _INTERVAL_S)


def _call_of(frame: FrameType | None) -> Call | None:
    """What a program does whose innermost frame is ``frame``. None if it does not fetch a batch."""
    frames = list(_outwards(frame))
    fetches = next((at for at, one in enumerate(frames) if one.f_code in _FETCHES), None)
    if not fetches:
        return None
    inner = frames[0].f_code
    inside = f"{inner.co_name} ({_relative(inner.co_filename)})"[:_LONGEST]
    for at, one in enumerate(frames[:fetches]):
        file = _relative(one.f_code.co_filename)
        if _is_users(file):
            return Call(file[:_LONGEST], one.f_lineno or 0, one.f_code.co_name[:_LONGEST], inside if at else "")
    return Call("", 0, "", inside)


# Finding out whether a file belongs to a package reads the disk.
_relative, _is_users = cache(relative_path), cache(is_users)


def _show(calls: Counter[Call], shared: mmap.mmap, place: int) -> None:
    """Write the most frequent of ``calls`` to ``shared``, where another process may read it at any time."""
    for most in (_MOST_SHOWN, _MOST_SHOWN // 4):
        text = zlib.compress(json.dumps([[*call, samples] for call, samples in calls.most_common(most)]).encode(), 1)
        if len(text) <= _BYTES - _HEAD.size:
            end = place + _HEAD.size + len(text)
            shared[place + _HEAD.size : end] = text
            shared[place : place + _HEAD.size] = _HEAD.pack(len(text), zlib.crc32(text))
            return


def _shown(shared: mmap.mmap, place: int) -> Iterable[list[Any]]:
    """What a worker wrote to ``shared``. Nothing if it did not finish writing."""
    for _ in range(5):
        length, checksum = _HEAD.unpack_from(shared, place)
        text = shared[place + _HEAD.size : place + _HEAD.size + min(length, _BYTES)]
        if length and zlib.crc32(text) == checksum:
            return json.loads(zlib.decompress(text))  # type: ignore[no-any-return]
        sleep(_INTERVAL_S / 10)
    return []
