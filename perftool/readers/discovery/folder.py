"""Picks the files of one run in a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perftool.errors import InputError, NoInputError
from perftool.readers.discovery.beside import of_run
from perftool.readers.discovery.contents import (
    is_own_output,
    is_run,
    is_text,
    is_trace,
    may_be_trace,
    of_other_programs,
    shows_events_anywhere,
)
from perftool.readers.discovery.names import (
    TRACE_SUFFIXES,
    is_hltv,
    is_other_name,
    is_part,
    is_trace_name,
    must_be_read,
    other_name_text,
    why_other,
)
from perftool.readers.files.companions import (
    companions_among,
    has_mac_attributes,
    irregular_kind,
    irregular_text,
    is_kept,
    is_named_like_unread,
)
from perftool.readers.files.picking import Wanted
from perftool.readers.files.runs import LEAVE_OUT, UNREADABLE, Chosen, Doubt, is_recording, newest_profiles
from perftool.readers.files.walk import links_out, walk
from perftool.readers.trace.profiler_csv import is_profiler_csv, stated_device

# Matches names of tables, even if they are compressed (`accel1.csv.gz`) or have another suffix (`accel1.csv~`).
_TABLE_NAME = re.compile(r"\.csv(?![a-z0-9])", re.IGNORECASE)
_UNCLEAR = "not read, because it does not look like a trace"
# At most this many unread files in a folder are listed one by one.
_MOST_LISTED = 3


@dataclass
class _Contents:
    """The files in a folder. ``unread``: sentences about files that are not read. ``unreadable``: why files cannot be
    read whose contents a gate needs."""

    traces: list[str]
    tables: list[str]
    logs: list[str]
    parts: list[str]
    unread: list[str]
    unreadable: dict[str, str]


def in_folder(path: str, wanted: Wanted) -> Chosen:
    """Pick the traces of one run in a folder, and the logs and configuration there."""
    found = _contents(path, wanted)
    not_read = tuple(Doubt(file, f"not read: {why}", LEAVE_OUT) for file, why in found.unreadable.items())
    if not found.traces and not found.tables and found.parts:
        return Chosen(tuple(filter(wanted.allows, found.parts)), few(found.unread) or None, doubts=not_read)
    if not found.traces and not found.tables and not found.logs:
        if not os.access(path, os.R_OK | os.X_OK):
            raise InputError(f"{path}: the folder cannot be opened (Permission denied)")
        raise NoInputError(f"{path}: the folder contains no traces ({', '.join(TRACE_SUFFIXES)}) and no logs")
    profiled = newest_profiles(path, found.tables, stated_device)
    traces, remaining, unclear = _sorted_out(found, wanted)
    picked = wanted.pick(path, traces)
    other_folders = {Path(file).parent for file in picked.others} - {Path(file).parent for file in picked.files}

    def is_elsewhere(file: str) -> bool:
        return Path(file).parent in other_folders

    # Keep damaged files, which are then reported, and metrics files, which are named like traces.
    known = set(traces)
    remaining = [file for file in (*remaining, *profiled.files) if file not in known]
    unreadable_there = [file for file in remaining if is_elsewhere(file) and not is_text(file)]
    remaining = [file for file in (*remaining, *found.logs) if not is_elsewhere(file) and wanted.allows(file)]
    beside = set(found.logs)
    # If there is no trace, damaged ones may still show whose files these are. Text files, such as JSON dumps, are not
    # traces.
    run = picked.files or profiled.files or [file for file in found.traces if not is_text(file)]
    kept = of_run([file for file in remaining if file in beside], run)
    foreign = beside.difference(kept.files)
    archives_there = [file for file in found.logs if is_elsewhere(file) and is_hltv(file) and wanted.allows(file)]
    # With --run, the user excludes the files of other recordings.
    parts = [file for file in found.parts if wanted.run is None or not is_elsewhere(file)]
    return Chosen(
        files=(*picked.files, *(file for file in remaining if file not in foreign)),
        note=" ".join(filter(None, (picked.note, profiled.note, kept.note, few(found.unread)))) or None,
        others=(*picked.others, *profiled.others, *kept.others, *archives_there),
        aside=picked.aside,
        unread_parts=tuple(filter(wanted.allows, parts)),
        doubts=(
            *picked.doubts,
            *profiled.doubts,
            *kept.doubts,
            *not_read,
            *(Doubt(file, UNREADABLE, LEAVE_OUT) for file in unreadable_there),
            *(Doubt(file, _UNCLEAR, LEAVE_OUT) for file in sorted(unclear)),
        ),
        elsewhere=frozenset(archives_there),
    )


def _contents(path: str, wanted: Wanted) -> _Contents:
    """List the files below the folder ``path`` by kind."""
    everything, unread = _everything_below(Path(path))
    traces = [file for file in _named_like_traces(everything, unread) if not is_own_output(file)]
    tables, unreadable = _profiler_csvs(everything, wanted)
    if tables and any(map(is_trace, traces)):
        # The tables usually come from the same recording as the traces.
        unread += [
            f"{file} is a profiler table next to a trace and was not read (name it to read it)" for file in tables
        ]
        tables, unreadable = [], {}
    harmless: list[str] = []
    for file in everything:
        if not wanted.allows(str(file)):
            continue
        if must_be_read(file) and not is_kept(file):
            unreadable[str(file)] = f"it is {irregular_kind(file)}"
        elif is_named_like_unread(file) and not file.name.startswith("."):
            unreadable[str(file)] = "its ending is not known"
        elif is_other_name(file.name) and str(file) not in unreadable:
            if file.name.startswith(".") or not may_be_trace(file):
                harmless.append(other_name_text(file))
            else:
                unreadable[str(file)] = why_other(file)
        elif file.is_symlink() and not (is_trace_name(file.name) or file.exists()):
            # The link may lead to the folder of a rank, or to a profiler table.
            unread.append(irregular_text(file))
    # There is already a sentence about an irregular file that is named like a trace.
    unread += [f"{file} was not read: {why}" for file, why in unreadable.items() if not is_trace_name(file)]
    unread += harmless
    named = set(traces)
    logs = [file for file in companions_among(everything) if file not in named]
    parts = sorted(str(file) for file in everything if is_part(file.name) and is_kept(file))
    return _Contents(traces, tables, logs, parts, unread, unreadable)


def _sorted_out(found: _Contents, wanted: Wanted) -> tuple[list[str], list[str], set[str]]:
    """Return those files of ``found.traces`` that contain the events of a run, those that may be other inputs, and
    those that are left out although their contents are not clear. ``found.unread`` gets a sentence about each of the
    last."""
    allowed = list(filter(wanted.allows, found.traces))
    recordings = [file for file in allowed if is_recording(file)]
    remaining = [file for file in allowed if not is_recording(file)]
    strange, unclear = of_other_programs(remaining)
    if recordings:
        # Since the folder contains recordings, leave out files that are malformed or too long to check, except damaged
        # traces.
        unclear = {file for file in unclear if not shows_events_anywhere(file)}
        strange |= unclear
        found.unread += [
            f"{file} does not look like a trace and was not read (name it to read it anyway)"
            for file in sorted(unclear)
        ]
    else:
        unclear = set()
        if len(strange) == len(remaining):
            strange = set()
    remaining = [file for file in remaining if file not in strange]
    return sorted([*recordings, *filter(is_run, remaining)]), remaining, unclear


def parts_below(folder: Path, unread: list[str]) -> list[str]:
    """Return the parts below ``folder``, sorted. Folders that are not read get a sentence in ``unread``. Raise
    InputError if a part cannot be read because it is not a regular file."""
    everything, unread_folders = _everything_below(folder)
    unread += unread_folders
    parts = [file for file in everything if is_part(file.name)]
    if (irregular := next((file for file in parts if not is_kept(file)), None)) is not None:
        raise InputError(f"{irregular}: it is {irregular_kind(irregular)}")
    return sorted(map(str, parts))


def _everything_below(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the files below ``folder``, and a sentence about each folder and each link to a folder that is not read,
    and one about files that only have attributes of others."""
    files: list[Path] = []
    unread: list[str] = []
    for place, folders, names in walk(folder, unread):
        unread += links_out(folder, place, folders)
        files += [Path(place, name) for name in names]
    if of_mac := [file for file in files if has_mac_attributes(file)]:
        left_out = set(of_mac)
        files = [file for file in files if file not in left_out]
        first, count = of_mac[0], len(of_mac) - 1
        what = f"{first} and {count:,} more files were" if count else f"{first} was"
        unread.append(f"{what} not read: only macOS uses such files, for attributes of other files")
    return files, unread


def _named_like_traces(files: Iterable[Path], unread: list[str]) -> list[str]:
    """Return the ``files`` that are named like traces, sorted. ``unread`` gets a sentence about each of them that is
    not a regular file."""
    named = {file: is_kept(file) for file in files if is_trace_name(file.name)}
    unread += [irregular_text(file) for file, kept in named.items() if not kept]
    return sorted(str(file) for file, kept in named.items() if kept)


def _profiler_csvs(everything: Iterable[Path], wanted: Wanted) -> tuple[list[str], dict[str, str]]:
    """Return the files of a folder that are tables of the profiler, and why any similarly named file is not one."""
    named = [file for file in everything if _TABLE_NAME.search(file.name) and wanted.allows(str(file))]
    tables = sorted(
        str(file)
        for file in named
        if file.name.lower().endswith(".csv") and is_kept(file) and is_profiler_csv(str(file))
    )
    like, found = set(map(_unnumbered, tables)), set(tables)
    unreadable = {}
    for file in sorted(map(str, named)):
        if file not in found and _unnumbered(file) in like:
            unreadable[file] = _why_no_table(Path(file))
    return tables, unreadable


def _unnumbered(path: str) -> str:
    """Return the name of a table without its ending, and without the numbers of its rank, card and recording."""
    return re.sub(r"\d+", "0", _TABLE_NAME.split(Path(path).name)[0].lower())


def _why_no_table(file: Path) -> str:
    if not is_kept(file):
        return f"it is {irregular_kind(file)}"
    if not file.name.lower().endswith(".csv"):
        return "the names of the profiler's tables end with .csv"
    return "it is named like a profiler table, but does not begin like one"


def few(sentences: Sequence[str]) -> str:
    """Join the first few ``sentences``, and say how many more there are."""
    more = len(sentences) - _MOST_LISTED
    return "; ".join(
        [*sentences[:_MOST_LISTED], *([f"{more:,} more were not read for similar reasons"] if more > 0 else [])]
    )
