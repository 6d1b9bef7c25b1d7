"""Paths on the command line into the files to read: traces, and the logs and configuration beside them."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import orjson

from perftool.errors import InputError, NoInputError
from perftool.readers.files.companions import COMPANIONS, companions_in, is_kept, strangers
from perftool.readers.files.duplicates import SetAside, without_duplicates
from perftool.readers.files.one_run import require_one_run
from perftool.readers.files.remote import is_url, list_url
from perftool.readers.files.runs import Chosen, is_recording, newest_run
from perftool.readers.files.stream import BLOCK, STDIN, ByteStream, reads_once
from perftool.readers.trace import envelope
from perftool.readers.trace.event_text import EVENT_START
from perftool.readers.trace.profiler_csv import reject_hltv

PART_SUFFIX = ".part"
TRACE_SUFFIXES = (".json", ".json.gz", ".json.zst")
_GLOB = set("*?[")
# Our documents name the program that near their beginning or end.
_TELLING = 4 << 10
# Of JSON that other programs leave: tokenizers have some 10 MB.
_LARGEST_STATE = 64 << 20


@dataclass(frozen=True)
class Inputs:
    """The files of an analysis, each once: ``traces``, ``texts`` (logs, metrics, configuration), and ``parts``: ranks
    that were analysed before. ``set_aside`` are traces of ranks that others of ``traces`` show, ``left_out`` files of
    other runs that lie with them.

    ``notes`` are sentences for the user about what was left out, ``captures`` traces of the capture of device graphs
    that the run replays.
    """

    traces: tuple[str, ...]
    texts: tuple[str, ...]
    notes: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    captures: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """All that were found, whether or not they are read: what no output may replace."""
        aside = (one.path for one in self.set_aside)
        return (*self.traces, *self.texts, *self.parts, *self.captures, *aside, *self.left_out)


def find_inputs(
    paths: Sequence[str],
    texts: Sequence[str] = (),
    exclude: Iterable[str] = (),
    *,
    companions: bool = True,
    as_one_run: bool = False,
) -> Inputs:
    """The files meant by ``paths`` (of any kind) and ``texts`` (no traces); folders and globs sorted.

    Unless ``texts`` are given, logs and configuration that lie beside a trace are found too. Raises InputError
    for a path that does not exist or is not UTF-8, a folder without inputs, a pattern without matches and, unless
    ``as_one_run`` says what they are, traces of several runs. Copies of a trace and
    older recordings of a process are set aside.
    """
    patterns = tuple(exclude)
    if [*paths, *texts].count(STDIN) > 1:
        raise InputError("'-' can be given only once")
    expanded = [_expand(path, patterns) for path in paths]
    given = [file for found in expanded for file in found.files]
    parts = [file for file in given if file.endswith(PART_SUFFIX)]
    texts_given = {file for file in given if not file.endswith(PART_SUFFIX) and _is_text(file)}
    traces = [file for file in given if not file.endswith(PART_SUFFIX) and file not in texts_given]
    named = [file for path in texts for file in _expand(path).files]
    beside = [] if texts or not companions else _beside(traces)
    others = [file for file in given if file in texts_given]
    if not traces and not others and not named and not parts:
        raise NoInputError("no input is left after --exclude" if patterns else "no input")
    of_the_run = _of_the_run([file for file in beside if not is_excluded(file, patterns)], traces)
    found = (*others, *named, *of_the_run.files)
    for file in (*traces, *found, *parts):
        _require_text(file)
    chosen_by = (*expanded, of_the_run)
    notes = tuple(one.note for one in chosen_by if one.note)
    left_out = tuple(file for one in chosen_by for file in one.others)
    aside: Sequence[SetAside] = ()
    chosen = list(dict.fromkeys(traces))
    if len(chosen) > 1:
        chosen, aside = without_duplicates(chosen)
        if not as_one_run:
            require_one_run(chosen)
    return Inputs(
        tuple(chosen), tuple(dict.fromkeys(found)), notes, tuple(dict.fromkeys(parts)), tuple(aside), left_out=left_out
    )


def _require_text(path: str) -> None:
    """Raise InputError for a name that no report could show: bytes that this system cannot show as text."""
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise InputError(
            f"{shown}: the name is not valid text on this system; rename the file, or set PYTHONUTF8=1"
        ) from None


def _expand(path: str, exclude: Sequence[str] = ()) -> Chosen:
    if is_url(path):
        return Chosen(tuple(file for file in _at_url(path) if not is_excluded(file, exclude)))
    if os.path.isdir(path):
        return _in_folder(path, exclude)
    return Chosen(tuple(file for file in _matching(path) if not is_excluded(file, exclude)))


def _in_folder(path: str, exclude: Sequence[str]) -> Chosen:
    """The traces of a folder, only the newest run where it keeps several, and the logs and configuration there."""
    place = Path(path)
    named = (file for file in place.rglob("*") if file.name.endswith(TRACE_SUFFIXES))
    files = sorted(str(file) for file in named if is_kept(file))
    files = [file for file in files if not is_our_own(file)]
    texts = [file for file in companions_in(place, recursive=True) if file not in files]
    if not files and (parts := sorted(str(file) for file in place.rglob(f"*{PART_SUFFIX}") if is_kept(file))):
        return Chosen(tuple(part for part in parts if not is_excluded(part, exclude)))
    if not files and not texts:
        if not os.access(path, os.R_OK | os.X_OK):
            raise InputError(f"{path}: the folder cannot be opened (Permission denied)")
        raise NoInputError(f"{path}: the folder holds no traces ({', '.join(TRACE_SUFFIXES)}) and no logs")
    recordings = {file: None for file in files if is_recording(file) and not is_excluded(file, exclude)}
    newest = newest_run(path, list(recordings))
    # Where programs leave recordings they also leave JSON that has nothing to do with us.
    beside = [file for file in files if file not in recordings and (not recordings or _may_be_input(file))]
    strange = set() if recordings else _of_other_programs(beside)
    others = [file for file in beside if file not in strange]
    apart = {Path(file).parent for file in recordings} - {Path(file).parent for file in newest.files}
    beside = [file for file in (*others, *texts) if Path(file).parent not in apart and not is_excluded(file, exclude)]
    kept = _of_the_run([file for file in beside if file in texts], newest.files or files)
    beside = [file for file in beside if file not in texts or file in kept.files]
    note = " ".join(filter(None, (newest.note, kept.note))) or None
    return Chosen((*newest.files, *beside), note, (*newest.others, *kept.others))


def _of_other_programs(files: Sequence[str]) -> set[str]:
    """Those of ``files`` that are whole JSON of something else, such as the state of a trainer, beside traces."""
    strange = {file for file in files if not _may_be_input(file) and _is_whole_json(file)}
    return strange if len(strange) < len(files) else set()


def _is_whole_json(path: str) -> bool:
    """Whether a file that is no input is well-formed; a damaged trace is not, and is told of."""
    try:
        if os.path.getsize(path) > _LARGEST_STATE:
            return False
        orjson.loads(Path(path).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return False
    return True


def _may_be_input(path: str) -> bool:
    try:
        return _begins_trace(path) or _is_text(path)
    except InputError:
        # Whoever reads it says so, and goes on with the others.
        return True


def _matching(path: str) -> list[str]:
    if path == STDIN or _exists(path):
        return [path]
    if not _GLOB & set(path):
        raise InputError(f"{path}: no such file")
    matches = sorted(match for match in glob.glob(path, recursive=True) if Path(match).is_file())
    if not matches:
        raise NoInputError(f"{path}: the pattern matches no file")
    return matches


def _exists(path: str) -> bool:
    """Whether ``path`` is there. Raises InputError where nobody may look."""
    try:
        os.stat(path)
    except PermissionError as error:
        raise InputError(f"{path}: cannot be opened ({error.strerror})") from None
    except OSError:
        return False
    return True


def _at_url(url: str) -> list[str]:
    """The traces that ``url`` means; companions are found on this machine only."""
    found = list_url(url)
    if not found:
        raise NoInputError(f"{url}: holds no file")
    traces = [file for file in found if file.endswith(TRACE_SUFFIXES)]
    return found if len(found) == 1 else traces


def is_our_own(path: str) -> bool:
    """Whether a file of a folder is a report or a baseline that this program left there."""
    if not path.endswith(".json"):
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(_TELLING)
            file.seek(-min(_TELLING, file.seek(0, os.SEEK_END)), os.SEEK_END)
            ends = head + file.read()
    except OSError:
        return False
    return b'"habana_perf_tool"' in ends and b'"traceEvents"' not in ends


def _is_text(path: str) -> bool:
    """Whether a file is a log, a metrics file or a configuration, by its beginning; stdin and pipes count as traces."""
    if is_url(path):
        return not path.endswith(TRACE_SUFFIXES)
    reject_hltv(path)
    try:
        if reads_once(path) or path.endswith((".gz", ".zst")) or _begins_trace(path):
            return False
        kind = _text_kind(path)
    except InputError:
        # Whoever reads it says so, and goes on with the others.
        return False
    return kind not in ("unknown", "csv") or (kind == "unknown" and _named_like_companion(path))


def _text_kind(path: str) -> str:
    # The readers of text bring tables of patterns that a trace alone does not need.
    from perftool.readers.text import text_input

    return text_input.sniff_input(path).kind


def _begins_trace(path: str) -> bool:
    """Whether the first block of a file holds the start of an event array."""
    with ByteStream(path) as stream:
        block = next(stream.blocks(), b"")
    head = envelope.read_head(block)
    if head is None:
        # A head longer than a block can only be a trace's: no log or configuration is one huge JSON object.
        return len(block) >= BLOCK and block.lstrip()[:1] == b"{"
    return not head.bare or EVENT_START.match(block[head.start :].lstrip()) is not None


def _named_like_companion(path: str) -> bool:
    return any(fnmatch(Path(path).name, pattern) for pattern in COMPANIONS)


def _beside(traces: Iterable[str]) -> list[str]:
    folders = dict.fromkeys(Path(trace).parent for trace in traces if not (reads_once(trace) or is_url(trace)))
    taken = set(traces)
    # Unasked, only what its first lines show to be of such a run: any log may lie there.
    return [
        file
        for folder in folders
        for file in companions_in(folder)
        if file not in taken and not _begins_trace(file) and _text_kind(file) not in ("unknown", "csv")
    ]


def _of_the_run(beside: Sequence[str], traces: Sequence[str]) -> Chosen:
    """Those of the files ``beside`` the ``traces`` that are of their run, and a sentence about each other one."""
    local = [trace for trace in traces if not (reads_once(trace) or is_url(trace))]
    apart = dict(strangers([(file, _text_kind(file)) for file in beside], local))
    notes = [f"{file} lies beside the traces and is left out: {why}; --log reads it" for file, why in apart.items()]
    return Chosen(tuple(file for file in beside if file not in apart), " ".join(notes) or None, tuple(apart))


def is_excluded(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(path, pattern) or fnmatch(Path(path).name, pattern) for pattern in patterns)
