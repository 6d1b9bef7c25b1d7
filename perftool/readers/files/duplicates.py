"""Finds duplicate traces of a rank: copies, and older or partial recordings of the same process."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal

from perftool.readers.files.remote import is_url
from perftool.readers.files.stream import reads_once
from perftool.readers.identity import Identity, identify
from perftool.units import NS_PER_S

# Two recordings with the same process ID come from one process only if they start within this time of each other. A
# profiler's schedule repeats within hours, but the system may reuse the process ID later.
_ONE_RUN_NS = 6 * 3600 * NS_PER_S
# A trace smaller than this share of another trace of the same process was cut off. All recordings of a process have the
# same number of steps, unless the program ends during the last recording.
WHOLE_SHARE = 0.75
_BLOCK = 1 << 20
# Each trace is compared with at most this many earlier traces of its process, so that the total time is linear.
_MOST_COMPARED = 64
_Key = tuple[Hashable, ...]


@dataclass(frozen=True)
class SetAside:
    """The trace ``path``, which is not read because the trace ``instead`` replaces it."""

    path: str
    rank: int
    instead: str
    why: Literal["copy", "older recording", "part of a recording"]

    @property
    def is_later(self) -> bool:
        """Whether it is a part that starts later than the trace that replaces it."""
        own, other = identify(self.path).start_ns, identify(self.instead).start_ns
        return self.why == "part of a recording" and own is not None and other is not None and own > other

    def __str__(self) -> str:
        return f"{self.path} (rank {self.rank}) is {_WORDS[self.why]}; {self.instead} was read instead"


_WORDS = {
    "copy": "a copy",
    "older recording": "an older recording of the same process",
    "part of a recording": "only a part of a recording of the same process",
}


def without_duplicates(traces: Sequence[str]) -> tuple[list[str], list[SetAside]]:
    """Remove copies from ``traces``, and keep only the last complete recording of each process.

    Return the remaining traces, and the removed traces with their replacements.
    """
    kept: list[Identity] = []
    place: dict[str, int] = {}
    aside: list[SetAside] = []
    replaced_by: dict[str, str] = {}
    seen: dict[_Key, list[Identity]] = {}
    identities = list(map(identify, traces))
    contents = _Contents(identities)
    for trace, own in zip(traces, identities, strict=True):
        keys = list(_keys(own, contents))
        others = {other.path: other for key in keys for other in seen.get(key, ())[-_MOST_COMPARED:]}
        same = [other for other in others.values() if contents.same(own, other) or _same_process(own, other)]
        first = min(same, key=lambda other: place[other.path], default=None)
        if own.rank is None or first is None:
            place[trace] = len(kept)
            kept.append(own)
            _note_keys(seen, keys, own)
            continue
        if contents.same(own, first) or not _replaces(own, first):
            aside.append(SetAside(trace, own.rank, first.path, _why(contents, own, first)))
            continue
        place[trace] = place[first.path]
        kept[place[trace]] = own
        for key in _keys(first, contents):
            seen[key].remove(first)
        _note_keys(seen, keys, own)
        replaced_by[first.path] = trace
        aside.append(SetAside(first.path, own.rank, trace, _why(contents, first, own)))
    # A trace that replaces others may be replaced later. Going backwards, each replacement is final when it is read.
    for path in reversed(replaced_by):
        replaced_by[path] = replaced_by.get(replaced_by[path], replaced_by[path])
    return [one.path for one in kept], [
        replace(one, instead=replaced_by.get(one.instead, one.instead)) for one in aside
    ]


def _keys(own: Identity, contents: _Contents) -> Iterator[_Key]:
    """Yield the keys of a trace. Duplicates share at least one key."""
    if own.rank is None:
        return
    if (digest := contents.content_digest(own)) is not None:
        yield own.rank, digest
    if own.process is not None and own.start_ns is not None:
        yield own.rank, own.process, own.device, own.world_size


def _note_keys(seen: dict[_Key, list[Identity]], keys: Iterable[_Key], own: Identity) -> None:
    for key in keys:
        seen.setdefault(key, []).append(own)


class _Contents:
    """Compares the contents of files, and reads each file at most once."""

    def __init__(self, traces: Sequence[Identity]) -> None:
        self._sizes: dict[str, int | None] = {}
        self._digests: dict[str, bytes | None] = {}
        self._alike = Counter((own.rank, self._size(own.path)) for own in traces)

    def content_digest(self, own: Identity) -> bytes | None:
        """Return a digest of the contents, or None if no other file of the rank has the same size, or if the file is
        remote or a pipe.
        """
        size = self._size(own.path)
        return None if size is None or self._alike[own.rank, size] < 2 else self._digest(own.path)

    def same(self, own: Identity, other: Identity) -> bool:
        size = self._size(own.path)
        if size is None or size != self._size(other.path):
            return False
        digest = self._digest(own.path)
        return digest is not None and digest == self._digest(other.path)

    def _size(self, path: str) -> int | None:
        if path not in self._sizes:
            plain = not is_url(path) and not reads_once(path) and os.path.exists(path)
            self._sizes[path] = os.path.getsize(path) if plain else None
        return self._sizes[path]

    def _digest(self, path: str) -> bytes | None:
        if path not in self._digests:
            self._digests[path] = _digest_of(path)
        return self._digests[path]


def _digest_of(path: str) -> bytes | None:
    digest = sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError:
        return None
    return digest.digest()


def _replaces(own: Identity, first: Identity) -> bool:
    if _is_part(own, first) or _is_part(first, own):
        return _is_part(first, own)
    return (own.start_ns or 0) > (first.start_ns or 0)


def _why(
    contents: _Contents, own: Identity, kept: Identity
) -> Literal["copy", "older recording", "part of a recording"]:
    if contents.same(own, kept):
        return "copy"
    return "part of a recording" if _is_part(own, kept) else "older recording"


def _is_part(own: Identity, other: Identity) -> bool:
    paths = own.path, other.path
    if not all(map(os.path.isfile, paths)) or os.path.splitext(paths[0])[1] != os.path.splitext(paths[1])[1]:
        return False
    return os.path.getsize(paths[0]) < WHOLE_SHARE * os.path.getsize(paths[1])


def _same_process(own: Identity, other: Identity) -> bool:
    if own.process is None or own.start_ns is None or other.start_ns is None:
        return False
    alike = (own.process, own.device, own.world_size) == (other.process, other.device, other.world_size)
    return alike and 0 < abs(own.start_ns - other.start_ns) < _ONE_RUN_NS
