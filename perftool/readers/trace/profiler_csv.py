"""Reads the CSV of the native Synapse profiler (``hl-prof-config --invoc csv``).

A slice is a BEGIN row and an END row of the same engine, recipe, context and node. Their names are not compared,
because contexts without a name get the name of the hardware port. An END is matched with the oldest open BEGIN, because
an engine works in order. On Gaudi 3 an MME op spans SB0_START_EVT to WB0_END and a TPC kernel TPC_SPU_START to
TPC_SPU_START_TO_SPU_HALT; all other monitor points are INSTANT rows, which are not work. A COUNTER row samples a
hardware counter (SPMU) of its engine.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from os import PathLike, fspath

from perftool.errors import InputError
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.text_lines import Source, detect_encoding, read_lines

COLUMNS = ("Name", "Trace Source", "Engine", "Event type", "Timestamp[usec]")
_NS_PER_US = 1000
# 64-bit integers have at most 20 digits.
_WHOLE = re.compile(r"-?[0-9]{1,20}")
# The first two lines of a table are shorter.
_HEAD = 1 << 16
# 292 years. Larger times do not fit into a 64-bit column.
_MAX_NS = 2**63


@dataclass(frozen=True, slots=True)
class ProfilerSlice:
    """One slice of work on one engine. ``ts_ns`` and ``dur_ns`` are on the profiler's own clock.

    ``engine`` is as printed, e.g. ``[HD0] TPC 5``; ``source`` is ``HW`` for the device. ``recipe_id`` has only 8,190
    values, and is None if there is no recipe; ``recipe_handle`` distinguishes recipes with the same ID. ``operation``
    is the kernel, ``name`` the graph node, ``node_id`` the node's number in the graph, and ``hw_event`` the hardware
    monitor point that ended the work.
    """

    name: str
    source: str
    engine: str
    ts_ns: int
    dur_ns: int
    recipe_id: int | None = None
    recipe: str | None = None
    recipe_handle: str | None = None
    device: str | None = None
    operation: str | None = None
    dtype: str | None = None
    hw_event: str | None = None
    stream: str | None = None
    node_id: str | None = None


@dataclass(frozen=True, slots=True)
class CounterSample:
    """The value of an engine's hardware counter at ``ts_ns``, as printed: a signed 64-bit integer. Negative values have
    wrapped around."""

    name: str
    engine: str
    ts_ns: int
    value: int
    device: str | None = None


@dataclass
class _Pairing:
    """Pairs BEGIN and END rows. ``open_begins`` contains the BEGIN rows that still have no END."""

    tally: IssueTally
    open_begins: dict[tuple[str, ...], deque[dict[str, str]]] = field(default_factory=dict)

    def take(self, row: dict[str, str]) -> ProfilerSlice | CounterSample | None:
        """Return the slice that ``row`` completes or the sample that it contains, or None for other rows."""
        event = row["Event type"].strip().upper()
        if event == _SAMPLE:
            return _sample(row, self.tally)
        key = tuple(row.get(column, "") for column in _IDENTITY)
        if event == "BEGIN":
            self.open_begins.setdefault(key, deque()).append(row)
        elif event == "END":
            waiting = self.open_begins.get(key)
            if waiting:
                return _slice(waiting.popleft(), row, self.tally)
            self.tally.note("end without begin", "work that began before the recording")
        elif event != _POINT:
            self.tally.note("unknown event type", f"the event type {event[:40]!r} is unknown")
        return None

    def finish(self) -> None:
        """Count the BEGIN rows that have no END."""
        for _ in range(sum(map(len, self.open_begins.values()))):
            self.tally.note("begin without end", "work that ends after the recording")


_SAMPLE, _POINT = "COUNTER", "INSTANT"
_IDENTITY = ("Device", "Engine", "Recipe ID", "Context ID", "Unique Node ID")


def iter_records(source: Source, tally: IssueTally) -> Iterator[ProfilerSlice | CounterSample]:
    """Yield samples, and slices in the order of their ends, so that only unfinished work takes memory.

    ``tally`` counts dropped rows. Raise InputError if the file cannot be opened or read, or if its first line is not
    the profiler's header.
    """
    path = fspath(source) if isinstance(source, (str, PathLike)) else "input"
    lines = (line.text.replace("\0", "") for line in read_lines(source, tally))
    header = next(lines, "")
    if not is_profiler_header(header):
        raise InputError(f"{path}: the first line is not the header of a profiler CSV")
    columns = [column.strip() for column in header.lstrip("\ufeff").split(",")]
    pairing = _Pairing(tally)
    for row in _rows(lines, columns, tally):
        if (done := pairing.take(row)) is not None:
            yield done
    pairing.finish()


def is_profiler_header(line: str) -> bool:
    """Whether ``line`` contains the column names that every release of the profiler writes."""
    return set(COLUMNS) <= {column.strip() for column in line.lstrip("\ufeff").split(",")}


def is_profiler_csv(path: str) -> bool:
    """Whether a file is named ``.csv`` and its first line is the header of the profiler's CSV."""
    return path.lower().endswith(".csv") and is_profiler_header(_first_lines(path)[0])


def stated_device(path: str) -> str:
    """Return the device in the first row of the profiler's CSV at ``path``, or an empty string if it names none."""
    header, first = _first_lines(path)
    columns = [column.strip() for column in header.lstrip("\ufeff").split(",")]
    return dict(zip(columns, _cells(first), strict=False)).get("Device", "").strip()


def _first_lines(path: str) -> tuple[str, str]:
    """Return the first two lines of a file, or two empty strings if it cannot be read."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return "", ""
    encoding, mark = detect_encoding(head)
    lines = [*head[mark:].decode(encoding, errors="replace").replace("\0", "").split("\n", 2), ""]
    return lines[0].rstrip("\r"), lines[1].rstrip("\r")


def _rows(lines: Iterator[str], columns: list[str], tally: IssueTally) -> Iterator[dict[str, str]]:
    needed = 1 + max(map(columns.index, COLUMNS))
    for line in lines:
        if not line:
            continue
        values = _cells(line)
        if len(values) < needed:
            tally.note("short row", "a row has too few columns")
        else:
            yield dict(zip(columns, values, strict=False))


def _cells(line: str) -> list[str]:
    """Return the cells of one row. Lines are parsed one by one, so a stray quote affects only its own line."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _slice(begin: dict[str, str], end: dict[str, str], tally: IssueTally) -> ProfilerSlice | None:
    start_ns, end_ns = _ns(begin["Timestamp[usec]"]), _ns(end["Timestamp[usec]"])
    if start_ns is None or end_ns is None or end_ns < start_ns:
        tally.note("bad time", "a slice has no valid start and end")
        return None
    recipe_id = begin.get("Recipe ID", "")
    return ProfilerSlice(
        name=begin["Name"],
        source=begin["Trace Source"],
        engine=begin["Engine"],
        ts_ns=start_ns,
        dur_ns=end_ns - start_ns,
        recipe_id=int(recipe_id) if re.fullmatch(r"[0-9]{1,9}", recipe_id) else None,
        recipe=begin.get("Recipe name") or None,
        recipe_handle=begin.get("recipeHandle") or None,
        device=begin.get("Device") or None,
        operation=begin.get("Operation") or end.get("Operation") or None,
        dtype=begin.get("Data Type") or end.get("Data Type") or None,
        hw_event=end.get("HW Event description") or None,
        stream=begin.get("streamHandle") or None,
        node_id=begin.get("Unique Node ID") or None,
    )


def _sample(row: dict[str, str], tally: IssueTally) -> CounterSample | None:
    at_ns, value = _ns(row["Timestamp[usec]"]), row.get("SPMU value", "").strip()
    if at_ns is None or not _WHOLE.fullmatch(value):
        if value:
            tally.note("bad sample", "a counter sample has no valid time or value")
        return None
    return CounterSample(row["Name"], row["Engine"], at_ns, int(value), row.get("Device") or None)


def _ns(text: str) -> int | None:
    """Convert printed microseconds to nanoseconds exactly; a float would round them."""
    try:
        value = Decimal(text.strip())
        return round(value * _NS_PER_US) if 0 <= value < _MAX_NS // _NS_PER_US else None
    except (InvalidOperation, ValueError):
        return None
