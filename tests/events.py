"""Creates events of a Chrome trace, one per call. Times are microseconds, as in the files."""

from __future__ import annotations

from typing import Any

import orjson

Event = dict[str, Any]

HOST = {"pid": 1, "tid": 1}
"""The thread that feeds the device; a stream is the lane ``pid`` 0 with the stream's number as ``tid``."""


def x(name: str, ts: float, dur: float, cat: str = "cpu_op", pid: Any = 1, tid: Any = 1, **args: Any) -> Event:
    event: Event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    return {**event, "args": args} if args else event


def begin(name: str, ts: float, cat: str = "cpu_op", **where: Any) -> Event:
    return {"ph": "B", "cat": cat, "name": name, **HOST, **where, "ts": ts}


def end(ts: float, name: str | None = None, **where: Any) -> Event:
    event: Event = {"ph": "E", **HOST, **where, "ts": ts}
    return {**event, "name": name} if name else event


def meta(name: str, value: str, pid: Any = 1, tid: Any = 1) -> Event:
    """Return the metadata event that names a process or a thread."""
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": {"name": value}}


def instant(name: str, ts: float, **args: Any) -> Event:
    return {"ph": "i", "name": name, "cat": "cpu_instant_event", **HOST, "s": "t", "ts": ts, "args": args}


def step(number: int, ts: float, dur: float, cat: str = "user_annotation") -> Event:
    return x(f"ProfilerStep#{number}", ts, dur, cat)


def loader(ts: float, dur: float, kind: str = "_SingleProcessDataLoaderIter", **where: Any) -> Event:
    return x(f"enumerate(DataLoader)#{kind}.__next__", ts, dur, "user_annotation", **where)


def runtime(name: str, ts: float, dur: float, correlation: int | None = None, **args: Any) -> Event:
    """Return a host call to the device runtime."""
    return x(name, ts, dur, "cuda_runtime", **({} if correlation is None else {"correlation": correlation}), **args)


def kernel(name: str, ts: float, dur: float, correlation: int | None = None, stream: int = 7, **args: Any) -> Event:
    """Return a kernel, or a copy or fill if ``cat`` says so."""
    cat = args.pop("cat", "kernel")
    linked = {} if correlation is None else {"correlation": correlation}
    return x(name, ts, dur, cat, pid=0, tid=stream, device=0, stream=stream, **linked, **args)


def memcpy(name: str, ts: float, dur: float, correlation: int | None = None, **args: Any) -> Event:
    return kernel(name, ts, dur, correlation, cat="gpu_memcpy", **args)


def memset(ts: float, dur: float, correlation: int | None = None, **args: Any) -> Event:
    return kernel("Memset (Device)", ts, dur, correlation, cat="gpu_memset", **args)


def launch(correlation: int, at: float, dur: float, work_at: float, work_dur: float, name: str = "k") -> list[Event]:
    """Return a launch call and the kernel that it launches."""
    return [
        runtime("cudaLaunchKernel", at, dur, correlation),
        kernel(name, work_at, work_dur, correlation),
    ]


def document(events: list[Event], **metadata: Any) -> bytes:
    """Return the bytes of a trace file with the metadata and the events."""
    return orjson.dumps({**metadata, "traceEvents": events})
