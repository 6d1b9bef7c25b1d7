"""Loads the CSV of the native Synapse profiler into the raw table, in the form of a Kineto trace of the same run."""

from __future__ import annotations

import string
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import orjson

from perftool.model.inputs import InputFile
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.trace.profiler_csv import CounterSample, ProfilerSlice, iter_records
from perftool.store.load import insert_events

_BATCH = 50_000
_HARDWARE = "HW"


def load_csv(connection: duckdb.DuckDBPyConnection, path: str, rank: int) -> InputFile:
    """Append the work and the counters of a profiler's CSV as events of ``rank``; ignore other records."""
    tally = IssueTally()
    records = iter_records(path, tally)
    lanes: set[_Lane] = set()
    count = 0
    with tempfile.TemporaryDirectory(prefix="perftool-") as folder:
        file = Path(folder) / "events.json"
        while batch := list(islice(records, _BATCH)):
            events = [*_lanes(batch, lanes), *map(_event, batch)]
            file.write_bytes(orjson.dumps(events))
            insert_events(connection, [file], rank, exact=True)
            count += len(batch)
    issues = tally.issues()
    size = Path(path).stat().st_size
    return InputFile(path, "trace", rank, size, count, "repaired" if issues else "ok", issues)


class _Lane(NamedTuple):
    """A thread of a process; ``device`` is the number of the card, or None on the host."""

    pid: str
    tid: str
    device: str | None


def _event(record: ProfilerSlice | CounterSample) -> dict[str, Any]:
    lane = _lane(record)
    place = {"pid": lane.pid, "tid": lane.tid, "ts": _microseconds(record.ts_ns)}
    if isinstance(record, CounterSample):
        return {"ph": "C", "cat": "SPMU", "name": record.name, **place, "args": {record.name: record.value}}
    return {
        "ph": "X", "cat": "Runtime", "name": record.operation or record.name, **place,
        "dur": _microseconds(record.dur_ns), "args": {key: value for key, value in _args(record) if value},
    }  # fmt: skip


def _args(work: ProfilerSlice) -> Iterator[tuple[str, object]]:
    """Yield the arguments of an event, named as Gaudi's bridge names them."""
    yield "recipeId", work.recipe_id
    yield "recipeName", work.recipe
    yield "recipeHandle", work.recipe_handle
    yield "dataType", work.dtype
    yield "streamHandle", work.stream
    yield "EventName", work.name
    yield "HW event name", work.hw_event
    yield "Unique Node ID", work.node_id


def _lanes(batch: list[ProfilerSlice | CounterSample], known: set[_Lane]) -> Iterator[dict[str, Any]]:
    """Yield metadata events that name the lanes of ``batch`` that are not yet ``known``."""
    for lane in dict.fromkeys(map(_lane, batch)):
        if lane not in known:
            known.add(lane)
            if lane.device is not None:
                yield _named("process_name", lane, f"/device:HPU:{lane.device}")
            yield _named("thread_name", lane, f"Synapse/{lane.tid}" if lane.device is None else lane.tid)


def _named(kind: str, lane: _Lane, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": lane.pid, "tid": lane.tid, "args": {"name": name}}


def _lane(record: ProfilerSlice | CounterSample) -> _Lane:
    """Return the lane of ``record``. As in the traces of Gaudi's bridge, a device is a process, and an engine is a
    thread.
    """
    if isinstance(record, ProfilerSlice) and record.source.strip().upper() != _HARDWARE:
        return _Lane("host", record.engine, None)
    device = record.device or "device"
    return _Lane(device, record.engine, device[len(device.rstrip(string.digits)) :] or "0")


def _microseconds(ns: int) -> str:
    """Return ``ns`` in microseconds, as text, so that no digit is lost."""
    return f"{ns // 1000}.{ns % 1000:03d}"
