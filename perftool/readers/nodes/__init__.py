"""Readers of recipe nodes, from Gaudi's profiler and graph compiler."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perftool.errors import InputError
from perftool.readers.files.rank_name import rank_of
from perftool.readers.files.stream import reads_once
from perftool.readers.files.unchanged import once_per_file
from perftool.readers.identity import identify

HOST_TRACE = ".host_trace.json"
# The longest file name without its suffix, in bytes. File systems allow 255 for the whole name.
_LONGEST_STEM = 200


def is_bundle(path: str) -> bool:
    """Whether the file is named like an archive of the native profiler, and is not JSON, which old releases wrote under
    that name.

    Raises InputError if it cannot be opened.
    """
    return path.lower().endswith(".hltv") and not first_bytes(path).lstrip().startswith((b"{", b"["))


def holds_host_trace(path: str) -> bool:
    """Whether the file is an archive of the native profiler that contains host calls."""
    if reads_once(path) or not is_bundle(path):
        return False
    # Imported here, because only archives need it.
    from perftool.readers.nodes.bundle import has_host_trace

    return bool(has_host_trace(path))


@once_per_file
def host_trace_rank(path: str) -> int | None:
    """Return the rank stated by the host calls in an archive or, failing that, by the archive's name. The result is
    None if the rank is unknown or the archive contains no host calls. An unreadable archive may contain some, so its
    name counts.
    """
    if reads_once(path) or not is_bundle(path):
        return None
    from perftool.readers.nodes.bundle import has_host_trace

    if has_host_trace(path) is False:
        return None
    try:
        with as_trace(path) as copy:
            stated = identify(copy).rank
    except InputError:
        stated = None
    return rank_of(path) if stated is None else stated


@contextmanager
def as_trace(path: str) -> Iterator[str]:
    """Provide a file with the trace in ``path``: the file itself or, for an archive, a copy of its host calls.

    Raise InputError for an archive without host calls. Errors raised in the block mention ``path`` instead of the path
    of the copy.
    """
    if reads_once(path) or not is_bundle(path):
        yield path
        return
    from perftool.readers.nodes.bundle import copy_host_trace

    with tempfile.TemporaryDirectory(prefix="perftool-") as folder:
        copy = Path(folder) / f"{os.fsdecode(os.fsencode(Path(path).stem)[:_LONGEST_STEM])}{HOST_TRACE}"
        try:
            copy_host_trace(path, copy)
            yield str(copy)
        except InputError as error:
            raise InputError(str(error).replace(str(copy), path)) from None


def first_bytes(path: str) -> bytes:
    """Return the first four bytes of a file. Raise InputError if it cannot be opened."""
    try:
        with open(path, "rb") as file:
            return file.read(4)
    except OSError as error:
        raise InputError(f"{path}: cannot open ({error.strerror or error})") from None
