"""Samples what the worker processes of data loaders do. A trace only shows how long the program waits for them."""

from __future__ import annotations

import json
import mmap
import struct
import sys
import time
import zlib
from _thread import get_ident
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

from torch.utils.data._utils import fetch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from perftool.integrations.call_lines import is_users, relative_path
from perftool.integrations.own_threads import start_thread

_INTERVAL_S = 0.01
# A worker shows its counts after this many samples.
_SHOWN_AFTER = 10
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
    """Adds up the samples of all workers that start before ``end``. Call ``before_fork`` and ``forked`` around each
    fork."""

    def __init__(self) -> None:
        # Memory that this process shares with its workers: a flag that tells them to stop, and counts from each worker.
        self._shared: mmap.mmap | None = None
        self._started = 0
        self._ended = False

    def before_fork(self) -> None:
        if self._ended or not _starts_worker():
            return
        with suppress(OSError, ValueError):
            if self._shared is None:
                self._shared = mmap.mmap(-1, mmap.PAGESIZE + _MOST_WORKERS * _BYTES)
            self._started += 1

    def forked(self) -> None:
        """Sample this process if it is a worker."""
        shared, place = self._shared, mmap.PAGESIZE + (self._started - 1) % _MOST_WORKERS * _BYTES
        starts = shared is not None and not self._ended and _starts_worker()
        self.__init__()  # type: ignore[misc]
        if starts and shared is not None:
            thread = get_ident()
            # The system may refuse a thread.
            with suppress(RuntimeError):
                start_thread(lambda: _sample(shared, place, thread))

    def end(self) -> None:
        """Let the workers stop sampling."""
        self._ended = True
        if self._shared is not None:
            self._shared[0] = 1

    def found(self) -> list[dict[str, Any]]:
        """The calls in which the workers spend most of their time, and the number of samples in each."""
        if self._shared is None:
            return []
        calls: Counter[Call] = Counter()
        for number in range(min(self._started, _MOST_WORKERS)):
            for *call, samples in _shown(self._shared, mmap.PAGESIZE + number * _BYTES):
                calls[Call(*call)] += samples
        fetching = calls.total()
        return [
            {**call._asdict(), "samples": samples, "fetching": fetching}
            for call, samples in calls.most_common(_MOST_SHOWN)
        ]


def _starts_worker() -> bool:
    """Whether a data loader is starting a worker."""
    return any(frame.f_code is _STARTS for frame in _outwards(sys._getframe()))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield ``frame`` and its callers."""
    for _ in range(_DEEPEST):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _sample(shared: mmap.mmap, place: int, thread: int) -> None:
    """Count what ``thread`` does until the recording ends, and show the counts in ``shared``."""
    calls: Counter[Call] = Counter()
    with suppress(Exception):
        for number in range(1, sys.maxsize):
            time.sleep(_INTERVAL_S)
            if shared[0]:
                return
            call = _call_of(sys._current_frames().get(thread))
            if call is not None and (call in calls or len(calls) < _MOST_CALLS):
                calls[call] += 1
            if calls and number % _SHOWN_AFTER == 0:
                _show(calls, shared, place)


def _call_of(frame: FrameType | None) -> Call | None:
    """What a thread does whose innermost frame is ``frame``. None if it does not fetch a batch."""
    frames = list(_outwards(frame))
    fetches = next((at for at, one in enumerate(frames) if one.f_code in _FETCHES), None)
    if frame is None or fetches is None:
        return None
    inner = frame.f_code
    inside = f"{inner.co_name} ({_relative(inner.co_filename)})"[:_LONGEST]
    for one in frames[:fetches]:
        code, file = one.f_code, _relative(one.f_code.co_filename)
        if _is_users(file):
            return Call(file[:_LONGEST], one.f_lineno or 0, code.co_name[:_LONGEST], "" if one is frame else inside)
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
        time.sleep(_INTERVAL_S / 10)
    return []
