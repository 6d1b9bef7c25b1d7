"""Formats the trace of a simulated run like one from a Gaudi, and writes the files of the run."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from perftool.errors import PerfToolError
from perftool.model.devices import DeviceFacts
from perftool.output_file import write_errors_named, write_file
from perftool.sim.machine.recorder import MAIN, Event

# The zero of the trace's relative times; like Kineto's, it is the start of a three-month interval.
BASE_NS = 1_727_743_122_000_000_000
NOTE = "simulated by habana_perf_tool: virtual time, not recorded on a device"
# Before its events, and within this many bytes, a simulated trace says that it is simulated.
_HEAD_BYTES = 64 << 10


@dataclass(frozen=True)
class About:
    """The top-level metadata of the trace. ``interrupted`` says why the run ended early.

    ``rank`` is the rank that wrote the trace; ``ranks`` is the number of ranks.
    """

    device: DeviceFacts
    mode: str
    interrupted: str | None = None
    rank: int = 0
    ranks: int = 1


def trace_bytes(about: About, metadata: Sequence[Event], events: Sequence[Event]) -> bytes:
    """Return the trace as JSON on one line, with sorted keys; the bridge's events follow Kineto's closing record."""
    kineto = [event for event in events if event.pid == MAIN]
    others = [event for event in events if event.pid != MAIN]
    begin = min((event.ts_ns for event in events), default=0)
    end = max((event.ts_ns + (event.dur_ns or 0) for event in events), default=0)
    ordered = [*metadata, *kineto, *_closing(begin, end), *others]
    top: dict[str, object] = {
        "baseTimeNanoseconds": BASE_NS,
        "deviceProperties": [
            {"name": about.device.name, "simulated": True, "totalGlobalMem": about.device.memory_bytes}
        ],
        "displayTimeUnit": "ms",
        "schemaVersion": 1,
        "simulated": {"mode": about.mode, "note": NOTE},
        "traceEvents": [_object(event) for event in ordered],
        "traceName": "simulated.pt.trace.json",
        "with_stack": 0,
    }
    if about.ranks > 1:
        top["distributedInfo"] = {"backend": "hccl", "rank": about.rank, "world_size": about.ranks}
    if about.interrupted:
        top["interrupted"] = about.interrupted
    return orjson.dumps(top, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def write(path: Path, data: bytes) -> None:
    """Write ``data``, compressed if the name ends in ``.gz``. Raise PerfToolError if ``path`` cannot be written."""
    _make_folder(path)
    write_file([gzip.compress(data, 6, mtime=0) if path.suffix == ".gz" else data], path)


def require_replaceable(trace: Path, log: Path, metrics: Path) -> None:
    """Raise PerfToolError if writing the files of a run would replace a file that is not from a simulation.

    Nothing in a metrics file says that it is simulated, so the trace and the log next to it must say so.
    """
    # Another process may be writing these files; it writes the metrics last. The checks are functions, so that the
    # trace and the log are read only after the metrics file was found: both are complete by then.
    checks: dict[Path, Callable[[], bool]] = {
        trace: lambda: _is_simulated_trace(trace),
        log: lambda: _is_simulated_log(log),
        metrics: lambda: _is_simulated_trace(trace) and _is_simulated_log(log),
    }
    for path, is_simulated in checks.items():
        # Devices and pipes are not replaced, and folders cannot be.
        if path.is_file() and not is_simulated():
            raise PerfToolError(f"{path} would be overwritten, but it is not from a simulation; choose another -o")


def _is_simulated_trace(path: Path) -> bool:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        top = orjson.loads(head[: head.index(b',"traceEvents":')] + b"}")
        return bool(top["simulated"]["note"] == NOTE)
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
        return False


def _is_simulated_log(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(NOTE)) == NOTE.encode()
    except OSError:
        return False


def require_writable(path: Path) -> None:
    """Create the folder of ``path`` and check that ``path`` can be written. Raise PerfToolError if it cannot."""
    _make_folder(path)
    # Writing to a symbolic link writes to its target.
    path = Path(os.path.realpath(path))
    existed = path.exists()
    # A device or a pipe cannot be tested without writing to it.
    if existed and not path.is_file() and not path.is_dir():
        return
    with write_errors_named(path):
        path.open("ab").close()
    if not existed:
        path.unlink()


def _make_folder(path: Path) -> None:
    with write_errors_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)


def _closing(begin: int, end: int) -> list[Event]:
    return [
        Event("X", "PyTorch Profiler (0)", "Spans", "PyTorch Profiler", begin, end - begin, "Trace", {"Op count": 0}),
        Event("i", "Record Window End", "", "", end),
    ]


def _object(event: Event) -> dict[str, object]:
    row: dict[str, object] = {"name": event.name, "ph": event.ph, "pid": event.pid, "tid": event.tid}
    row["ts"] = event.ts_ns / 1000
    if event.dur_ns is not None:
        row["dur"] = event.dur_ns / 1000
    if event.cat:
        row["cat"] = event.cat
    if event.args is not None:
        row["args"] = dict(event.args)
    if event.ph == "i":
        row["s"] = "g"
    return row
