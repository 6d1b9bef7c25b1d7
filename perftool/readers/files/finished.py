"""Which traces of a folder are finished, by looking at it again and again."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True, order=True)
class FileState:
    """What tells a state of a file from every other: when it was changed, in ns since 1970, its path and its bytes.

    The path counts from the folder that is watched, with ``/`` on every system.
    """

    changed_ns: int
    path: str
    bytes: int


class Watched:
    """The files of a folder from look to look; ``done`` are states that were given before."""

    def __init__(self, done: Iterable[FileState] = ()) -> None:
        self._done = set(done)
        self._last: frozenset[FileState] = frozenset()

    def finished(self, found: Collection[FileState]) -> list[FileState]:
        """Those of the files ``found`` now that were the same at the look before, each once; the oldest first.

        A file that changes afterwards is given again, once it is the same twice.
        """
        now = frozenset(found)
        still = (now & self._last) - self._done
        self._last = now
        self._done |= still
        return sorted(still)


def files_below(folder: str, suffixes: tuple[str, ...]) -> list[FileState]:
    """The regular files below ``folder`` whose names end so; nothing where it cannot be looked at just now.

    Empty ones, which somebody is about to fill, and hidden ones, which copying programs make, are not among them.
    """
    return [state for path in _named_so(folder, suffixes) if (state := _state(folder, path))]


def _named_so(folder: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.join(place, name) for name in names if name.endswith(suffixes) and name[0] != ".")


def _state(folder: str, path: str) -> FileState | None:
    try:
        found = os.stat(path)
    except OSError:
        # It was removed since the folder was listed.
        return None
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return None
    return FileState(found.st_mtime_ns, PurePath(os.path.relpath(path, folder)).as_posix(), found.st_size)
