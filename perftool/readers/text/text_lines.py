"""Reads any text input as lines, whatever its encoding, line endings and compression.

Logs may be many gigabytes long, so the input is decoded and split block by block. The encoding is determined by the
byte order mark or, failing that, by the zero bytes that UTF-16 puts between ASCII letters; otherwise, it is UTF-8. A
line that is not valid UTF-8 is read as Latin-1, which maps every byte to a character.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import NamedTuple

from perftool.readers.files.stream import ByteStream
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.text_search import TextSearch

# Longer than any log line. This limits the memory for a file without line endings.
MAX_LINE = 1 << 20
# Carriage returns divide a line into parts. If the parts are shorter than _SHORTEST_PART on average, those below that
# length are dropped, because no reader needs so short a part.
_FEW_PARTS, _SHORTEST_PART = 4, 8
# A reformatted JSON file may have all its records on one line.
MAX_JSON_LINE = 64 << 20

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_HEAD = 4096
# Sizes of pieces in characters. They are smaller while all lines are wanted, because the caller may soon want fewer.
_PIECE, _PIECE_OF_ALL = 768 << 10, 64 << 10
# The least size, in characters, of a piece of joined lines.
_JOINED = 64 << 10


class TextLine(NamedTuple):
    """A line without its line ending. ``number`` counts line feeds, as in an editor.

    Parts of a line between carriage returns (progress bars) are separate lines with the same number. ``ended`` is false
    for a last line without a line ending, which may be truncated.
    """

    number: int
    text: str
    ended: bool = True


@dataclass
class Wanted:
    """The lines that ``read_lines`` should yield. The caller may change this after every line.

    These are all lines if ``texts`` is None or ``every`` is set, and lines that contain one of ``texts`` otherwise.
    Other lines are only counted, which is ten times faster than yielding them.
    """

    texts: tuple[str, ...] | None = None
    every: bool = False


Source = str | PathLike[str] | bytes | Iterable[str | TextLine]
"""A path (``-`` is standard input), the content itself, or its lines."""


def read_lines(
    source: Source, tally: IssueTally, max_line: int = MAX_LINE, wanted: Wanted | None = None
) -> Iterator[TextLine]:
    """Yield the lines of ``source``, and report problems to ``tally``. Lines that are not ``wanted`` may be skipped.

    Raise InputError if the file cannot be opened or read, but never because of its content.
    """
    wanted = wanted or Wanted()
    if isinstance(source, bytes):
        yield from _split(_decode(iter((source,)), tally), tally, max_line, wanted)
    elif isinstance(source, (str, PathLike)):
        with ByteStream(fspath(source)) as stream:
            yield from _split(_decode(stream.blocks(), tally), tally, max_line, wanted)
            for issue in stream.issues:
                tally.note(issue.kind, issue.message)
    else:
        for number, line in enumerate(source, 1):
            yield line if isinstance(line, TextLine) else TextLine(number, line.rstrip("\r\n"))


def joined(lines: Iterable[TextLine]) -> Iterator[TextLine]:
    """Join ``lines`` into pieces of at least ``_JOINED`` characters, for text in which line feeds have no meaning. A
    line of one character takes a hundred times the memory of its text.
    """
    texts: list[str] = []
    size = number = 0
    for line in lines:
        number = number or line.number
        texts.append(line.text)
        size += len(line.text) + 1
        if size >= _JOINED:
            yield TextLine(number, "\n".join(texts), line.ended)
            texts, size, number = [], 0, 0
    if texts:
        yield TextLine(number, "\n".join(texts), line.ended)


def shortest(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the ``texts`` that do not contain any of the others. A line that contains one of ``texts`` also contains
    one of these."""
    every = sorted(set(texts))
    return tuple(text for text in every if not any(other in text for other in every if other != text))


def detect_encoding(head: bytes) -> tuple[str, int]:
    """Return the codec for input that begins with ``head``, and the length of its byte order mark."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name, len(mark)
    even, odd = head[0:_HEAD:2].count(0), head[1:_HEAD:2].count(0)
    if max(even, odd) * 4 > min(len(head), _HEAD):
        return ("utf-16-le" if odd > even else "utf-16-be"), 0
    return "utf-8", 0


def _decode(blocks: Iterator[bytes], tally: IssueTally) -> Iterator[str]:
    head = next(blocks, b"")
    encoding, mark = detect_encoding(head)
    errors = "surrogateescape" if encoding == "utf-8" else "replace"
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    yield decoder.decode(head[mark:])
    for block in blocks:
        yield decoder.decode(block)
    if rest := decoder.decode(b"", final=True):
        if encoding != "utf-8":
            tally.note("cut character", "the last character is truncated")
        yield rest


def _split(chunks: Iterator[str], tally: IssueTally, max_line: int, wanted: Wanted) -> Iterator[TextLine]:
    number, pending = 1, ""
    with TextSearch() as search:
        for chunk in chunks:
            text = (pending + chunk).replace("\r\n", "\n")
            whole = text.rfind("\n") + 1
            pending = text[whole:]
            for piece in _pieces(text, whole, wanted):
                if len(piece) >= _PIECE_OF_ALL and piece.isspace():
                    # Skip many blank lines at once.
                    pass
                elif wanted.texts is None or len(piece) > MAX_LINE or not _is_unicode(piece):
                    for at, line in enumerate(piece[:-1].split("\n"), number):
                        yield from _parts(line, at, tally, max_line)
                else:
                    yield from _wanted_of(piece, number, tally, max_line, wanted, search)
                number += piece.count("\n")
            if len(pending) > max_line:
                yield from _parts(pending, number, tally, max_line)
                pending = ""
    if pending:
        yield from _parts(pending, number, tally, max_line, ended=False)


def _pieces(text: str, end: int, wanted: Wanted) -> Iterator[str]:
    """Split ``text`` up to ``end`` into pieces of whole lines, short enough that a change of ``wanted`` takes effect
    soon."""
    begin = 0
    while begin < end:
        size = _PIECE_OF_ALL if wanted.texts is None else _PIECE
        cut = text.find("\n", min(begin + size, end - 1)) + 1
        yield text[begin:cut]
        begin = cut


def _wanted_of(
    piece: str, number: int, tally: IssueTally, max_line: int, wanted: Wanted, search: TextSearch
) -> Iterator[TextLine]:
    texts: tuple[str, ...] | None = None
    begins: deque[int] = deque()
    at = 0
    while at < len(piece):
        if texts is not wanted.texts:
            texts = wanted.texts
            begins = deque(search.lines_with(texts or (), piece, at))
        while begins and begins[0] < at:
            begins.popleft()
        begin = at if wanted.every else begins[0] if begins else len(piece)
        number += piece.count("\n", at, begin)
        if begin == len(piece):
            return
        at = piece.index("\n", begin) + 1
        yield from _parts(piece[begin : at - 1], number, tally, max_line)
        number += 1


def _is_unicode(text: str) -> bool:
    """Whether ``text`` was valid UTF-8. Invalid bytes are represented by lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parts(line: str, number: int, tally: IssueTally, max_line: int, *, ended: bool = True) -> Sequence[TextLine]:
    if not line.isascii():
        line = _repaired(line, number, tally)
    if "\r" not in line and len(line) <= max_line:
        return (TextLine(number, line, ended),)
    parts = line.rstrip("\r").split("\r")
    if len(parts) > _FEW_PARTS and len(parts) * _SHORTEST_PART > len(line):
        parts = [part for part in parts if len(part) >= _SHORTEST_PART] or [""]
    for part in parts:
        if len(part) > max_line:
            tally.note("long line", f"a line is longer than {max_line} characters; the rest is ignored", number)
    return [TextLine(number, part[:max_line], ended) for part in parts]


def _repaired(line: str, number: int, tally: IssueTally) -> str:
    """Read ``line`` as Latin-1 if it was not valid UTF-8. Invalid bytes are represented by lone surrogates."""
    try:
        line.encode()
    except UnicodeEncodeError:
        tally.note("not UTF-8", "text that is not UTF-8 was read as Latin-1", number)
        return line.encode(errors="surrogateescape").decode("latin-1")
    return line
