"""Paths on the command line into the files to read: files, folders, globs, stdin."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path

from perftool.errors import InputError
from perftool.readers.stream import STDIN

TRACE_SUFFIXES = (".json", ".json.gz", ".json.zst")
_GLOB = set("*?[")


def find_traces(paths: Sequence[str], exclude: Iterable[str] = ()) -> list[str]:
    """The trace files meant by ``paths``, each once, in the order given; folders and globs sorted.

    Raises InputError for a path that does not exist, a folder without traces and a pattern without matches.
    """
    found: dict[str, None] = {}
    for path in paths:
        for file in _expand(path):
            if not any(fnmatch(file, pattern) for pattern in exclude):
                found[file] = None
    if list(found).count(STDIN) and len(found) > 1 and paths.count(STDIN) > 1:
        raise InputError("'-' can be given only once")
    if not found:
        raise InputError("no input is left after --exclude")
    return list(found)


def _expand(path: str) -> list[str]:
    if path == STDIN:
        return [path]
    place = Path(path)
    if place.is_dir():
        files = sorted(str(file) for file in place.rglob("*") if file.name.endswith(TRACE_SUFFIXES))
        if not files:
            raise InputError(f"{path}: the folder holds no traces ({', '.join(TRACE_SUFFIXES)})")
        return files
    if place.exists() or not _GLOB & set(path):
        if not place.exists():
            raise InputError(f"{path}: no such file")
        return [path]
    matches = sorted(match for match in glob.glob(path, recursive=True) if Path(match).is_file())
    if not matches:
        raise InputError(f"{path}: the pattern matches no file")
    return matches
