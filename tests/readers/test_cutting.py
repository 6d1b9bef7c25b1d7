"""The events are the same no matter where the text is cut into blocks."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from events import Event, document, x
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reading import Reading, read, rows_of

from perftool.readers.files import stream
from perftool.readers.trace.chrome_trace import ChromeTrace
from perftool.readers.trace.envelope import read_head, read_tail, scan_end
from perftool.readers.trace.event_text import last_boundary

NESTED = {"l": [{"name": "x"}, {"name": "y"}, {"ts": 1}], "o": {"pid": {"tid": 1}}}


def read_in_blocks(data: bytes, size: int) -> Reading:
    with patch.object(stream, "BLOCK", size), patch.object(stream, "COMPRESSED_BLOCK", size):
        return read(data)


def chunk_count(data: bytes, size: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(data)
        with patch.object(stream, "BLOCK", size), patch.object(stream, "COMPRESSED_BLOCK", size):
            return len(list(ChromeTrace(str(path), Path(folder)).chunks()))


NAMES = st.sampled_from(["aten::add", '}, {"ph":', "]}", "\\", 'say "x"', "步", ""])
ARGS = st.sampled_from([{}, NESTED, {"Input Dims": [[2], []]}, {"s": '{"name": 1}, {"name": 2}'}])
EVENTS = st.lists(
    st.builds(lambda name, args, ts: x(name, ts, 1, **args), NAMES, ARGS, st.integers(0, 99)), max_size=12
)
METADATA = st.sampled_from([{}, {"deviceProperties": [{"id": 0, "name": "A"}, {"id": 1, "name": "B"}], "note": "]}"}])
INDENT = st.sampled_from([None, 1, 2])


@settings(max_examples=50)
@given(EVENTS, METADATA, METADATA, INDENT, st.integers(1, 900))
@example([x("a", n, 1, **NESTED) for n in range(8)], {}, {}, None, 300)
def test_any_block_size_gives_the_same_events(
    events: list[Event], before: dict[str, object], after: dict[str, object], indent: int | None, size: int
) -> None:
    data = json.dumps({**before, "traceEvents": events, "after": after}, indent=indent).encode()
    found = read_in_blocks(data, size)
    assert (found.rows, found.issues, found.status) == (rows_of(events), [], "ok")
    assert found.metadata == {**before, "after": after}


@settings(max_examples=20)
@given(EVENTS, st.integers(1, 900))
def test_any_block_size_gives_the_same_events_of_an_array(events: list[Event], size: int) -> None:
    events = [*events, x("last", 1, 1)]
    found = read_in_blocks(json.dumps(events).encode(), size)
    assert (found.rows, found.issues, found.status) == (rows_of(events), [], "ok")


def test_small_blocks_become_many_chunks() -> None:
    events = [x(f"op{n}", n, 1, **NESTED) for n in range(100)]
    assert chunk_count(document(events), 1000) > 10
    assert chunk_count(document(events), 1 << 20) == 2


@pytest.mark.parametrize("indent", [None, 2])
def test_metadata_larger_than_a_block_after_the_events(indent: int | None) -> None:
    events = [x(f"op{n}", n, 1) for n in range(20)]
    log = [{"line": n, "ranks": [n]} for n in range(300)]
    data = json.dumps({"traceEvents": events, "log": log, "version": 1}, indent=indent).encode()
    found = read_in_blocks(data, 2000)
    assert (found.rows, found.issues, found.status) == (rows_of(events), [], "ok")
    assert found.metadata == {"log": log, "version": 1}


def test_metadata_larger_than_a_block_before_the_events() -> None:
    events = [x(f"op{n}", n, 1) for n in range(20)]
    log = [{"name": "decoy", "ph": "X", "events": [n]} for n in range(300)]
    found = read_in_blocks(document(events, log=log), 2000)
    assert (found.rows, found.metadata, found.issues) == (rows_of(events), {"log": log}, [])


def test_an_event_larger_than_a_block() -> None:
    events = [x("a", 1, 1), x("b", 2, 1, stack="f;" * 5000), x("c", 3, 1, l=[{"name": "x" * 50}] * 20), x("d", 4, 1)]
    found = read_in_blocks(document(events), 700)
    assert (found.rows, found.issues, found.status) == (rows_of(events), [], "ok")


@settings(max_examples=15)
@given(st.integers(0, 29), st.integers(200, 900))
def test_damage_in_one_block_leaves_the_others_alone(place: int, size: int) -> None:
    events = [x(f"op{n}", n, 1) for n in range(30)]
    data = document(events, version=1).replace(b'"op%d"' % place, b'"op\x01%d"' % place)
    found = read_in_blocks(data, size)
    expected = [f"op{n}" if n != place else f"op\x01{n}" for n in range(30)]
    assert (found.names, found.status) == (expected, "repaired")
    assert found.issues == [("repaired events", 1, data.index(b"\x01") - len(b'{"ph":"X","cat":"cpu_op","name":"op'))]


@pytest.mark.parametrize(
    ("block", "cut"),
    [
        (b'{"ph":"X"},{"ph":"X"},{"ph":"X"},{"p', (21, 22)),
        (b'{"ph":"X"} , {"ph":"X"} ,\n{"name":', (23, 26)),
        (b'{"ph":"X"},{"ph":"X"},{"other":', None),
        (b'{"ph":"X","args":{"l":[{"name":1},{"name":2},{"name":3}]}},{"ph', None),
        (
            b'{"ph":"X"},{"ph":"X","args":{"l":[{"name":1},{"name":2}]}},{"ph":"X","args":{"l":[{"name":1},{"name":2',
            (58, 59),
        ),
        (b'{"ph":"X"}', None),
        (b"", None),
    ],
)  # fmt: skip
def test_the_last_boundary_of_a_block(block: bytes, cut: tuple[int, int] | None) -> None:
    assert last_boundary(block) == cut


@pytest.mark.parametrize(
    ("data", "start", "metadata"),
    [
        (b"[1", 1, {}),
        (b'\xef\xbb\xbf {"traceEvents" : [', 22, {}),
        (b'{"a":{"traceEvents":[1]},"b":[2],"traceEvents":[', 48, {"a": {"traceEvents": [1]}, "b": [2]}),
        (b'{"a":"b"c","traceEvents":[', 26, {"a": "b"}),
        (b'{"traceEvents":1,"traceEvents":[', 32, {"traceEvents": 1}),
    ],
)
def test_where_the_events_start(data: bytes, start: int, metadata: dict[str, object]) -> None:
    head = read_head(data)
    assert head is not None
    assert (head.start, head.metadata) == (start, metadata)


@pytest.mark.parametrize(
    ("data", "bare", "end"),
    [
        (b'{"ph":"X"}]}', False, 10),
        (b'{"ph":"X"}],"a":[{"b":[1]}]}', False, 10),
        (b'{"ph":"X" oops}],"a":[{"b":[1]}]}', False, 15),
        (b'{"ph":"X"}', False, None),
        (b'{"ph":"X","args":{"l":[1]}', False, None),
        (b"]}", False, 0),
        (b'{"ph":"X"}]\n', True, 10),
        (b'{"ph":"X"},', True, None),
    ],
)
def test_where_the_events_end(data: bytes, bare: bool, end: int | None) -> None:
    tail = read_tail(data, bare=bare)
    assert (tail.end if tail else None) == end


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b'{"a":[1]}],"b":1', 9),
        (b'{"a":[1]}]', 9),
        (b'{"a":"]"},]} trailing', 10),
        (b'{"a":[1]}},]},{"b":2}]}', 21),
        (b'{"a":[1]', None),
        (b"],{", None),
    ],
)
def test_the_end_by_counting_brackets(data: bytes, end: int | None) -> None:
    assert scan_end(data, 0) == end
