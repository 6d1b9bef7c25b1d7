"""A trace yields the same rows in every layout seen in the wild."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard
from events import Event
from reading import Row, read, read_path, rows_of

from perftool.errors import InputError
from perftool.readers.trace.chrome_trace import ChromeTrace

EVENTS: list[Event] = [
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": "12", "ts": 10, "dur": 5,
     "args": {"External id": 3, "Input Dims": [[2, 3], []], "Call stack": "a.py(1): f;b [c] {d}, \"e\"\\"}},
    {"ph": "X", "cat": "kernel", "name": "void k<float, 4>(T*) ]}, {", "pid": 0, "tid": 7, "ts": 16, "dur": 0,
     "args": {"grid": [1, 2, 3], "nested": [{"name": "x"}, {"name": "y"}]}},
    {"ph": "B", "cat": "user_annotation", "name": "Schritt größer 步", "pid": "", "tid": "main", "ts": 17},
    {"ph": "E", "pid": "", "tid": "main", "ts": 19},
    {"ph": "s", "id": 5, "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 12, "ts": 10},
    {"ph": "C", "name": "GPU 0 Utilization", "pid": 0, "ts": 20, "args": {"GPU Utilization": 0.5}},
    {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 12, "ts": 21, "args": {"Addr": 139, "Bytes": -8}},
]  # fmt: skip
ROWS = rows_of(EVENTS)
HEAD = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100"}], "baseTimeNanoseconds": 7}
FOREIGN = {"summary": {"traceEvents": [{"ph": "X", "name": "decoy"}]}, "note": '"traceEvents": [ ]', "ranks": [[0], []]}


def dump(value: object, **how: object) -> str:
    return json.dumps(value, ensure_ascii=False, **how)  # type: ignore[arg-type]


def in_object(events: str, before: dict[str, object] = HEAD, after: dict[str, object] | None = None) -> str:
    """Return a document with the members ``before``, the text of the events, and the members ``after``."""
    head = dump(before)[:-1] + ", " if before else "{"
    tail = ", " + dump(after)[1:] if after else "}"
    return f'{head}"traceEvents": [{events}]{tail}'


def head_on_lines(event: Event, *lines: tuple[str, ...]) -> str:
    """Return an event as Kineto writes it: a line for each group of keys in ``lines``, followed by args."""
    pieces = [", ".join(f"{dump(key)}: {dump(event[key])}" for key in line if key in event) for line in lines]
    if "args" in event:
        members = ",\n      ".join(f"{dump(key)}: {dump(value)}" for key, value in event["args"].items())
        pieces.append('"args": {\n      ' + members + "\n    }")
    return "  {\n    " + ",\n    ".join(piece for piece in pieces if piece) + "\n  }"


def kineto(*lines: tuple[str, ...]) -> str:
    return in_object("\n" + ",\n".join(head_on_lines(event, *lines) for event in EVENTS) + "\n  ")


def one_line(events: list[Event] = EVENTS) -> str:
    return ",".join(dump(event, separators=(",", ":")) for event in events)


ALL_KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "s")
LAYOUTS: dict[str, str] = {
    "args over many lines": kineto(("ph", "cat"), ("name", "pid", "tid"), ("ts", "dur"), ("id", "s")),
    "head on two lines": kineto(("ph", "cat", "name", "pid", "tid", "id", "s"), ("ts", "dur")),
    "one key a line": kineto(*[(key,) for key in ALL_KEYS]),
    "one line without spaces": dump({**HEAD, "traceEvents": EVENTS}, separators=(",", ":")),
    "sorted keys": dump({**HEAD, "traceEvents": EVENTS}, sort_keys=True),
    "reversed keys": in_object(",".join(dump(dict(reversed(event.items()))) for event in EVENTS)),
    "indented, foreign objects before": dump({**HEAD, **FOREIGN, "traceEvents": EVENTS}, indent=2),
    "foreign objects after": in_object(one_line(), after=FOREIGN),
    "events first": in_object(one_line(), before={}, after=HEAD),
    "events in the middle": in_object(one_line(), after={"traceName": "a]b}.json"}),
    "events last": in_object(one_line()),
    "tabs and carriage returns": dump({**HEAD, "traceEvents": EVENTS}, indent="\t").replace("\n", "\r\n"),
    "space around everything": " \n"
    + in_object(one_line()).replace('"traceEvents": [', '"traceEvents" :\n [\n') + "\n\n",
    "byte order mark": "\ufeff" + in_object(one_line()),
}  # fmt: skip
BARE: dict[str, str] = {
    "bare array": f"[{one_line()}]",
    "bare array, a line each": "[\n" + ",\n".join(map(dump, EVENTS)) + "\n]\n",
    "unterminated array": "[" + one_line(),
    "unterminated array after a comma": "[\n" + ",\n".join(map(dump, EVENTS)) + ",\n",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_an_object(layout: str) -> None:
    found = read(LAYOUTS[layout].encode())
    assert (found.rows, found.issues, found.status) == (ROWS, [], "ok")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_metadata_may_be_anywhere(layout: str) -> None:
    expected = HEAD | (FOREIGN if "foreign" in layout else {})
    if layout == "events in the middle":
        expected = expected | {"traceName": "a]b}.json"}
    assert read(LAYOUTS[layout].encode()).metadata == expected


@pytest.mark.parametrize("layout", BARE)
def test_layouts_of_an_array(layout: str) -> None:
    found = read(BARE[layout].encode())
    assert (found.rows, found.issues, found.status, found.metadata) == (ROWS, [], "ok", {})


def members(data: bytes) -> bytes:
    """Return a gzip file with several members, like the output of ``cat a.gz b.gz``."""
    return b"".join(gzip.compress(data[at : at + 300]) for at in range(0, len(data), 300))


def frames(data: bytes) -> bytes:
    compress = zstandard.ZstdCompressor().compress
    return b"".join(compress(data[at : at + 300]) for at in range(0, len(data), 300))


@pytest.mark.parametrize("compress", [gzip.compress, members, zstandard.ZstdCompressor().compress, frames])
def test_compression_is_recognised_by_its_first_bytes(compress: Callable[[bytes], bytes]) -> None:
    found = read(compress(in_object(one_line()).encode()))
    assert (found.rows, found.issues, found.status) == (ROWS, [], "ok")


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_stdin(compress: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    data = io.BytesIO(compress(in_object(one_line()).encode()))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=data))
    assert read_path("-").rows == ROWS


@pytest.mark.parametrize(("data", "rows"), [(b'{"traceEvents": []}', []), (b' {"traceEvents":[ ] } ', [])])
def test_a_trace_without_events(data: bytes, rows: list[Row]) -> None:
    found = read(data)
    assert (found.rows, found.issues, found.status) == (rows, [], "ok")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "empty file"),
        (b" \n\t", "empty file"),
        (b"\xef\xbb\xbf", "empty file"),
        (b"hello", "not JSON, so not a trace"),
        (b"\x00\x01\x02", "not JSON, so not a trace"),
        (b'"traceEvents"', "not JSON, so not a trace"),
        (b"{}", "JSON without a traceEvents array, so not a trace"),
        (b'{"a": [1, 2]}', "JSON without a traceEvents array, so not a trace"),
        (b'{"traceEvents": null}', "JSON without a traceEvents array, so not a trace"),
        (b'{"a": {"traceEvents": 3}', "JSON without a traceEvents array, so not a trace"),
        (b"[1, 2, 3]", "a JSON array without a single trace event"),
        (b'[{"a": 1}]', "a JSON array without a single trace event"),
        (b"[]", "a JSON array without a single trace event"),
        (gzip.compress(b"", mtime=0), "empty file"),
        (
            gzip.compress(b'{"schemaVersion": 1, "traceEvents": []}', mtime=0)[:28],
            "the gzip stream is damaged: it ends before its end-of-stream marker, and no trace event comes before that",
        ),
    ],
)
def test_files_that_are_not_traces_are_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        read(data)
    assert str(caught.value).endswith("/trace.json: " + sentence)


def test_a_file_that_cannot_be_opened() -> None:
    with pytest.raises(InputError, match=r"none\.json: cannot open \(No such file or directory\)"):
        read_path("none.json")


@pytest.mark.parametrize("dense", ['{"a": [[], []], "traceEvents": [%s]}', '{"traceEvents": [%s], "a": [[], [], []]}'])
def test_metadata_of_too_many_values_are_skipped_with_a_note(
    dense: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perftool.readers.trace.envelope._MOST_TOKENS", 4)
    (tmp_path / "t.json").write_text(dense % '{"ph": "X", "name": "a", "ts": 1, "dur": 2}')
    trace = ChromeTrace(str(tmp_path / "t.json"), tmp_path)
    events = [json.loads(chunk.path.read_bytes()) for chunk in trace.chunks()]
    trace.finish()
    assert [[event["name"] for event in chunk] for chunk in events] == [["a"]]
    assert (trace.metadata, len(trace.issues)) == ({}, 1)
