"""Lists the files below a folder, however deep its folders are nested."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

# Deeper than any plausible folder of runs or rules. The time to walk a path grows with the square of its depth.
DEEPEST = 100


def walk(folder: str | Path, unread: list[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield ``folder`` and each folder below it, with the sorted names of its subfolders and of its other entries.

    Links to folders are listed as subfolders, but are not followed. The caller can remove subfolders to skip them. Add
    a sentence to ``unread`` about each folder that is not read. The function uses a stack, so deep folders cannot
    exceed the recursion limit, as they can in os.walk and Path.rglob of Python 3.10.
    """
    left = [(os.fspath(folder), 0)]
    while left:
        place, depth = left.pop()
        if depth > DEEPEST:
            unread.append(f"{place} is more than {DEEPEST} folders deep, so nothing in it was read")
            continue
        folders: list[str] = []
        others: list[str] = []
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    (folders if _is_folder(entry) else others).append(entry.name)
        except OSError as error:
            unread.append(f"{place} cannot be opened ({error.strerror}), so nothing in it was read")
            continue
        folders.sort()
        yield place, folders, sorted(others)
        below = (os.path.join(place, name) for name in reversed(folders))
        left += [(path, depth + 1) for path in below if not os.path.islink(path)]


def links_out(folder: str | Path, place: str, folders: Iterable[str]) -> Iterator[str]:
    """Yield a sentence about each of the subfolders ``folders`` of ``place`` that is a link out of ``folder``."""
    inside = os.path.realpath(folder)
    for link in filter(os.path.islink, (os.path.join(place, name) for name in folders)):
        if os.path.commonpath((inside, os.path.realpath(link))) != inside:
            yield f"{link} is a link to another folder and was not read (name that folder, too)"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
