"""Writes the events of a case to trace files, and adds omitted keys as PyTorch or Gaudi's bridge would write them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]

_MAIN, _BRIDGE, _SYNAPSE, _ANNOTATED, _DEVICE = 1, 20_001, 10_001, 2, 0
# The places of events in a Gaudi trace, by the value of ``on``: process, thread, category.
PLACES: Mapping[str, tuple[int, int, str]] = {
    "op": (_MAIN, 1, "cpu_op"),
    "note": (_MAIN, 1, "user_annotation"),
    "bridge": (_BRIDGE, 1, "Runtime"),
    "synapse": (_SYNAPSE, 1, "Runtime"),
    "compiler": (_ANNOTATED, 4_294_966_299, "Runtime"),
    "PDMA": (_DEVICE, 3001, "Runtime"),
    "DMA": (_DEVICE, 4001, "Runtime"),
    "MME": (_DEVICE, 6001, "Kernel"),
    "TPC": (_DEVICE, 7001, "Kernel"),
}
_PROCESSES = {_BRIDGE: "Bridge Logs", _SYNAPSE: "Synapse Logger", _DEVICE: "/device:HPU:0"}
_DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def write_traces(events: Sequence[Event], metadata: Mapping[str, Any], device: str, folder: Path) -> list[Path]:
    """Write ``events`` into ``folder``, one file per rank. Events with ``on`` become one trace of a Gaudi ``device``.

    The list ``hosts`` in ``metadata`` contains the host name of each rank.
    """
    if any("on" in event for event in events):
        top = {"deviceProperties": [{"name": device}], **metadata}
        return [_write(folder / "trace.json", top, [*_lane_names(), *_all(map(_on_gaudi, events))])]
    hosts = metadata.get("hosts", ())
    shared = {key: value for key, value in metadata.items() if key != "hosts"}
    ranks: dict[int, list[Event]] = {}
    for event in events:
        ranks.setdefault(event.get("rank", 0), []).append(event)
    paths = []
    for rank, own in sorted((ranks or {0: []}).items()):
        named = {"hostname": hosts[rank]} if rank < len(hosts) else {}
        top = {**shared, **named, "distributedInfo": {**metadata.get("distributedInfo", {}), "rank": rank}}
        paths.append(_write(folder / f"trace_rank{rank}.json", top, _all(map(_plain, own))))
    return paths


def _write(path: Path, metadata: Mapping[str, Any], events: Sequence[Event]) -> Path:
    path.write_text(json.dumps({**metadata, "traceEvents": events}), encoding="utf-8")
    return path


def _all(events: Iterator[Event]) -> list[Event]:
    return [copy for event in events for copy in _copies(event)]


def _plain(event: Event) -> Event:
    on_device = event.get("cat") in _DEVICE_WORK
    return {"pid": 0 if on_device else 1, "tid": 7 if on_device else 1, **event}


def _on_gaudi(event: Event) -> Event:
    pid, tid, category = PLACES[event["on"]]
    return {"pid": pid, "tid": tid, "cat": category, **event}


def _copies(event: Event) -> Iterator[Event]:
    base: dict[str, Any] = {"ph": "X", "ts": 0, "args": {}}
    base |= {key: value for key, value in event.items() if key not in ("on", "rank", "repeat", "every", "count")}
    for index in range(event.get("repeat", 1)):
        args = dict(base["args"])
        if "correlation" in args:
            args["correlation"] += index
        args |= {key: args[key] + index * more for key, more in event.get("count", {}).items()}
        yield {**base, "args": args, "ts": base["ts"] + index * event.get("every", 0)}


def _lane_names() -> Iterator[Event]:
    for pid, name in _PROCESSES.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": name}}
    tid = PLACES["compiler"][1]
    thread = {"name": "Synapse/python3"}
    yield {"ph": "M", "name": "thread_name", "pid": _ANNOTATED, "tid": tid, "ts": 0, "args": thread}
