"""What the name of a file says about its contents."""

from __future__ import annotations

import re
from pathlib import Path

from perftool.model.links import without_query
from perftool.readers.files.archives import ARCHIVE_ENDS, PACKED_ENDS, is_archive
from perftool.readers.files.companions import (
    is_named_like_companion,
    is_named_like_dump,
    is_named_like_measurement,
    is_named_like_unread,
)
from perftool.readers.files.rank_name import rank_of
from perftool.readers.files.remote import is_url

PART_SUFFIX = ".part"
TRACE_SUFFIXES = (".json", ".json.gz", ".json.zst")
# Matches names of traces that this program does not read, because of their compression (`rank1.json.xz`) or their
# suffix (`rank1.json~`).
_OTHER_NAME = re.compile(r"\.(?:json|trace)(?![a-z0-9])", re.IGNORECASE)
_OTHER_KINDS = (PART_SUFFIX, ".csv")
_SUFFIXES = f"{', '.join(TRACE_SUFFIXES[:-1])} or {TRACE_SUFFIXES[-1]}"
_OTHER_ENDING = f"the names of traces end with {_SUFFIXES}"
_ARCHIVE = "archives have to be unpacked"


def is_part(path: str) -> bool:
    """Whether a file is named like a part."""
    return path.lower().endswith(PART_SUFFIX)


def is_trace_name(name: str) -> bool:
    """Whether ``name`` looks like the name of a trace."""
    return name.lower().endswith(TRACE_SUFFIXES)


def is_other_name(name: str) -> bool:
    """Whether a file called ``name`` may be or contain a trace that this program does not read."""
    return (
        (is_named_like_trace(name) or is_archive(name))
        and not name.lower().endswith((*TRACE_SUFFIXES, *_OTHER_KINDS))
        and not is_named_like_companion(name)
        and not is_named_like_unread(name)
    )


def is_named_like_trace(name: str) -> bool:
    """Whether ``name`` is that of a trace, whatever its ending, or of a packed file of one rank."""
    is_packed = name.lower().endswith((".gz", ".zst", *PACKED_ENDS, *ARCHIVE_ENDS))
    return _OTHER_NAME.search(name) is not None or (is_packed and rank_of(name) is not None)


def other_name_text(file: str | Path) -> str:
    """Return a sentence about a ``file`` for which ``is_other_name`` is true."""
    return f"{file} was not read: {why_other(file)}"


def why_other(file: str | Path) -> str:
    return _ARCHIVE if is_archive(without_query(str(file))) else _OTHER_ENDING


def is_hltv(path: str) -> bool:
    return not is_url(path) and path.lower().endswith(".hltv")


def must_be_read(file: Path) -> bool:
    """Whether a file is named like a trace or like another file of a run, so that a gate needs its contents. Editors
    mark an open file by a broken link with a hidden name."""
    name = file.name
    is_named = is_trace_name(name) or is_part(name) or is_named_like_dump(file) or is_named_like_measurement(file)
    return is_named and not name.startswith(".")
