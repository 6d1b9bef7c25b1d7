"""Finds the files that a path on the command line stands for: a file, a folder, a pattern or a URL."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path, PurePosixPath

from perftool.errors import InputError, NoInputError
from perftool.model.links import without_query
from perftool.readers.discovery.folder import few, in_folder
from perftool.readers.discovery.names import (
    is_named_like_trace,
    is_other_name,
    is_part,
    is_trace_name,
    other_name_text,
    why_other,
)
from perftool.readers.files.companions import irregular_kind
from perftool.readers.files.matching import is_pattern, matches
from perftool.readers.files.picking import Wanted
from perftool.readers.files.remote import is_url, list_url, shown_path
from perftool.readers.files.runs import LEAVE_OUT, Chosen, Doubt
from perftool.readers.files.stream import STDIN

# The ends of patterns that match everything in a folder.
_EVERYTHING = ("**", f"**{os.sep}*")


def expand(path: str, wanted: Wanted, literal: bool = False) -> Chosen:
    if is_url(path):
        return _at_url(path, wanted)
    if os.path.isdir(path):
        return in_folder(path, wanted)
    if path != STDIN and not literal and is_pattern(path):
        return _matching(path, wanted)
    if path != STDIN and not _exists(path):
        raise InputError(f"{path}: no such file")
    return Chosen(tuple(filter(wanted.allows, [path])))


def _matching(pattern: str, wanted: Wanted) -> Chosen:
    """Return the files that match ``pattern``, and doubts about its other matches, which are not read."""
    # The pattern may also be the name of a file. That file must not hide the other matches.
    itself = [pattern] if _exists(pattern) else []
    every = list(dict.fromkeys([*itself, *matches(pattern)]))
    found = [match for match in every if os.path.isfile(match) or match in itself]
    if not found:
        raise NoInputError(f"{pattern}: the pattern matches no file")
    files = set(found)
    unread = [match for match in every if match not in files and wanted.allows(match)]
    # Do not report a folder as unread if the pattern also matches something inside it.
    listed = {str(up) for folder in {Path(match).parent for match in every} for up in (folder, *folder.parents)}
    if pattern.endswith(_EVERYTHING):
        listed |= set(filter(os.path.isdir, unread))
    unread = [match for match in unread if match not in listed]
    kinds = {match: "a folder" if os.path.isdir(match) else irregular_kind(match) for match in unread}
    return Chosen(
        tuple(filter(wanted.allows, found)),
        few([f"{match} is {kind}, and was not read" for match, kind in kinds.items()]) or None,
        doubts=tuple(Doubt(match, f"not read, because it is {kind}", LEAVE_OUT) for match, kind in kinds.items()),
    )


def _exists(path: str) -> bool:
    """Whether ``path`` exists. Raises InputError if access is denied."""
    try:
        os.stat(path)
    except PermissionError as error:
        raise InputError(f"{path}: cannot open ({error.strerror})") from None
    except OSError:
        return False
    return True


def _at_url(url: str, wanted: Wanted) -> Chosen:
    """Return the file at ``url``, or the traces of one run in the folder or glob ``url``, without logs next to them."""
    found = list_url(url)
    if not found:
        raise NoInputError(f"{shown_path(url)}: no files")
    if len(found) == 1:
        return Chosen(tuple(filter(wanted.allows, found)))
    names = {file: PurePosixPath(without_query(file)).name for file in found if wanted.allows(file)}
    picked = wanted.pick(url, [file for file, name in names.items() if is_trace_name(name)])
    unread = sorted(
        (file for file, name in names.items() if is_other_name(name)),
        key=lambda file: not is_named_like_trace(names[file]),
    )
    note = " ".join(filter(None, (picked.note, few(list(map(other_name_text, unread)))))) or None
    doubted = (file for file in unread if is_named_like_trace(names[file]))
    doubts = (*picked.doubts, *(Doubt(file, f"not read: {why_other(file)}", LEAVE_OUT) for file in doubted))
    parts = tuple(file for file, name in names.items() if is_part(name))
    return replace(picked, note=note, unread_parts=parts, doubts=doubts)


def is_no_folder(path: str) -> bool:
    return not is_url(path) and not os.path.isdir(path)
