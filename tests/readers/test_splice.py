"""Copies of traces with added events. A healthy trace keeps every byte, and a damaged trace becomes valid."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from unittest.mock import patch

import orjson
import pytest
import zstandard
from events import document, x
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import load, read
from test_damage import DAMAGED_EVENTS, DAMAGED_FILES, between

from perftool.readers.files import stream
from perftool.readers.trace import splice as splice_module
from perftool.readers.trace.splice import splice

OURS = b'{"cat":"habana_perf_tool","ph":"M","name":"n"}'
A, B = (orjson.dumps(x(name, 1, 2)) for name in "ab")


def copy(data: bytes, added: tuple[bytes, ...] = (OURS,)) -> bytes:
    """Return a copy of ``data`` with ``added`` inserted by the program."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(data)
        spool = Path(folder) / "spool"
        spool.mkdir()
        copied = b"".join(splice(load(str(path))[0], added, spool))
        assert list(spool.iterdir()) == []
    return copied


# The text before and the text after the insertion point.
HEALTHY: dict[str, tuple[bytes, bytes]] = {
    "object": (b'{"traceEvents":[' + A + b"," + B, b"]}"),
    "metadata around": (b'{\n "a": [1],\n "traceEvents": [\n  ' + A + b"\n  ", b'],\n "b": {"c": [{"d": 1}]}\n}\n'),
    "list of objects behind": (b'{"traceEvents":[' + A, b'],"otherEvents":[' + A + b"," + B + b"]}"),
    "bare array": (b"[" + A + b",\n" + B + b"\n", b"]\n"),
    "byte order mark": (b"\xef\xbb\xbf[" + A, b"]"),
    "times beyond a double": (b'[{"ph":"X","name":"a","ts":1683564901548726.123,"dur":1.5}', b"]"),
    "not a number": (b'[{"ph":"X","name":"a","ts":1,"dur":1,"args":{"v":NaN}}', b"]"),
}


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
@pytest.mark.parametrize("case", HEALTHY)
def test_every_byte_of_a_healthy_trace_is_kept(case: str, compress) -> None:
    before, after = HEALTHY[case]
    assert copy(compress(before + after)) == before + b",\n" + OURS + after


def test_pieces_are_separated() -> None:
    assert copy(b"[" + A + b"]", (OURS, OURS)) == b"[" + A + b",\n" + OURS + b",\n" + OURS + b"]"


def test_an_empty_array_gets_no_comma() -> None:
    assert copy(b'{"traceEvents":[ ]}') == b'{"traceEvents":[ ' + OURS + b"]}"


@pytest.mark.parametrize("case", HEALTHY)
def test_a_second_copy_replaces_what_the_first_added(case: str) -> None:
    before, after = HEALTHY[case]
    first = copy(before + after, (OURS, OURS))
    assert copy(first) == before + b",\n" + OURS + after


# Strings that contain the start of our events, although we have not added any events to them.
NOT_OURS = {
    "an event of the run": b"[" + A + b',{"cat":"habana_perf_tool","ph":"X","name":"run","ts":1,"dur":2},' + B + b"]",
    "the last event": b"[" + A + b',{"cat":"habana_perf_tool","ph":"X","name":"run","ts":1,"dur":2}]',
    "arguments": b'[{"ph":"X","name":"a","ts":1,"dur":2,"args":{"of":[' + OURS + b"]}}," + B + b"]",
    "arguments at the end": b"[" + A + b',{"ph":"X","name":"a","ts":1,"dur":2,"args":{"of":[' + OURS + b"]}}]",
    "metadata": b'{"of":[' + OURS + b'],"traceEvents":[' + A + b"]}",
}


@pytest.mark.parametrize("case", NOT_OURS)
def test_only_what_an_earlier_copy_added_is_left_out(case: str) -> None:
    data = NOT_OURS[case]
    first = copy(data)
    end = data.rindex(b"]")
    assert first == data[:end] + b",\n" + OURS + data[end:]
    assert copy(first) == first


def test_the_events_of_an_earlier_copy_are_parsed_one_by_one() -> None:
    first = copy(b"[" + A + b"]", (OURS,) * 3)
    with patch.object(splice_module, "_LONGEST_EVENT", len(OURS)):
        assert copy(first) == copy(b"[" + A + b"]")
    with patch.object(splice_module, "_LONGEST_EVENT", len(OURS) - 1):
        assert copy(first) == copy(b"[" + A + b"]", (OURS,) * 4)


@settings(max_examples=12)
@given(
    size=st.integers(20, 200),
    names=st.lists(st.text(max_size=8), max_size=12),
    space=st.sampled_from([b"", b"\n "]),
)
def test_a_copy_does_not_depend_on_where_blocks_end(size: int, names: list[str], space: bytes) -> None:
    head = b"[" + b",".join(orjson.dumps(x(name, 1, 2)) for name in [*names, "last"]) + space
    with patch.object(stream, "BLOCK", size), patch.object(stream, "COMPRESSED_BLOCK", size):
        first = copy(head + b"] ")
        assert first == head + b",\n" + OURS + b"] "
        assert copy(first) == first


# The reader has nothing to repair in these traces, so they stay as they are.
LENIENT = {"not a number", "comma at the end of the arguments", "null"}


@pytest.mark.parametrize("damage", sorted(DAMAGED_EVENTS))
def test_a_damaged_event_is_mended_in_the_copy(damage: str) -> None:
    text, names, _ = DAMAGED_EVENTS[damage]
    data = between(text)
    copied = copy(data)
    assert read(copied).names == names
    if damage not in LENIENT:
        assert [event["ph"] for event in orjson.loads(copied)["traceEvents"] if "cat" in event][-1] == "M"
        assert all(isinstance(event, dict) for event in orjson.loads(copied)["traceEvents"])


@pytest.mark.parametrize("damage", sorted(DAMAGED_FILES))
def test_a_damaged_file_becomes_valid(damage: str) -> None:
    data, names, _, _ = DAMAGED_FILES[damage]
    copied = copy(data)
    assert read(copied).names == names
    if damage == "no number in the metadata":
        # The reader repairs nothing, so nothing changes.
        return
    document = orjson.loads(copied)
    events = document if isinstance(document, list) else document["traceEvents"]
    assert [event["name"] for event in events] == [*names, "n"]


def test_metadata_survives_the_repair() -> None:
    data = document([x("a", 1, 2)], schemaVersion=1, ranks=[{"id": 0}]).replace(b'"a"', b'"a\x01"')
    assert orjson.loads(copy(data)) == {
        "traceEvents": [x("a\x01", 1, 2), orjson.loads(OURS)], "schemaVersion": 1, "ranks": [{"id": 0}],
    }  # fmt: skip


def test_times_keep_their_digits_through_a_repair() -> None:
    event = b'{"ph":"X","name":"a","ts":1683564901548726.123,"dur":0.001}'
    copied = copy(b"[" + event + b"," + b'{"ph":"X","name":"b\x01","ts":1683564901548727.123,"dur":0.001}]')
    assert copied.startswith(b"[" + event + b",")
    assert b'"ts":1683564901548727.123' in copied


def test_lines_that_end_like_a_document_become_one() -> None:
    copied = copy(A + b"\n" + A + b"," + B + b"]}")
    assert orjson.loads(copied) == [*map(orjson.loads, (A, A, B, OURS))]
