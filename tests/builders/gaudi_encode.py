"""Writes events the way each generation's writer does: one sorted line (B) or Kineto's layout (A, C, C2)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from builders.gaudi_event import Event, Value

_TAIL_KEYS = ("traceName",)


@dataclass(frozen=True)
class Document:
    """A whole trace: its top-level fields and its events, in the order of the writer.

    Unless ``escaped`` is set, quotes in the bridge's strings stay bare. ``absolute_us`` is added to all times in
    Kineto's layout.
    """

    top: Mapping[str, object]
    events: tuple[Event, ...]
    escaped: bool = True
    absolute_us: int = 0


def sorted_line(document: Document) -> bytes:
    """Generation B's format, in which the bridge rewrites the whole file as one line with sorted keys and no spaces."""
    whole = {**document.top, "traceEvents": [event_object(event) for event in document.events]}
    return _compact(whole).encode()


def event_object(event: Event) -> dict[str, object]:
    """Return the JSON object of an event, with its times in microseconds."""
    row: dict[str, object] = {"ph": event.ph, "name": event.name, "pid": event.pid, "tid": event.tid}
    row["ts"] = event.ts_ns / 1000
    if event.dur_ns is not None:
        row["dur"] = event.dur_ns / 1000
    if event.cat:
        row["cat"] = event.cat
    if event.args is not None:
        row["args"] = dict(event.args)
    return {**row, **event.extra}


def event_line(event: Event) -> str:
    """Return an event as generation B writes it."""
    return _compact(event_object(event))


def kineto_layout(document: Document) -> bytes:
    """The format of generations A, C and C2, with Kineto's key order, line breaks and three decimals."""
    tail = {key: document.top[key] for key in _TAIL_KEYS if key in document.top}
    head = [f'  "{key}": {json.dumps(value)}' for key, value in document.top.items() if key not in tail]
    lines = [*head, '  "traceEvents": [\n' + ",\n".join(_kineto_events(document)) + "\n  ]"]
    lines += [f'  "{key}": {json.dumps(value)}' for key, value in tail.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _compact(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _kineto_events(document: Document) -> Iterable[str]:
    for event in document.events:
        # Only the bridge forgets to escape its strings; Kineto's own records are valid JSON.
        escaped = document.escaped or event.part not in ("device", "host")
        yield _kineto_event(event, escaped, document.absolute_us)


def _kineto_event(event: Event, escaped: bool, absolute_us: int) -> str:
    shape = {"X": _complete, "M": _metadata, "i": _instant}.get(event.ph, _plain)
    return "  {\n" + shape(event, escaped, absolute_us) + "\n  }"


def _complete(event: Event, escaped: bool, absolute_us: int) -> str:
    first = f'    "ph": "X", "cat": "{event.cat}", "name": {_text(event.name, escaped)}, {_owner(event)},'
    times = f'    "ts": {_time(event.ts_ns, absolute_us)}, "dur": {_time(event.dur_ns or 0)}'
    return first + "\n" + times + _arguments(event, escaped)


def _metadata(event: Event, escaped: bool, absolute_us: int) -> str:
    first = f'    "name": "{event.name}", "ph": "M", "ts": {_time(event.ts_ns, absolute_us)}, {_owner(event)}'
    return first + _arguments(event, True)


def _instant(event: Event, escaped: bool, absolute_us: int) -> str:
    cat = f'"cat": "{event.cat}", ' if event.cat else ""
    first = f'    "ph": "i", {cat}"s": "{event.extra["s"]}", "name": {_text(event.name, escaped)},'
    second = f'    {_owner(event)},\n    "ts": {_time(event.ts_ns, absolute_us)}'
    return first + "\n" + second + _arguments(event, escaped)


def _plain(event: Event, escaped: bool, absolute_us: int) -> str:
    extra = "".join(f', "{key}": {json.dumps(value)}' for key, value in event.extra.items())
    first = f'    "ph": "{event.ph}", {_owner(event)}, "ts": {_time(event.ts_ns, absolute_us)},'
    second = f'    "cat": "{event.cat}", "name": {_text(event.name, escaped)}{extra}'
    return first + "\n" + second + _arguments(event, escaped)


def _owner(event: Event) -> str:
    return f'"pid": {json.dumps(event.pid)}, "tid": {json.dumps(event.tid)}'


def _time(nanoseconds: int, absolute_us: int = 0) -> str:
    microseconds, rest = divmod(nanoseconds, 1000)
    return f"{absolute_us + microseconds}.{rest:03d}"


def _text(value: Value, escaped: bool) -> str:
    return json.dumps(value) if escaped or not isinstance(value, str) else f'"{value}"'


def _arguments(event: Event, escaped: bool) -> str:
    if event.args is None:
        return ""
    inside = ",".join(f'"{key}": {_text(value, escaped)}' for key, value in event.args.items())
    return f',\n    "args": {{\n      {inside}\n    }}'
