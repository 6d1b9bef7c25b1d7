"""The native Synapse profiler's CSV into the raw table, as the events a JSON trace of the same run would hold."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import orjson

from perftool.model.inputs import InputFile
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.trace.profiler_csv import ProfilerSlice, is_profiler_header, iter_slices
from perftool.store.load import insert_events

_BATCH = 50_000
# What the bridge calls the device, and a process id of its own for what the host did.
_DEVICE_PID, _HOST_PID = "0", "2"
_HARDWARE = "HW"


def is_profiler_csv(path: str) -> bool:
    """Whether the first line of a file is the header of the profiler's CSV."""
    if not path.lower().endswith(".csv"):
        return False
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return is_profiler_header(file.readline(1 << 16))
    except OSError:
        return False


def load_csv(connection: duckdb.DuckDBPyConnection, path: str, rank: int) -> InputFile:
    """Append the work of one profiler CSV under ``rank``; rows that show no work are only counted by the reader."""
    tally = IssueTally()
    slices = iter_slices(path, tally)
    lanes: set[tuple[str, str]] = set()
    count = 0
    with tempfile.TemporaryDirectory(prefix="perftool-") as folder:
        file = Path(folder) / "events.json"
        while batch := list(islice(slices, _BATCH)):
            events = [*_lanes(batch, lanes), *map(_event, batch)]
            file.write_bytes(orjson.dumps(events))
            insert_events(connection, [file], rank, exact=True)
            count += len(batch)
    issues = tally.issues()
    size = Path(path).stat().st_size
    return InputFile(path, "trace", rank, size, count, "repaired" if issues else "ok", issues)


def _event(work: ProfilerSlice) -> dict[str, Any]:
    pid, tid = _lane(work)
    return {
        "ph": "X", "cat": "Runtime", "name": work.operation or work.name, "pid": pid, "tid": tid,
        "ts": _microseconds(work.ts_ns), "dur": _microseconds(work.dur_ns),
        "args": {
            "recipeId": work.recipe_id or 0, "recipeName": work.recipe or "", "dataType": work.dtype or "",
            "streamHandle": work.stream or "", "EventName": work.name,
        },
    }  # fmt: skip


def _lanes(batch: list[ProfilerSlice], known: set[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Name each lane when it is first seen."""
    for pid, tid in dict.fromkeys(map(_lane, batch)):
        if (pid, tid) not in known:
            known.add((pid, tid))
            if pid == _DEVICE_PID:
                yield _named("process_name", pid, tid, "/device:HPU:0")
            yield _named("thread_name", pid, tid, tid if pid == _DEVICE_PID else f"Synapse/{tid}")


def _named(kind: str, pid: str, tid: str, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _lane(work: ProfilerSlice) -> tuple[str, str]:
    return (_DEVICE_PID if work.source.strip().upper() == _HARDWARE else _HOST_PID), work.engine


def _microseconds(ns: int) -> str:
    """As text, which keeps every digit."""
    return f"{ns // 1000}.{ns % 1000:03d}"
