"""Any text input but a trace: look at its beginning, then hand it to the reader it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from os import PathLike, fspath

from perftool.errors import InputError
from perftool.model.records import LogReading, combine
from perftool.readers.config import run_config
from perftool.readers.files.rank_name import rank_of
from perftool.readers.files.stream import STDIN
from perftool.readers.flight import dump
from perftool.readers.logs import console_log, environment_dump
from perftool.readers.metrics import compilation_stats, metrics_file
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.sniff import HEAD_CHARACTERS, UNKNOWN, Sniffed, TextForm, is_trace, sniff
from perftool.readers.text.text_lines import MAX_JSON_LINE, Source, TextLine, Wanted, read_lines
from perftool.readers.trace.profiler_csv import reject_hltv


def read(source: Source, rank: int | None = None) -> LogReading:
    """What a log, a metrics file or a configuration says, whichever ``source`` is; ``kind`` tells.

    A text of unknown kind is read as a log: its known lines may come late. The rank is taken from the path
    unless given. Raises InputError when the file cannot be opened or read, and for the profiler's own
    formats, which are traces.
    """
    name = fspath(source) if isinstance(source, (str, PathLike)) else ""
    reject_hltv(name)
    if name and name != STDIN and dump.is_dump(name):
        return dump.read(name, rank)
    rank = rank_of(name) if rank is None else rank
    tally = IssueTally()
    wanted = Wanted()
    lines = read_lines(source, tally, MAX_JSON_LINE, wanted)
    head = list(_head(lines))
    texts = [line.text for line in head]
    sniffed = sniff(texts, name)
    if sniffed == UNKNOWN and is_trace(texts):
        raise InputError(f"{name or 'input'}: is a trace and not a log")
    reading = _read(sniffed, chain(head, lines), name, rank, wanted)
    return combine((reading, LogReading(issues=tally.issues())), kind=reading.kind)


def sniff_input(source: Source) -> Sniffed:
    """The kind of an input by its beginning. Raises InputError when it cannot be opened or read."""
    name = fspath(source) if isinstance(source, (str, PathLike)) else ""
    if name and name != STDIN and dump.is_dump(name):
        return Sniffed("flight_record", "flight_record")
    return sniff([line.text for line in _head(read_lines(source, IssueTally()))], name)


def _head(lines: Iterator[TextLine]) -> Iterator[TextLine]:
    size = 0
    for line in lines:
        yield line
        size += len(line.text) + 1
        if size >= HEAD_CHARACTERS:
            return


def _read(sniffed: Sniffed, lines: Iterator[TextLine], name: str, rank: int | None, wanted: Wanted) -> LogReading:
    if sniffed.form == "profiler_csv":
        raise InputError(f"{name or 'input'}: is a profiler CSV, which is a trace and not a log")
    reader = _READERS.get(sniffed.form)
    return console_log.read(lines, rank, wanted) if reader is None else reader(lines, rank)


def _read_config(lines: Source, _rank: int | None) -> LogReading:
    """A configuration file is one for all ranks."""
    return run_config.read(lines)


_READERS: dict[TextForm, Callable[[Source, int | None], LogReading]] = {
    "metrics": metrics_file.read,
    "compilation_stats": compilation_stats.read,
    "environment": environment_dump.read,
    "json_config": _read_config,
}
