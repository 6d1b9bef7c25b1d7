"""Copies a trace, and appends events of this program to its event array.

The text of an undamaged trace is kept byte for byte. A trace that is damaged, or from which secrets must be removed, is
rewritten as valid JSON from its readable events and metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson

from perftool.model.annotations import CATEGORY
from perftool.model.inputs import InputFile
from perftool.readers.files.stream import ByteStream
from perftool.readers.text.nested_json import as_json
from perftool.readers.trace.chrome_trace import ChromeTrace, Chunk
from perftool.readers.trace.event_text import objects_in
from perftool.readers.trace.time_text import unquote_times

# The first bytes of an event that an earlier run of this program added at the end of the array, and the phases of such
# events.
_OURS = b'{"cat":"%b"' % CATEGORY.encode()
_PHASES = frozenset("MBECsf")
# Earlier annotations are left in the copy if their total length, or the length of any one, exceeds these limits. That
# bounds the memory.
_LONGEST_OWN, _LONGEST_EVENT = 128 << 20, 1 << 20
_MOST_TRIES = 8
_SPACE = b" \t\r\n"


def splice(read: InputFile, added: Iterable[bytes], spool: Path, *, verbatim: bool = True) -> Iterator[bytes]:
    """Yield the text of the trace ``read`` with ``added`` inserted: pieces of one or more comma-separated events each.

    Leave out the events that an earlier run of this program added at the end. Without ``verbatim``, yield only the
    readable events and metadata. ``spool`` is an empty folder for temporary files. Raise InputError if the file can no
    longer be read.
    """
    if verbatim and read.status == "ok" and read.events_end is not None:
        yield from _verbatim(read.path, read.events_end, added)
    else:
        yield from _mended(read.path, added, spool)


def _verbatim(path: str, end: int, added: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text with ``added`` inserted at the offset ``end``, where the array closes."""
    last = b""
    with ByteStream(path) as stream:
        before, after = _split(stream.blocks(), end)
        for text in _before_own_events(before):
            last = text.rstrip(_SPACE)[-1:] or last
            yield text
        yield from _separated(last, added)
        yield from after


def _split(blocks: Iterator[bytes], end: int) -> tuple[Iterator[bytes], Iterator[bytes]]:
    """Split ``blocks`` at the offset ``end``. Read the first part completely before the second."""
    rest: list[bytes] = []

    def before() -> Iterator[bytes]:
        left = end
        while left > 0 and (block := next(blocks, b"")):
            yield block[:left]
            rest[:] = [block[left:]]
            left -= len(block)

    def after() -> Iterator[bytes]:
        yield from rest
        yield from blocks

    return before(), after()


def _before_own_events(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield ``blocks`` without the events that an earlier run added at their end. All blocks are consumed."""
    pending = b""
    held: bytearray | None = None
    blocks = iter(blocks)
    for block in blocks:
        if held is not None:
            held += block
            if len(held) > _LONGEST_OWN:
                break
            continue
        text = pending + block
        start = text.find(_OURS)
        cut = start if start >= 0 else max(len(text) - len(_OURS), 0)
        pending = text[cut:]
        if start >= 0:
            held, pending = bytearray(pending), b""
        yield text[:cut]
    whole = bytes(held) if held is not None else pending
    yield whole if len(whole) > _LONGEST_OWN else _without_own_events(whole)
    yield from blocks


def _without_own_events(text: bytes) -> bytes:
    """Return ``text``, the end of an event array, without the events that an earlier run added at its end.

    Only whole events that this program could have written are left out. They are parsed one by one, which bounds the
    memory.
    """
    kept = len(text)
    while (start := _own_event(text, _before_separators(text, kept))) is not None:
        kept = start
    return text[:kept]


def _before_separators(text: bytes, end: int) -> int:
    while end:
        # A copy of all of the text for each event would take quadratic time.
        start = max(0, end - 4096)
        if kept := text[start:end].rstrip(_SPACE + b","):
            return start + len(kept)
        end = start
    return 0


def _own_event(text: bytes, end: int) -> int | None:
    """Return where an event that an earlier run added starts in ``text``, if it ends at ``end``."""
    start, first = end, max(0, end - _LONGEST_EVENT)
    # The arguments of the event may contain _OURS, too.
    for _ in range(_MOST_TRIES):
        start = text.rfind(_OURS, first, start)
        if start < 0:
            break
        events = objects_in(text[start:end])
        if events is not None:
            return start if len(events) == 1 and events[0].get("ph") in _PHASES else None
    return None


def _separated(last: bytes, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Separate ``pieces`` by commas, and add one before them if the preceding byte ``last`` requires it."""
    for piece in pieces:
        if last not in (b"[", b","):
            yield b",\n"
        yield piece
        last = b"}"


def _mended(path: str, added: Iterable[bytes], spool: Path) -> Iterator[bytes]:
    trace = ChromeTrace(path, spool)
    pieces = _pieces(trace)
    # The head is known only after the first piece.
    first = next(pieces, b"")
    yield b"[" if trace.bare else b'{"traceEvents":['
    yield from _separated(b"[", _all(first, pieces, added))
    yield b"]" if trace.bare else _metadata(trace)


def _all(first: bytes, pieces: Iterator[bytes], added: Iterable[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from pieces
    yield from added


def _pieces(trace: ChromeTrace) -> Iterator[bytes]:
    """Yield the readable events of a trace, except those that an earlier run added."""
    for chunk in trace.chunks():
        text = _readable(trace, chunk)
        text = _without_own_events(text).rstrip(_SPACE + b",")
        if text:
            yield text
        chunk.path.unlink(missing_ok=True)


def _readable(trace: ChromeTrace, chunk: Chunk) -> bytes:
    """Return the events of a chunk, repaired if necessary, or no bytes if the event array ended before the chunk."""
    if trace.ended:
        return b""
    found: Chunk | None = chunk
    text = chunk.path.read_bytes()[1:-1]
    if objects_in(text) is None:
        found = trace.repair(chunk)
        text = found.path.read_bytes()[1:-1] if found else b""
    if objects_in(text) is None:
        # Drop values that are not objects, because viewers may reject the trace otherwise.
        text = b",".join(orjson.dumps(value) for value in orjson.loads(b"[" + text + b"]") if isinstance(value, dict))
    return unquote_times(text) if chunk.exact else text


def _metadata(trace: ChromeTrace) -> bytes:
    """Return the end of the document, with the metadata."""
    rest = {key: value for key, value in trace.metadata.items() if key != "traceEvents"}
    return b"]," + as_json(rest)[1:] if rest else b"]}"
