"""Finds the paths that match a pattern with ``*`` or ``**``, in time linear in the number of folders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from fnmatch import filter as names_like
from pathlib import Path

from perftool.readers.files.stream import as_file

_MARKS = set("*?[")
_Seen = set[tuple[int, int]]


def is_pattern(path: str) -> bool:
    """Whether ``path`` contains a wildcard."""
    return bool(_MARKS & set(path))


class OutsideFolderError(Exception):
    """A pattern leads outside the folder that it may select from."""


def matches(pattern: str, within: Path | None = None) -> list[str]:
    """Return the files and folders that match ``pattern``, sorted. Hidden files and folders match only if their part of
    the pattern begins with a dot.

    ``**`` follows no links, and no part of the pattern visits a folder twice, so circular links and repeated ``**``
    take little time. Raise OutsideFolderError before listing a folder that is not below ``within``, which must be a
    path without links.
    """
    whole = Path(pattern)
    places = [Path(whole.anchor)]
    for part in whole.parts[1 if whole.anchor else 0 :]:
        places = _folders_below(places, within) if part == "**" else list(_children(places, part, within))
    if whole.name == "**":
        places += _children(places, "*", within)
    return sorted({as_file(str(place)) for place in places} - {"."})


def _children(places: Iterable[Path], part: str, within: Path | None) -> Iterator[Path]:
    seen: _Seen = set()
    for place in places:
        if not is_pattern(part):
            found = [place / part]
        elif _is_first(place, seen):
            names = [name for name in _names(place, within) if part.startswith(".") or not name.startswith(".")]
            found = [place / name for name in names_like(names, part)]
        else:
            continue
        # Folders come before links, so that a folder is visited under its own name rather than that of a link.
        yield from sorted(filter(os.path.lexists, found), key=os.path.islink)


def _folders_below(places: Iterable[Path], within: Path | None) -> list[Path]:
    """Return the folders ``places`` and all folders below them."""
    seen: _Seen = set()
    found, left = [], list(places)[::-1]
    while left:
        place = left.pop()
        if os.path.isdir(place) and _is_first(place, seen):
            found.append(place)
            below = (place / name for name in _names(place, within) if not name.startswith("."))
            left += [one for one in below if not os.path.islink(one)]
    return found


def _is_first(place: Path, seen: _Seen) -> bool:
    """Add ``place`` to ``seen``. Return whether it exists and was not in ``seen`` before."""
    try:
        known = place.stat()
    except OSError:
        return False
    identity = known.st_dev, known.st_ino
    new = identity not in seen
    seen.add(identity)
    return new


def _names(place: Path, within: Path | None) -> list[str]:
    if within is not None and not Path(os.path.realpath(place)).is_relative_to(within):
        raise OutsideFolderError
    try:
        return os.listdir(place)
    except OSError:
        return []
