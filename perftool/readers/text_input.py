"""Reads any text input except traces: examines its beginning, then calls the reader for its format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from os import PathLike, fspath

from perftool.errors import InputError
from perftool.model.records import LogReading, combine
from perftool.readers.config import run_config
from perftool.readers.files.rank_name import rank_of
from perftool.readers.files.stream import STDIN, ByteStream
from perftool.readers.flight import dump
from perftool.readers.logs import compiler_advice, console_log, environment_dump
from perftool.readers.metrics import compilation_stats, metrics_file
from perftool.readers.nodes import analyzed_nodes, bundle, is_bundle, post_graph
from perftool.readers.serving import client_result, metrics_page
from perftool.readers.sniff import HEAD_CHARACTERS, UNKNOWN, Sniffed, TextForm, TextKind, is_trace, may_be_result, sniff
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.text_lines import MAX_JSON_LINE, MAX_LINE, Source, TextLine, Wanted, joined, read_lines


def read(source: Source, rank: int | None = None) -> LogReading:
    """Read a log, a metrics file or a configuration. The ``kind`` of the result says which of them ``source`` is.

    An input of unknown kind is read as a log, because the first known line may be far from the beginning. The rank
    comes from the path unless it is given. Raise InputError if the file cannot be opened or read, or is a trace.
    """
    name = fspath(source) if isinstance(source, (str, PathLike)) else ""
    if name and name != STDIN and (form := _document(name)):
        return _DOCUMENTS[form](name, rank)
    rank = rank_of(name) if rank is None else rank
    tally = IssueTally()
    wanted = Wanted()
    lines = read_lines(source, tally, MAX_JSON_LINE, wanted)
    head = _head(lines)
    texts = [line.text for line in head]
    sniffed = sniff(texts, name)
    if sniffed == UNKNOWN and is_trace(texts):
        raise InputError(f"{name or 'input'}: a trace, not a log")
    reading = _read(sniffed, head, lines, name, rank, wanted)
    return combine((reading, LogReading(issues=tally.issues())), kind=reading.kind)


def sniff_input(source: Source) -> Sniffed:
    """Classify an input by its beginning. Raise InputError if it cannot be opened or read."""
    name = fspath(source) if isinstance(source, (str, PathLike)) else ""
    if name and name != STDIN and (form := _document(name)):
        return Sniffed(_KINDS[form], form)
    found = UNKNOWN
    for longest in (MAX_LINE, MAX_JSON_LINE):
        texts = [line.text for line in _head(read_lines(source, IssueTally(), longest))]
        found = sniff(texts, name)
        if found.form == "client_result" or not may_be_result(texts):
            break
    return found


def _document(path: str) -> TextForm | None:
    """Return the form of a file that is a single document or an archive, or None for lines of text."""
    if is_bundle(path):
        return "bundle"
    with ByteStream(path) as stream:
        head = next(stream.blocks(), b"")
    tests: tuple[tuple[TextForm, Callable[[bytes], bool]], ...] = (
        ("flight_record", dump.begins_dump), ("nodes_view", analyzed_nodes.begins_view),
        ("post_graph", post_graph.begins_graphs),
    )  # fmt: skip
    return next((form for form, test in tests if test(head)), None)


def _head(lines: Iterator[TextLine]) -> list[TextLine]:
    """Return the first lines: as many as it may take to recognise a result, but only a few of any other input."""
    head = _up_to(HEAD_CHARACTERS, lines)
    # A result may have one number per line.
    return [*head, *_up_to(MAX_JSON_LINE, joined(lines))] if may_be_result([line.text for line in head]) else head


def _up_to(most: int, lines: Iterator[TextLine]) -> list[TextLine]:
    """Return the first ``lines``, up to the line with which they have at least ``most`` characters in total."""
    head: list[TextLine] = []
    size = 0
    while size < most and (line := next(lines, None)) is not None:
        head.append(line)
        size += len(line.text) + 1
    return head


def _read(
    sniffed: Sniffed, head: Sequence[TextLine], rest: Iterator[TextLine], name: str, rank: int | None, wanted: Wanted
) -> LogReading:
    if sniffed.form == "profiler_csv":
        raise InputError(f"{name or 'input'}: a profiler CSV, which is a trace, not a log")
    lines = chain(head, rest)
    if reader := _READERS.get(sniffed.form):
        return reader(lines, rank)
    log = console_log.read(lines, rank, wanted)
    environment = environment_dump.read(environment_dump.leading(head), rank)
    return combine((environment, log), kind=log.kind)


def _read_config(lines: Source, _rank: int | None) -> LogReading:
    """Read a configuration file, which applies to all ranks."""
    return run_config.read(lines)


_KINDS: dict[TextForm, TextKind] = {
    "bundle": "nodes", "flight_record": "flight_record", "nodes_view": "nodes", "post_graph": "graph",
}  # fmt: skip
_DOCUMENTS: dict[TextForm, Callable[[str, int | None], LogReading]] = {
    "bundle": bundle.read,
    "flight_record": dump.read,
    "nodes_view": analyzed_nodes.read_file,
    "post_graph": post_graph.read_file,
}
_READERS: dict[TextForm, Callable[[Source, int | None], LogReading]] = {
    "metrics": metrics_file.read,
    "compilation_stats": compilation_stats.read,
    "environment": environment_dump.read,
    "json_config": _read_config,
    "analyzed_nodes": analyzed_nodes.read_csv,
    "compiler_advice": compiler_advice.read,
    "client_result": client_result.read,
    "metrics_page": metrics_page.read,
}
