"""What a file contains, as far as its first blocks or its structure show."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from perftool.errors import InputError
from perftool.model.links import without_query
from perftool.readers.discovery.names import is_named_like_trace, is_trace_name
from perftool.readers.files.archives import members_of
from perftool.readers.files.companions import is_kept, is_named_like_companion
from perftool.readers.files.rank_name import rank_of
from perftool.readers.files.remote import is_url
from perftool.readers.files.stream import BLOCK, ByteStream, reads_once
from perftool.readers.files.unchanged import once_per_file
from perftool.readers.flight import dump
from perftool.readers.nodes import post_graph
from perftool.readers.text.bounded_json import parsed
from perftool.readers.trace import envelope
from perftool.readers.trace.envelope import LONGEST_EVENT_KEY, holds_events, holds_times, shows_events, top_keys
from perftool.readers.trace.event_text import EVENT_START

# This program's reports and baselines contain its name within this many bytes of their beginning or end.
_CHECKED_BYTES = 4 << 10
# Larger JSON files are not parsed to check whether they belong to another program. Tokenizer files take about 10 MB.
_LARGEST_STATE = 64 << 20
_LONGEST_LINE = 64 << 10
# Bytes that occur in compressed data, but not in text.
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
# Matches names of traces in archives. Other JSON files in them are of other programs.
_TRACE_WORD = re.compile(r"(?<![a-z])traces?(?![a-z])", re.IGNORECASE)


@once_per_file
def begins_trace(path: str) -> bool:
    """Whether a file begins like a trace: its first 8 MiB contain the start of an event array, or nothing but
    metadata."""
    with ByteStream(path) as stream:
        head, data = envelope.head_of(stream)
    if head is None:
        # Such a long JSON object must be the metadata of a trace, unless it begins like one of these.
        if len(data) < BLOCK or data.lstrip()[:1] != b"{":
            return False
        return not (dump.begins_dump(data) or post_graph.begins_graphs(data) or _begins_result(data))
    return not head.bare or EVENT_START.match(data[head.start : head.start + _CHECKED_BYTES].lstrip()) is not None


def _begins_result(data: bytes) -> bool:
    # Imported here, because traces do not need the text readers and their pattern tables.
    from perftool.readers.serving.client_result import is_result

    return is_result(top_keys(data))


def is_run(path: str) -> bool:
    """Whether a file contains the events of a run rather than only data about it."""
    try:
        return not is_text(path) and begins_trace(path)
    except InputError:
        return False


def is_trace(path: str) -> bool:
    try:
        return begins_trace(path)
    except InputError:
        # The reader of the file reports the error.
        return True


def is_text(path: str) -> bool:
    """Whether a file begins like a log, a metrics file or a configuration. Stdin and pipes count as traces."""
    if is_url(path):
        return not is_trace_name(without_query(path))
    try:
        if reads_once(path) or begins_trace(path):
            return False
        kind = text_kind(path)
    except InputError:
        # The reader of the file reports the error.
        return False
    if kind == "unknown":
        return is_named_like_companion(path) and not _may_be_damaged_trace(path)
    # Log output may precede the events in a file.
    return kind != "csv" and not (is_trace_name(path) and shows_events_anywhere(path))


def text_kind(path: str) -> str:
    # Imported here, because traces do not need the text readers and their pattern tables.
    from perftool.readers import text_input

    return text_input.sniff_input(path).kind


@once_per_file
def _may_be_damaged_trace(path: str) -> bool:
    """Whether a file named like a trace is neither a JSON document nor JSON Lines, or has keys that only events
    have."""
    if not is_trace_name(path):
        return False
    if os.path.getsize(path) > _LARGEST_STATE:
        return shows_events_anywhere(path)
    document, text = _whole_json(path)
    if document is None:
        return not _begins_json_lines(path)
    return holds_events(text) or holds_times(text)


def _begins_json_lines(path: str) -> bool:
    with open(path, "rb") as file:
        try:
            return isinstance(parsed(file.readline(_LONGEST_LINE)), dict)
        except ValueError:
            return False


def _may_be_input(path: str) -> bool:
    try:
        return begins_trace(path) or is_text(path)
    except InputError:
        # The reader of the file reports the error.
        return True


def may_be_trace(file: Path) -> bool:
    """Whether a ``file`` for which ``is_other_name`` is true may contain a trace. A text file without events (a
    checksum, a copy of a configuration) cannot contain one. Neither can an archive without a file named like one."""
    if not is_named_like_trace(file.name):
        return is_kept(file) and _has_trace(file)
    if not is_kept(file) or not file.stat().st_size:
        return True
    try:
        # The first block of compressed data already shows that it is no text.
        with ByteStream(str(file)) as stream:
            if any(_NO_TEXT.search(block) or holds_times(block) for block in stream.blocks()) or stream.issues:
                return True
    except InputError:
        return True
    return shows_events_anywhere(str(file))


def _has_trace(archive: Path) -> bool:
    """Whether a file in ``archive`` is named like a trace."""
    return any(
        is_trace_name(member) and (rank_of(member) is not None or _TRACE_WORD.search(PurePosixPath(member).name))
        for member in members_of(archive)
    )


@once_per_file
def shows_events_anywhere(path: str) -> bool:
    """Whether a file, which may be damaged, contains a key that only events have, anywhere and however it is
    written."""
    before = b""
    try:
        with ByteStream(path) as stream:
            for block in stream.blocks():
                if shows_events(before + block):
                    return True
                before = block[-LONGEST_EVENT_KEY:]
    except InputError:
        return True
    return False


def of_other_programs(files: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the ``files`` that are valid JSON of other programs, such as a trainer's state, and those that are
    malformed or too long to check. Files with events are in neither set.
    """
    strange: set[str] = set()
    unclear: set[str] = set()
    for file in files:
        if _may_be_input(file):
            continue
        document, text = _whole_json(file)
        if not holds_events(text) and not holds_times(text):
            (unclear if document is None else strange).add(file)
    return strange, unclear


def is_own_output(path: str) -> bool:
    """Whether a file is a report or a baseline of this program: a complete JSON object with the program's name but
    without events."""
    if not path.lower().endswith(".json"):
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(_CHECKED_BYTES)
            file.seek(-min(_CHECKED_BYTES, file.seek(0, os.SEEK_END)), os.SEEK_END)
            ends = head + file.read()
    except OSError:
        return False
    # A trace may also contain the program's name, so check the content.
    own, text = _whole_json(path) if b'"habana_perf_tool"' in ends else (None, b"")
    return isinstance(own, dict) and not holds_events(text)


def _whole_json(path: str) -> tuple[Any, bytes]:
    """Return the parsed content and the bytes of a JSON file, or ``(None, b"")`` if it is malformed or too large to
    parse.
    """
    try:
        with ByteStream(path) as stream:
            text = b""
            for block in stream.blocks():
                text += block
                if len(text) > _LARGEST_STATE:
                    return None, b""
            if stream.issues:
                return None, b""
        return parsed(text), text
    except (InputError, OSError, ValueError):
        return None, b""
