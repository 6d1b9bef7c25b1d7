"""Finds the input files for command-line paths: traces, and the logs and configuration next to them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from perftool.errors import InputError, NoInputError
from perftool.model.links import without_query
from perftool.readers.files.archives import ARCHIVE_ENDS, PACKED_ENDS, is_archive, members_of
from perftool.readers.files.companions import (
    companions_among,
    companions_in,
    files_of_other_runs,
    has_mac_attributes,
    irregular_kind,
    irregular_text,
    is_kept,
    is_named_like_companion,
    is_named_like_dump,
    is_named_like_measurement,
    is_named_like_unread,
)
from perftool.readers.files.duplicates import SetAside, without_duplicates
from perftool.readers.files.matching import is_pattern, matches
from perftool.readers.files.picking import Wanted, is_excluded
from perftool.readers.files.rank_name import rank_of
from perftool.readers.files.remote import is_url, list_url, shown_path
from perftool.readers.files.runs import (
    LEAVE_OUT,
    UNREADABLE,
    Chosen,
    Doubt,
    is_recording,
    newest_profiles,
    newest_run,
    require_one_run,
)
from perftool.readers.files.stream import BLOCK, STDIN, ByteStream, reads_once
from perftool.readers.files.unchanged import once_per_file
from perftool.readers.files.walk import links_out, walk
from perftool.readers.flight import dump
from perftool.readers.identity import identify
from perftool.readers.nodes import holds_host_trace, host_trace_rank, post_graph
from perftool.readers.text.bounded_json import parsed
from perftool.readers.trace import envelope
from perftool.readers.trace.envelope import LONGEST_EVENT_KEY, holds_events, holds_times, shows_events, top_keys
from perftool.readers.trace.event_text import EVENT_START
from perftool.readers.trace.profiler_csv import is_profiler_csv, stated_device

PART_SUFFIX = ".part"
TRACE_SUFFIXES = (".json", ".json.gz", ".json.zst")
# Matches names of traces that this program does not read, because of their compression (`rank1.json.xz`) or their
# suffix (`rank1.json~`).
_OTHER_NAME = re.compile(r"\.(?:json|trace)(?![a-z0-9])", re.IGNORECASE)
# Matches names of traces in archives. Other JSON files in them are of other programs.
_TRACE_WORD = re.compile(r"(?<![a-z])traces?(?![a-z])", re.IGNORECASE)
# Matches names of tables, even if they are compressed (`accel1.csv.gz`) or have another suffix (`accel1.csv~`).
_TABLE_NAME = re.compile(r"\.csv(?![a-z0-9])", re.IGNORECASE)
_OTHER_KINDS = (PART_SUFFIX, ".csv")
_SUFFIXES = f"{', '.join(TRACE_SUFFIXES[:-1])} or {TRACE_SUFFIXES[-1]}"
# This program's reports and baselines contain its name within this many bytes of their beginning or end.
_CHECKED_BYTES = 4 << 10
# Larger JSON files are not parsed to check whether they belong to another program. Tokenizer files take about 10 MB.
_LARGEST_STATE = 64 << 20
_LONGEST_LINE = 64 << 10
# The ends of patterns that match everything in a folder.
_EVERYTHING = ("**", f"**{os.sep}*")
# Bytes that occur in compressed data, but not in text.
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_UNCLEAR = "not read, because it does not look like a trace"
_OTHER_ENDING = f"the names of traces end with {_SUFFIXES}"
_ARCHIVE = "archives have to be unpacked"
_WITHOUT_TRACES = "are not read: they are used only if there are no traces"
_SEPARATE = "check it in a separate call, or exclude it with --exclude"
# At most this many unread files in a folder are listed one by one.
_MOST_LISTED = 3


@dataclass(frozen=True)
class Inputs:
    """The files of an analysis, each once.

    ``texts``: logs, metrics and configuration.
    ``notes``: sentences about omitted files.
    ``parts``: ranks that were analysed separately.
    ``set_aside``: traces that duplicate others.
    ``captures``: traces recorded while device graphs were captured.
    ``left_out``: files of other runs.
    ``device``: the name of a device, or a file of peak rates. It overrides the device in the traces.
    ``named``: files that were given directly or by a pattern rather than by their folder.
    ``unread_parts``: parts that are not read, because their folder contains traces.
    ``doubts``: files that were left out, although the user did not ask for that.
    ``is_picked``: whether the user picked a run. ``as_one_run``: whether the user joins several runs.
    """

    traces: tuple[str, ...]
    texts: tuple[str, ...]
    notes: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    captures: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    device: str | None = None
    named: frozenset[str] = frozenset()
    unread_parts: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    is_picked: bool = False
    as_one_run: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        """All files that were found, whether or not they are read. No output may overwrite them."""
        aside = (one.path for one in self.set_aside)
        device = [self.device] if self.device and os.path.isfile(self.device) else []
        return (*self.traces, *self.texts, *self.parts, *self.captures, *device, *aside, *self.left_out)

    @property
    def unread(self) -> tuple[SetAside, ...]:
        """The traces that were set aside, except for copies. If the user picked a run, these are only the traces that
        the user named, and those that may be the newest."""
        return tuple(
            one
            for one in self.set_aside
            if one.why != "copy" and (not self.is_picked or one.path in self.named or one.is_later)
        )

    @property
    def omitted(self) -> tuple[str, ...]:
        """Sentences about the files that a gate does not leave out by itself."""
        parts = [unread_parts_text([shown_path(part) for part in self.unread_parts])] if self.unread_parts else []
        return (*parts, *(f"{shown_path(doubt.file)}: {doubt.why}" for doubt in self.doubts), *map(str, self.unread))


def find_inputs(
    paths: Sequence[str],
    texts: Sequence[str] = (),
    exclude: Iterable[str] = (),
    *,
    companions: bool = True,
    as_one_run: bool = False,
    run: str | None = None,
    literal: bool = False,
) -> Inputs:
    """Find the files selected by ``paths`` (of any kind) and ``texts`` (no traces), sorted within folders and globs.

    If a folder contains several runs, this picks the newest complete run, or the one called ``run``, or all of them
    with ``as_one_run``. With ``literal``, wildcards in ``paths`` are ordinary characters. Without ``texts``, it adds
    logs and configuration found next to a trace. Raise InputError if a path does not exist, a folder contains no
    inputs, a pattern matches nothing, or files that were named one by one belong to several runs.
    """
    patterns = tuple(exclude)
    if [*paths, *texts].count(STDIN) > 1:
        raise InputError("'-' can be used only once")
    wanted = Wanted(patterns, run, as_one_run)
    expanded = [_expand(path, wanted, literal) for path in paths]
    selected = [file for found in expanded for file in found.files]
    parts = [file for file in selected if is_part(file)]
    selected_texts = {file for file in selected if not is_part(file) and _is_text(file)}
    traces = [file for file in selected if not is_part(file) and file not in selected_texts]
    of_texts = [_expand(path, Wanted()) for path in texts]
    of_patterns = [found for path, found in zip(texts, of_texts, strict=True) if _is_no_folder(path)]
    named = [file for found in of_texts for file in found.files]
    others = [file for file in selected if file in selected_texts]
    archives: Sequence[str] = ()
    if traces:
        beyond = (file for found in expanded for file in found.others)
        archives = [file for file in dict.fromkeys((*others, *named, *beyond)) if _is_archive(file)]
    else:
        # An archive of Gaudi's profiler may contain host calls. They are used only if there is no other trace.
        traces = [file for file in (*others, *named) if not is_url(file) and holds_host_trace(file)]
    if not traces and not others and not named and not parts:
        raise NoInputError("no input is left after --exclude" if patterns else "no input")
    if run is not None and parts and not traces:
        raise InputError("--run picks a recording among traces, but the inputs are parts")
    chosen = list(dict.fromkeys(traces))
    aside: Sequence[SetAside] = ()
    # In a folder, the run is already picked.
    picks_here = run is not None and not any(map(os.path.isdir, paths)) and not any(map(reads_once, chosen))
    picked = newest_run("the input", chosen, run) if picks_here else Chosen(tuple(chosen))
    chosen = list(picked.files)
    if len(chosen) > 1:
        chosen, aside = without_duplicates(chosen)
        if not as_one_run:
            require_one_run(chosen)
    nearby = [] if texts or not companions else _companions_of(chosen)
    # Files that were given are read, whatever their names say.
    given_files = {os.path.abspath(file) for file in (*others, *named) if not is_url(file)}
    nearby = [file for file in nearby if os.path.abspath(file) not in given_files and not is_excluded(file, patterns)]
    companion_files = _of_run(nearby, chosen, are_named=True)
    found = (*others, *named, *companion_files.files)
    chosen_by = (*expanded, *of_patterns, picked, companion_files)
    known_parts = set(parts)
    unread_parts = tuple(
        dict.fromkeys(one for found in expanded for one in found.unread_parts if one not in known_parts)
    )
    notes = tuple(one.note for one in chosen_by if one.note)
    if unread_parts:
        notes += (f"{unread_parts_text(unread_parts)}; name the files to read",)
    # Remove duplicates, because a file may be given both directly and by its folder.
    every = dict.fromkeys([*(one for found in expanded for one in found.aside), *aside])
    used = set(chosen)
    aside = [one for one in every if one.instead in used]
    read = {*chosen, *(one.path for one in aside)}
    given_or_read = {*read, *paths, *texts}
    left_out = (*(file for one in chosen_by for file in one.others), *(file for file in traces if file not in read))
    given = zip((*paths, *texts), (*expanded, *of_texts), strict=True)
    itself = frozenset(chain(*(one.files for path, one in given if path in one.files or _is_no_folder(path))))
    # With --run, the user excludes the files of other recordings.
    elsewhere = {file for found in expanded for file in found.elsewhere} if run is not None else set()
    archives = [file for file in archives if file not in elsewhere or file in itself]
    unread_archives = tuple(_unread_archives(archives, chosen, itself))
    read_archives = {*others, *named}
    notes += tuple(f"{one.file}: {one.why}" for one in unread_archives if one.file in read_archives)
    return Inputs(
        tuple(chosen),
        tuple(dict.fromkeys(found)),
        notes,
        tuple(dict.fromkeys(parts)),
        tuple(aside),
        left_out=left_out,
        named=itself,
        unread_parts=unread_parts,
        doubts=(
            *picked.doubts,
            *dict.fromkeys(
                doubt
                for found in (*expanded, *of_patterns, companion_files)
                for doubt in found.doubts
                if doubt.file not in given_or_read
            ),
            *unread_archives,
        ),
        is_picked=run is not None,
        as_one_run=as_one_run,
    )


def _is_archive(path: str) -> bool:
    return not is_url(path) and path.lower().endswith(".hltv")


def _unread_archives(archives: Iterable[str], traces: Sequence[str], named: Collection[str]) -> Iterator[Doubt]:
    """Yield doubts about ``archives`` whose host calls are not read, although none of the ``traces`` has their rank.

    If ``traces`` are all ranks of a run, only an archive that the user ``named`` may belong to this run.
    """
    known = list(map(identify, traces))
    ranks = {own.rank for own in known} - {None}
    # Each trace that does not state its rank may have the rank of any one archive.
    unstated = sum(own.rank is None for own in known)
    is_complete = all(own.world_size == len(traces) for own in known)
    stated = {archive: host_trace_rank(archive) for archive in archives}
    # Each trace may come from the same process as one archive that does not state its rank.
    free = len(traces) - len({rank for rank in stated.values() if rank is not None})
    for archive, rank in stated.items():
        if rank is None:
            free -= (has_calls := holds_host_trace(archive))
            is_known = not has_calls or free >= 0
        elif is_known := rank in ranks or unstated > 0:
            unstated -= rank not in ranks
            ranks.add(rank)
        if not is_known and (archive in named or not is_complete):
            of = "" if rank is None else f" (rank {rank})"
            yield Doubt(archive, f"its host calls{of} {_WITHOUT_TRACES}", _SEPARATE)


def is_part(path: str) -> bool:
    """Whether a file is named like a part."""
    return path.lower().endswith(PART_SUFFIX)


def parts_below(folder: Path, unread: list[str]) -> list[str]:
    """Return the parts below ``folder``, sorted. Folders that are not read get a sentence in ``unread``. Raise
    InputError if a part cannot be read because it is not a regular file."""
    everything, unread_folders = _everything_below(folder)
    unread += unread_folders
    parts = [file for file in everything if is_part(file.name)]
    if (irregular := next((file for file in parts if not is_kept(file)), None)) is not None:
        raise InputError(f"{irregular}: it is {irregular_kind(irregular)}")
    return sorted(map(str, parts))


def unread_parts_text(parts: Sequence[str]) -> str:
    """Return a clause about unread ``parts``. A part in a folder with traces usually has the rank of one of them."""
    first, *more = parts
    if more:
        return f"{first} and {len(more)} more part{'s' if more[1:] else ''} were not read: their folder contains traces"
    return f"{first} was not read: its folder contains traces"


def _expand(path: str, wanted: Wanted, literal: bool = False) -> Chosen:
    if is_url(path):
        return _at_url(path, wanted)
    if os.path.isdir(path):
        return _in_folder(path, wanted)
    if path != STDIN and not literal and is_pattern(path):
        return _matching(path, wanted)
    if path != STDIN and not _exists(path):
        raise InputError(f"{path}: no such file")
    return Chosen(tuple(filter(wanted.allows, [path])))


def _is_no_folder(path: str) -> bool:
    return not is_url(path) and not os.path.isdir(path)


def _in_folder(path: str, wanted: Wanted) -> Chosen:
    """Pick the traces of one run in a folder, and the logs and configuration there."""
    place = Path(path)
    everything, unread = _everything_below(place)
    files = [file for file in _named_like_traces(everything, unread) if not is_own_output(file)]
    tables, unreadable = _profiler_csvs(everything, wanted)
    if tables and any(map(_is_trace, files)):
        # The tables usually come from the same recording as the traces.
        unread += [
            f"{file} is a profiler table next to a trace and was not read (name it to read it)" for file in tables
        ]
        tables, unreadable = [], {}
    harmless: list[str] = []
    for file in everything:
        if _must_be_read(file) and not is_kept(file) and wanted.allows(str(file)):
            unreadable[str(file)] = f"it is {irregular_kind(file)}"
        elif is_named_like_unread(file) and not file.name.startswith(".") and wanted.allows(str(file)):
            unreadable[str(file)] = "its ending is not known"
        elif is_other_name(file.name) and str(file) not in unreadable and wanted.allows(str(file)):
            if file.name.startswith(".") or not _may_be_trace(file):
                harmless.append(other_name_text(file))
            else:
                unreadable[str(file)] = _why_other(file)
        elif file.is_symlink() and not (is_trace_name(file.name) or file.exists()) and wanted.allows(str(file)):
            # The link may lead to the folder of a rank, or to a profiler table.
            unread.append(irregular_text(file))
    # There is already a sentence about an irregular file that is named like a trace.
    unread += [f"{file} was not read: {why}" for file, why in unreadable.items() if not is_trace_name(file)]
    unread += harmless
    profiled = newest_profiles(path, tables, stated_device)
    named = set(files)
    texts = [file for file in companions_among(everything) if file not in named]
    parts = sorted(str(file) for file in everything if is_part(file.name) and is_kept(file))
    not_read = tuple(Doubt(file, f"not read: {why}", LEAVE_OUT) for file, why in unreadable.items())
    if not files and not tables and parts:
        return Chosen(tuple(filter(wanted.allows, parts)), _few(unread) or None, doubts=not_read)
    if not files and not tables and not texts:
        if not os.access(path, os.R_OK | os.X_OK):
            raise InputError(f"{path}: the folder cannot be opened (Permission denied)")
        raise NoInputError(f"{path}: the folder contains no traces ({', '.join(TRACE_SUFFIXES)}) and no logs")
    recordings = [file for file in files if is_recording(file) and wanted.allows(file)]
    remaining = [file for file in files if not is_recording(file) and wanted.allows(file)]
    strange, unclear = _of_other_programs(remaining)
    if recordings:
        # Since the folder contains recordings, leave out files that are malformed or too long to check, except damaged
        # traces.
        unclear = {file for file in unclear if not _shows_events(file)}
        strange |= unclear
        unread += [
            f"{file} does not look like a trace and was not read (name it to read it anyway)" for file in unclear
        ]
    else:
        unclear = set()
        if len(strange) == len(remaining):
            strange = set()
    traces = sorted([*recordings, *(file for file in remaining if file not in strange and _is_run(file))])
    picked = wanted.pick(path, traces)
    # Keep damaged files, which are then reported, and metrics files, which are named like traces.
    known = {*strange, *traces}
    remaining = [file for file in (*remaining, *profiled.files) if file not in known]
    other_folders = {Path(file).parent for file in picked.others} - {Path(file).parent for file in picked.files}

    def is_elsewhere(file: str) -> bool:
        return Path(file).parent in other_folders

    unreadable_there = [file for file in remaining if is_elsewhere(file) and not _is_text(file)]
    remaining = [file for file in (*remaining, *texts) if not is_elsewhere(file) and wanted.allows(file)]
    beside = set(texts)
    # If there is no trace, damaged ones may still show whose files these are. Text files, such as JSON dumps, are not
    # traces.
    of_run = picked.files or profiled.files or [file for file in files if not _is_text(file)]
    kept = _of_run([file for file in remaining if file in beside], of_run)
    foreign = beside.difference(kept.files)
    remaining = [file for file in remaining if file not in foreign]
    note = " ".join(filter(None, (picked.note, profiled.note, kept.note, _few(unread)))) or None
    archives_there = [file for file in texts if is_elsewhere(file) and _is_archive(file) and wanted.allows(file)]
    others = (*picked.others, *profiled.others, *kept.others, *archives_there)
    doubts = [
        *picked.doubts,
        *profiled.doubts,
        *kept.doubts,
        *not_read,
        *(Doubt(file, UNREADABLE, LEAVE_OUT) for file in unreadable_there),
        *(Doubt(file, _UNCLEAR, LEAVE_OUT) for file in sorted(unclear)),
    ]
    if wanted.run is not None:
        # The user excluded the other recordings.
        parts = [file for file in parts if not is_elsewhere(file)]
    unread_parts = tuple(filter(wanted.allows, parts))
    chosen = (*picked.files, *remaining)
    return Chosen(chosen, note, others, picked.aside, unread_parts, tuple(doubts), frozenset(archives_there))


def _must_be_read(file: Path) -> bool:
    """Whether a file is named like a trace or like another file of a run, so that a gate needs its contents. Editors
    mark an open file by a broken link with a hidden name."""
    name = file.name
    is_named = is_trace_name(name) or is_part(name) or is_named_like_dump(file) or is_named_like_measurement(file)
    return is_named and not name.startswith(".")


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


def is_trace_name(name: str) -> bool:
    """Whether ``name`` looks like the name of a trace."""
    return name.lower().endswith(TRACE_SUFFIXES)


def other_name_text(file: str | Path) -> str:
    """Return a sentence about a ``file`` for which ``is_other_name`` is true."""
    return f"{file} was not read: {_why_other(file)}"


def _why_other(file: str | Path) -> str:
    return _ARCHIVE if is_archive(without_query(str(file))) else _OTHER_ENDING


def is_other_name(name: str) -> bool:
    """Whether a file called ``name`` may be or contain a trace that this program does not read."""
    return (
        (_is_named_like_trace(name) or is_archive(name))
        and not name.lower().endswith((*TRACE_SUFFIXES, *_OTHER_KINDS))
        and not is_named_like_companion(name)
        and not is_named_like_unread(name)
    )


def _is_named_like_trace(name: str) -> bool:
    """Whether ``name`` is that of a trace, whatever its ending, or of a packed file of one rank."""
    is_packed = name.lower().endswith((".gz", ".zst", *PACKED_ENDS, *ARCHIVE_ENDS))
    return _OTHER_NAME.search(name) is not None or (is_packed and rank_of(name) is not None)


def _has_trace(archive: Path) -> bool:
    """Whether a file in ``archive`` is named like a trace."""
    return any(
        is_trace_name(member) and (rank_of(member) is not None or _TRACE_WORD.search(PurePosixPath(member).name))
        for member in members_of(archive)
    )


def _may_be_trace(file: Path) -> bool:
    """Whether a ``file`` for which ``is_other_name`` is true may contain a trace. A text file without events (a
    checksum, a copy of a configuration) cannot contain one. Neither can an archive without a file named like one."""
    if not _is_named_like_trace(file.name):
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
    return _shows_events(str(file))


def _few(sentences: Sequence[str]) -> str:
    """Join the first few ``sentences``, and say how many more there are."""
    more = len(sentences) - _MOST_LISTED
    return "; ".join(
        [*sentences[:_MOST_LISTED], *([f"{more:,} more were not read for similar reasons"] if more > 0 else [])]
    )


def _is_run(path: str) -> bool:
    """Whether a file contains the events of a run rather than only data about it."""
    try:
        return not _is_text(path) and _begins_trace(path)
    except InputError:
        return False


def _is_trace(path: str) -> bool:
    try:
        return _begins_trace(path)
    except InputError:
        # The reader of the file reports the error.
        return True


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


def _of_other_programs(files: Sequence[str]) -> tuple[set[str], set[str]]:
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


@once_per_file
def _shows_events(path: str) -> bool:
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


def _may_be_input(path: str) -> bool:
    try:
        return _begins_trace(path) or _is_text(path)
    except InputError:
        # The reader of the file reports the error.
        return True


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
        _few([f"{match} is {kind}, and was not read" for match, kind in kinds.items()]) or None,
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
        key=lambda file: not _is_named_like_trace(names[file]),
    )
    note = " ".join(filter(None, (picked.note, _few(list(map(other_name_text, unread)))))) or None
    doubted = (file for file in unread if _is_named_like_trace(names[file]))
    doubts = (*picked.doubts, *(Doubt(file, f"not read: {_why_other(file)}", LEAVE_OUT) for file in doubted))
    parts = tuple(file for file, name in names.items() if is_part(name))
    return replace(picked, note=note, unread_parts=parts, doubts=doubts)


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


def _is_text(path: str) -> bool:
    """Whether a file begins like a log, a metrics file or a configuration. Stdin and pipes count as traces."""
    if is_url(path):
        return not is_trace_name(without_query(path))
    try:
        if reads_once(path) or _begins_trace(path):
            return False
        kind = _text_kind(path)
    except InputError:
        # The reader of the file reports the error.
        return False
    if kind == "unknown":
        return is_named_like_companion(path) and not _may_be_damaged_trace(path)
    # Log output may precede the events in a file.
    return kind != "csv" and not (is_trace_name(path) and _shows_events(path))


@once_per_file
def _may_be_damaged_trace(path: str) -> bool:
    """Whether a file named like a trace is neither a JSON document nor JSON Lines, or has keys that only events
    have."""
    if not is_trace_name(path):
        return False
    if os.path.getsize(path) > _LARGEST_STATE:
        return _shows_events(path)
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


def _text_kind(path: str) -> str:
    # Imported here, because traces do not need the text readers and their pattern tables.
    from perftool.readers import text_input

    return text_input.sniff_input(path).kind


@once_per_file
def _begins_trace(path: str) -> bool:
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


def _companions_of(traces: Iterable[str]) -> list[str]:
    folders = dict.fromkeys(Path(trace).parent for trace in traces if not (reads_once(trace) or is_url(trace)))
    read = set(traces)
    # The folder may contain unrelated logs, so files that the user did not name must be of a known kind.
    return [
        file
        for folder in folders
        for file in companions_in(folder)
        if file not in read and not _begins_trace(file) and _text_kind(file) not in ("unknown", "csv")
    ]


def _of_run(nearby: Sequence[str], traces: Sequence[str], *, are_named: bool = False) -> Chosen:
    """Choose the files in ``nearby`` that belong to the run of ``traces``, and say why the others are left out.

    ``are_named``: whether the user named the traces, and so chose their ranks.
    """
    local = [trace for trace in traces if not (reads_once(trace) or is_url(trace))]
    kinds = {file: _text_kind(file) for file in nearby}
    foreign = {other.path: other for other in files_of_other_runs(kinds.items(), local, _is_run)}
    text = "is in the folder of the traces and is left out"
    notes = [f"{file} {text}: {other.reason}; --log reads it" for file, other in foreign.items()]
    doubts = tuple(
        Doubt(file, f"not read: {other.reason}", LEAVE_OUT)
        for file, other in foreign.items()
        if not (other.is_known or (are_named and other.by_rank)) and _may_matter(file, kinds[file])
    )
    files = tuple(file for file in nearby if file not in foreign)
    return Chosen(files, " ".join(notes) or None, tuple(foreign), doubts=doubts)


def _may_matter(file: str, kind: str) -> bool:
    """Whether a gate needs the contents of a ``file`` beside traces. There are other checks for archives."""
    is_recognised = kind not in ("unknown", "csv") and not _is_archive(file)
    return is_recognised or _must_be_read(Path(file))
