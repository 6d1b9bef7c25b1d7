"""Splits Chrome trace JSON (Kineto's format) into small, valid array files.

The event array is cut at event boundaries into chunks of a few megabytes. Each is written to the spool folder as a
separate JSON array, so that memory stays bounded and the store can read chunks in parallel. A boundary is usually found
in the last kilobytes of a block, and only the event before it is parsed here. ``repair`` mends chunks that the store
cannot parse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from perftool.errors import InputError
from perftool.model.inputs import ImportIssue
from perftool.readers.files.stream import ByteStream
from perftool.readers.trace import envelope, mend
from perftool.readers.trace.event_text import any_boundary, last_boundary, objects_in, parses
from perftool.readers.trace.time_text import is_lossy, quote_times
from perftool.units import quantity

# Approximate limit on the size of the head, which is the metadata before the events.
_LONGEST_HEAD = 32 << 20
# Text without a proven event boundary is collected up to this size, and then cut at a possible boundary.
_LONGEST_CARRY = 16 << 20
# Longer text without even a possible boundary is not an event.
_LONGEST_EVENT = 32 << 20


@dataclass(frozen=True)
class Chunk:
    """Consecutive events as one JSON array in the file ``path``. ``offset`` counts from the beginning of the input.

    In an ``exact`` chunk, times with decimals are JSON strings, because doubles would round them.
    """

    path: Path
    offset: int
    size: int
    exact: bool


class ChromeTrace:
    """Reads one trace file. ``metadata`` and ``issues`` are complete after ``finish``.

    The loader of the chunks sets ``not_objects`` (the number of elements in the event array that are not objects),
    ``without_event`` (objects without any event key) and ``repeated_keys`` (events that repeat a key). One thread
    may cut chunks while another repairs some. Once all chunks are cut, ``events_end`` is the offset of the bracket that
    closes the events; it is None if the offset is unknown, or if there is damage before it.
    """

    def __init__(self, path: str, spool: Path) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.issues: list[ImportIssue] = []
        self.truncated = False
        self.size = 0
        self.not_objects = 0
        self.without_event = 0
        self.repeated_keys = 0
        self._spool = spool
        self.bare = False
        self.ended = False
        self.events_end: int | None = None
        self._damaged = False
        self._last_offset = -1
        self._closing = b""
        self._exact = False
        # Results of repairs.
        self._mended = mend.Mended()
        self._foreign: dict[str, Any] = {}
        self._lost: list[ImportIssue] = []

    def chunks(self) -> Iterator[Chunk]:
        """Spool the events, and yield each chunk once its file is complete. The caller deletes the file.

        Raise InputError if the file cannot be read or contains no event array.
        """
        with ByteStream(self.path) as stream:
            blocks = stream.blocks()
            head, block, skipped = self._read_head(stream, blocks)
            if head.lines:
                block, blocks = envelope.lines_joined(block), map(envelope.lines_joined, blocks)
            self.metadata.update(head.metadata)
            self.bare = head.bare
            # JSON Lines have no closing `]`.
            self._damaged = head.damaged > 0 or head.lines
            if head.damaged:
                text = f"the metadata before the events is damaged: {head.damaged} or more keys could not be read"
                self.issues.append(ImportIssue("damaged metadata", head.damaged, text))
            yield from self._cut(block[head.start :], blocks, skipped + head.start)
            self.size = stream.size
            self.issues += stream.issues
            self.truncated = self.truncated or bool(stream.issues)

    def repair(self, chunk: Chunk) -> Chunk | None:
        """Write the readable events of a chunk that does not parse to a new chunk; return None if there are none.

        Also detect the end of the event array inside the chunk. Call this in file order.
        """
        if self.ended:
            return None
        data = chunk.path.read_bytes()[1:-1]
        end = envelope.scan_end(data, 0)
        if end is not None:
            self.ended = True
            # Quotes around times shift all later offsets.
            self.events_end = None if chunk.exact else chunk.offset + end
            closing = self._closing if chunk.offset == self._last_offset else b""
            self._read_foreign(data[end + 1 :] + closing)
            data = data[:end]
        self._damaged = self._damaged or objects_in(data) is None
        mended = mend.mend_events(data, chunk.offset)
        self._mended.add(mended)
        if not mended.events:
            return None
        text = b",".join(mended.events)
        return self._spooled([text], chunk.offset, exact=chunk.exact or is_lossy(text))

    def finish(self) -> None:
        """Turn repairs and losses into issues. Call this once, after the last chunk was loaded."""
        found = self._mended
        self.metadata.update(self._foreign)
        self.issues += self._lost
        if self._damaged:
            self.events_end = None
        if self.ended:
            # The array was closed before the last chunk, so the trace is not truncated.
            self.issues = [issue for issue in self.issues if issue.kind != "cut off"]
            self.truncated = any(issue.kind == "damaged compression" for issue in self.issues)
        if second := self.metadata.pop("traceEvents", None):
            unused = len(second) if isinstance(second, list) else 1
            words = "in a second traceEvents array"
            text = f"{quantity(unused, f'event {words} was', f'events {words} were')} left out"
            self.issues.append(ImportIssue("second event array", unused, text))
        if found.repaired:
            text = f"{quantity(found.repaired, 'event', 'events')} repaired, the first at byte {found.first_repair:,}"
            self.issues.append(ImportIssue("repaired events", found.repaired, text, offset=found.first_repair))
        if found.dropped:
            text = (
                f"{quantity(found.dropped, 'event', 'events')} ({found.dropped_bytes:,} bytes) could not be read, "
                f"the first at byte {found.first_drop:,}"
            )
            issue = ImportIssue("dropped events", found.dropped, text, found.dropped_bytes, found.first_drop)
            self.issues.append(issue)
        if self.without_event:
            words = "in the event array without any event key"
            text = f"{quantity(self.without_event, f'object {words} was', f'objects {words} were')} left out"
            self.issues.append(ImportIssue("unknown events", self.without_event, text))
        if self.repeated_keys:
            one, many = "event contains a key twice, so its", "events contain a key twice, so their"
            text = f"{quantity(self.repeated_keys, one, many)} contents are uncertain"
            self.issues.append(ImportIssue("repeated keys", self.repeated_keys, text))
        if self.not_objects:
            one = "element of the event array is not an object and was"
            many = "elements of the event array are not objects and were"
            text = f"{quantity(self.not_objects, one, many)} left out"
            self.issues.append(ImportIssue("unknown events", self.not_objects, text))

    def lost(self, chunk: Chunk, why: str) -> None:
        """Record that a whole chunk could not be loaded, even after repair."""
        text = f"{chunk.size:,} bytes from byte {chunk.offset:,} could not be parsed: {why}"
        self._lost.append(ImportIssue("dropped text", 1, text, chunk.size, chunk.offset))

    def _read_head(self, stream: ByteStream, blocks: Iterator[bytes]) -> tuple[envelope.Head, bytes, int]:
        """Return the head, the text that contains it, and the size of the blank text before that."""
        parts: list[bytes] = []
        size = skipped = looked_at = 0
        for block in blocks:
            if not parts and not block.strip():
                skipped += len(block)
                continue
            parts.append(block)
            size += len(block)
            # Parse again only at twice the size, so that the time for a long head is linear.
            if looked_at and size < min(2 * looked_at, _LONGEST_HEAD):
                continue
            parts, looked_at = [b"".join(parts)], size
            if (head := self._head(parts[0])) is not None:
                return head, parts[0], skipped
            if size > _LONGEST_HEAD:
                break
        data = b"".join(parts)
        if size > looked_at and (head := self._head(data)) is not None:
            return head, data, skipped
        if stream.issues and not data:
            raise InputError(f"{self.path}: {stream.issues[0].message}")
        if not data.removeprefix(envelope.UTF8_BOM).strip():
            raise InputError(f"{self.path}: empty file")
        if not _begins_like_json(data):
            raise InputError(f"{self.path}: not JSON, so not a trace")
        if stream.issues:
            raise InputError(f"{self.path}: {stream.issues[0].message}, and no trace event comes before that")
        raise InputError(f"{self.path}: JSON without a traceEvents array, so not a trace")

    def _head(self, data: bytes) -> envelope.Head | None:
        """Return the head in ``data``, the beginning of a file. Raise InputError if ``data`` cannot belong to a
        trace.
        """
        if not _begins_like_json(data):
            raise InputError(f"{self.path}: not JSON, so not a trace")
        head = envelope.read_head(data)
        return envelope.Head(0, bare=True, lines=True) if head is None and envelope.is_event_line(data) else head

    def _cut(self, first: bytes, blocks: Iterator[bytes], offset: int) -> Iterator[Chunk]:
        """Write one chunk per block, cut at its last event boundary. The rest is added to the next block."""
        carry: list[bytes | memoryview] = []
        carried = 0
        for block in _prepend(first, blocks):
            cut = last_boundary(block)
            if cut is None and carried > _LONGEST_CARRY:
                cut = any_boundary(block)
            if cut is None:
                carry.append(block)
                carried += len(block)
                if carried <= _LONGEST_EVENT:
                    continue
                block, carry, carried = b"".join(carry), [], 0
                cut = any_boundary(block)
            if cut is None:
                self._drop(offset, len(block))
                offset += len(block)
                continue
            end, restart = cut
            view = memoryview(block)
            chunk = self._write([*carry, view[:end]], offset)
            offset += carried + restart
            carry, carried = [view[restart:]], len(block) - restart
            yield chunk
        last = self._close(b"".join(carry), offset)
        if last is not None:
            yield last

    def _drop(self, offset: int, size: int) -> None:
        self._damaged = True
        text = f"{size:,} bytes from byte {offset:,} contain no event, and were not used"
        self.issues.append(ImportIssue("dropped text", 1, text, size, offset))

    def _close(self, data: bytes, offset: int) -> Chunk | None:
        """Write the last chunk: the text before the end of the event array, or all text if the file is truncated."""
        tail = envelope.read_tail(data, bare=self.bare)
        if tail is not None:
            if tail.unread:
                self._lost.append(_unused(len(data) - tail.end))
            self.metadata.update(tail.metadata)
            self.events_end = offset + tail.end
            # If it turns out that the array ends earlier, this text is part of the metadata.
            self._last_offset, self._closing = offset, data[tail.end :]
            data = data[: tail.end]
            if data.rstrip().endswith(b","):
                self.issues.append(ImportIssue("trailing comma", 1, "there is a comma after the last event"))
        elif not self.bare or _needs_mending(data):
            self.truncated = True
            self.issues.append(ImportIssue("cut off", 1, "the file ends before the event array is closed"))
        data = data.strip(b" \t\r\n,")
        return self._write([data], offset) if data else None

    def _write(self, parts: Sequence[bytes | memoryview], offset: int) -> Chunk:
        self._exact = self._exact or any(map(is_lossy, parts))
        return self._spooled(parts, offset, exact=self._exact)

    def _spooled(self, parts: Sequence[bytes | memoryview], offset: int, *, exact: bool) -> Chunk:
        path = self._spool / f"{offset:015d}.json"
        if exact:
            # Join first, because a number may span two parts.
            parts = [quote_times(b"".join(parts))]
        with open(path, "wb", buffering=0) as file:
            size = sum(file.write(part) for part in (b"[", *parts, b"]"))
        return Chunk(path, offset, size, exact)

    def _read_foreign(self, data: bytes) -> None:
        """Keep the metadata after the events, if it fits in one chunk."""
        try:
            if envelope.is_dense(data):
                self._lost.append(_unused(len(data)))
            else:
                text = data.strip().lstrip(b",")
                self._foreign.update(envelope.after_events(text if text.startswith(b"}") else b"," + text))
        except orjson.JSONDecodeError:
            self._lost.append(_unused(len(data) if data.strip() else 0))


def _unused(size: int) -> ImportIssue:
    text = f"{size:,} bytes after the event array were not used"
    return ImportIssue("text after the events", 1, text if size else "the file ends right after the event array", size)


def _needs_mending(data: bytes) -> bool:
    """Whether ``data`` is more than whole events, for example because the writer was killed."""
    events = data.strip(b" \t\r\n,")
    return bool(events) and not parses(events)


def _prepend(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _begins_like_json(data: bytes) -> bool:
    text = data.removeprefix(envelope.UTF8_BOM).lstrip()
    return not text or text[:1] in (b"{", b"[")
