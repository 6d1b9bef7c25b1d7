"""The CSV flavour of the native Synapse profiler (``HABANA_PROFILE=1``, ``hl-prof-config``).

A piece of work is a BEGIN row and an END row of the same engine, recipe, context and node. Their names can
differ (contexts without a name are called after the hardware port), and an engine works in order, so the
oldest BEGIN belongs to the next END. On Gaudi 3 an MME op spans SB0_START_EVT to WB0_END and a TPC kernel
TPC_SPU_START to TPC_SPU_START_TO_SPU_HALT; every other monitor point is an INSTANT and is not work.
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
from perftool.readers.text.text_lines import Source, read_lines

COLUMNS = ("Name", "Trace Source", "Engine", "Event type", "Timestamp[usec]")
HLTV_SUFFIX = ".hltv"
HLTV_MESSAGE = (
    "{path}: is in the binary format of the HLTV viewer; "
    "run `hl-prof-config --invoc json --merged json` and record again to get JSON"
)
_NS_PER_US = 1000
# 292 years: more is damage, and would not fit a 64-bit column.
_MAX_NS = 2**63


@dataclass(frozen=True, slots=True)
class ProfilerSlice:
    """One piece of work on one engine, ``ts_ns`` and ``dur_ns`` of the profiler's own clock.

    ``engine`` is as printed, e.g. ``[HD0] TPC 5``; ``source`` is ``HW`` for the device. ``recipe_id`` is
    the 16-bit number that wraps, None when there is none. ``operation`` is the kernel, ``name`` the graph
    node.
    """

    name: str
    source: str
    engine: str
    ts_ns: int
    dur_ns: int
    recipe_id: int | None = None
    recipe: str | None = None
    device: str | None = None
    operation: str | None = None
    dtype: str | None = None
    hw_event: str | None = None
    stream: str | None = None


@dataclass
class _Pairing:
    """Rows seen so far that still wait for their END."""

    tally: IssueTally
    begun: dict[tuple[str, ...], deque[dict[str, str]]] = field(default_factory=dict)

    def take(self, row: dict[str, str]) -> ProfilerSlice | None:
        """The slice that ``row`` completes, if it does."""
        event = row["Event type"].strip().upper()
        key = tuple(row.get(column, "") for column in _IDENTITY)
        if event == "BEGIN":
            self.begun.setdefault(key, deque()).append(row)
        elif event == "END":
            waiting = self.begun.get(key)
            if waiting:
                return _slice(waiting.popleft(), row, self.tally)
            self.tally.note("end without begin", "work ends that began before the recording")
        elif event not in _NO_WORK:
            self.tally.note("unknown event type", f"event type {event[:40]!r} is not known")
        return None

    def finish(self) -> None:
        """Count what never ended."""
        for _ in range(sum(map(len, self.begun.values()))):
            self.tally.note("begin without end", "work began that ends after the recording")


_NO_WORK = {"INSTANT", "COUNTER"}
_IDENTITY = ("Device", "Engine", "Recipe ID", "Context ID", "Unique Node ID")


def iter_slices(source: Source, tally: IssueTally) -> Iterator[ProfilerSlice]:
    """Yield the slices one by one, in the order of their ends: a file of gigabytes needs only memory for its open work.

    What is dropped goes to ``tally``. Raises InputError when the file cannot be opened or read, when it is the binary
    ``.hltv`` or when its first line is not the profiler's header.
    """
    path = fspath(source) if isinstance(source, (str, PathLike)) else "input"
    reject_hltv(path)
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
    """Whether ``line`` names the columns that every release of the profiler writes."""
    return set(COLUMNS) <= {column.strip() for column in line.lstrip("\ufeff").split(",")}


def reject_hltv(path: str) -> None:
    """Raise InputError, saying how to get JSON instead, when ``path`` names the viewer's binary format."""
    if path.lower().endswith(HLTV_SUFFIX):
        raise InputError(HLTV_MESSAGE.format(path=path))


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
    """The cells of one row; reading line by line keeps a stray quote from swallowing the rest of the file."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _slice(begin: dict[str, str], end: dict[str, str], tally: IssueTally) -> ProfilerSlice | None:
    start_ns, end_ns = _ns(begin["Timestamp[usec]"]), _ns(end["Timestamp[usec]"])
    if start_ns is None or end_ns is None or end_ns < start_ns:
        tally.note("bad time", "a piece of work has no valid start and end")
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
        device=begin.get("Device") or None,
        operation=begin.get("Operation") or end.get("Operation") or None,
        dtype=begin.get("Data Type") or end.get("Data Type") or None,
        hw_event=end.get("HW Event description") or None,
        stream=begin.get("streamHandle") or None,
    )


def _ns(text: str) -> int | None:
    """Microseconds as printed, exactly: absolute times lose nanoseconds in a float."""
    try:
        value = Decimal(text.strip())
        return round(value * _NS_PER_US) if 0 <= value < _MAX_NS // _NS_PER_US else None
    except (InvalidOperation, ValueError):
        return None
