"""Detects finished traces in a folder by polling."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import PurePath

from perftool.readers.files.companions import irregular_text
from perftool.readers.files.walk import links_out, walk


@dataclass(frozen=True, order=True)
class FileState:
    """The state of a file: modification time in ns since 1970, path, and size in bytes.

    The path is relative to the watched folder, with ``/`` on every system.
    """

    changed_ns: int
    path: str
    bytes: int

    def to_json(self) -> dict[str, int | str]:
        """Return the fields as JSON. A path that is not valid UTF-8 is also given in hex, because its escaped form in
        ``path`` may be the literal name of another file."""
        fields: dict[str, int | str] = asdict(self)
        raw = os.fsencode(self.path)
        try:
            raw.decode()
        except UnicodeDecodeError:
            fields["path_hex"] = raw.hex()
        return fields

    @classmethod
    def from_json(cls, found: object) -> FileState | None:
        """Return the state that ``to_json`` describes, or None for anything else."""
        if not isinstance(found, dict):
            return None
        path, changed_ns, size, raw = (found.get(name) for name in ("path", "changed_ns", "bytes", "path_hex"))
        if type(path) is not str or type(changed_ns) is not int or type(size) is not int:
            return None
        if raw is not None:
            try:
                path = os.fsdecode(bytes.fromhex(raw))
            except (TypeError, ValueError):
                return None
        return cls(changed_ns, path, size)


class Watched:
    """Remembers the files of a folder between polls. ``done`` contains the states of files that are already known to be
    finished."""

    def __init__(self, done: Iterable[FileState] = ()) -> None:
        self._done = set(done)
        self._last: frozenset[FileState] = frozenset()

    def finished(self, found: Collection[FileState]) -> list[FileState]:
        """Return the files in ``found`` that have not changed since the last poll, oldest first. A file is returned
        once, and again each time it has been changed and finished.
        """
        now = frozenset(found)
        still = (now & self._last) - self._done
        self._last = now
        self._done |= still
        return sorted(still)


def files_below(folder: str, is_wanted: Callable[[str], bool], unread: list[str]) -> list[FileState]:
    """Return the regular files below ``folder`` whose names are wanted. Folders, links and files that cannot be read at
    the moment get a sentence in ``unread``.

    Empty files, which have not been written yet, and hidden files, which programs create while copying, are skipped.
    """
    return [state for path in _wanted_below(folder, is_wanted, unread) if (state := _state(folder, path, unread))]


def _wanted_below(folder: str, is_wanted: Callable[[str], bool], unread: list[str]) -> Iterator[str]:
    for place, folders, names in walk(folder, unread):
        folders[:] = [name for name in folders if not name.startswith(".")]
        unread += links_out(folder, place, folders)
        yield from (os.path.join(place, name) for name in names if name[0] != "." and is_wanted(name))


def _state(folder: str, path: str, unread: list[str]) -> FileState | None:
    try:
        found = os.stat(path)
    except OSError:
        # Unless this is a broken link, the file was removed after the folder was listed.
        unread += [irregular_text(path)] if os.path.islink(path) else []
        return None
    if not stat.S_ISREG(found.st_mode):
        unread.append(irregular_text(path))
        return None
    if not found.st_size:
        return None
    return FileState(found.st_mtime_ns, PurePath(os.path.relpath(path, folder)).as_posix(), found.st_size)
