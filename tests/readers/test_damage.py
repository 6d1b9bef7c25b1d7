"""Damaged traces: what can still be read, what is reported about the rest, and that only InputError is raised."""

from __future__ import annotations

import gzip
import random
import time

import orjson
import pytest
import zstandard
from events import document, x
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import Reading, read

from perftool.errors import InputError
from perftool.readers.files import stream
from perftool.readers.files.stream import COMPRESSED_BLOCK


def event(name: bytes, args: bytes = b"") -> bytes:
    """Return an event with ``name`` as raw bytes, which are not escaped."""
    tail = b',"args":' + args if args else b""
    return b'{"ph":"X","cat":"cpu_op","name":"' + name + b'","pid":1,"tid":1,"ts":1,"dur":2' + tail + b"}"


HEAD = b'{"traceEvents":['
A, B = event(b"a"), event(b"b")
SECOND = len(HEAD + A) + 1
"""The offset of the second element; its comma is one byte before."""


def between(middle: bytes) -> bytes:
    return HEAD + A + b"," + middle + b"," + B + b"]}"


MENDED = [("repaired events", 1, SECOND)]
DROPPED = [("dropped events", 1, SECOND)]
GARBAGE = [("dropped events", 1, SECOND - 1)]
CUT = ("cut off", 1, None)
OTHERS = [("unknown events", 1, None)]
TWICE = [("repeated keys", 1, None)]

# For each piece of text between two intact events, the names that are read and the message.
DAMAGED_EVENTS: dict[str, tuple[bytes, list[str], list[tuple[str, int, int | None]]]] = {
    "control character": (event(b"x\x01y"), ["a", "x\x01y", "b"], MENDED),
    "line break in a name": (event(b"x\ny"), ["a", "x\ny", "b"], MENDED),
    "zero byte": (event(b"x\x00y"), ["a", "x\x00y", "b"], MENDED),
    "unknown escape": (event(rb"x\qy"), ["a", r"x\qy", "b"], MENDED),
    "Windows path": (event(rb"C:\users\me"), ["a", r"C:\users\me", "b"], MENDED),
    "short unicode escape": (event(rb"x\u12"), ["a", r"x\u12", "b"], MENDED),
    "half a surrogate pair": (event(rb"x\ud800y"), ["a", "x\ufffdy", "b"], MENDED),
    "bad UTF-8": (event(b"x\xffy"), ["a", "x\ufffdy", "b"], MENDED),
    "unescaped quote": (event(b'x"y'), ["a", 'x"y', "b"], MENDED),
    "quote at the start": (event(b'"x'), ["a", '"x', "b"], MENDED),
    "quote at the end": (event(b'x"'), ["a", 'x"', "b"], MENDED),
    "quoted word and a comma": (event(b'say "hi", friend'), ["a", 'say "hi", friend', "b"], MENDED),
    "quotes and brackets": (event(b'f(x["a"]["b"])'), ["a", 'f(x["a"]["b"])', "b"], MENDED),
    "brackets after a quote": (event(b'x"]}"y'), ["a", 'x"]}"y', "b"], MENDED),
    "quote in an argument": (event(b"x", b'{"p":"a"b","q":1}'), ["a", "x", "b"], MENDED),
    "quote in a list": (event(b"x", b'{"p":["a"b","c"],"q":1}'), ["a", "x", "b"], MENDED),
    "what looks like a key in a name": (event(b'{"a", "b": 1}'), ["a", "b"], DROPPED),
    "name without its end": (event(b"x")[:40], ["a", "b"], DROPPED),
    "event without its end": (event(b"x")[:-1], ["a", "b"], DROPPED),
    "value missing": (event(b"x", b'{"v":}'), ["a", "b"], DROPPED),
    "bracket in place of a value": (event(b"x", b'{"v":]}'), ["a", "b"], DROPPED),
    "single quotes": (b"{'ph':'X'}", ["a", "b"], GARBAGE),
    "words": (b"garbage", ["a", "b"], GARBAGE),
    "stray closing bracket": (b"]", ["a", "b"], GARBAGE),
    "stray closing brace": (b"}", ["a", "b"], GARBAGE),
    "stray brackets": (b'"":}{[', ["a", "b"], GARBAGE),
    "zeros of a lost disk block": (b"\0" * 50, ["a", "b"], GARBAGE),
    "two commas": (b"", ["a", "b"], [("repaired events", 1, SECOND - 1)]),
    "comma missing": (A + b" " + B, ["a", "a", "b", "b"], [("repaired events", 1, SECOND + len(A))]),
    "not a number": (event(b"x", b'{"v":nan,"w":-inf,"u":Infinity,"t":NaN}'), ["a", "x", "b"], []),
    "not a number, with its bits": (event(b"x", b'{"v":nan(0x7ff8),"w":-nan(ind)}'), ["a", "x", "b"], MENDED),
    "comma at the end of the arguments": (event(b"x", b'{"v":1,}'), ["a", "x", "b"], []),
    "key given twice": (b'{"ph":"X","name":"x","name":"y","ts":1,"dur":1}', ["a", "x", "b"], TWICE),
    "time given twice": (b'{"ph":"X","name":"x","ts":1,"dur":1,"d\\u0075r":9000}', ["a", "x", "b"], TWICE),
    "unknown key given twice": (b'{"ph":"X","name":"x","ts":1,"dur":1,"y":1,"y":2}', ["a", "x", "b"], []),
    "no phase": (b'{"name":"x"}', ["a", "x", "b"], []),
    "no phase, and a key given twice": (b'{"name":"x","name":"y"}', ["a", "x", "b"], TWICE),
    "nothing": (b"{}", ["a", "b"], []),
    "number": (b"1", ["a", "b"], OTHERS),
    "text": (b'"x", "y"', ["a", "b"], [("unknown events", 2, None)]),
    "null": (b"null", ["a", "b"], []),
    "list": (b"[1]", ["a", "b"], OTHERS),
}


@pytest.mark.parametrize("damage", DAMAGED_EVENTS)
def test_a_damaged_event_between_good_ones(damage: str) -> None:
    text, names, issues = DAMAGED_EVENTS[damage]
    found = read(between(text))
    assert (found.names, found.issues, found.status) == (names, issues, "repaired" if issues else "ok")


WHOLE = HEAD + A + b"," + B + b'],"schemaVersion":1,"ranks":[{"id":0,"x":[1]}]}'
TAIL_LOST = [("text after the events", 1, None)]
HEAD_LOST = [("damaged metadata", 1, None)]

# For each file, the names that are read, the message and the status.
DAMAGED_FILES: dict[str, tuple[bytes, list[str], list[tuple[str, int, int | None]], str]] = {
    "cut in an event": (WHOLE[: SECOND + 20], ["a"], [CUT, ("dropped events", 1, SECOND)], "truncated"),
    "cut in the first event": (WHOLE[:20], [], [CUT, ("dropped events", 1, len(HEAD))], "truncated"),
    "cut after a comma": (HEAD + A + b",\n", ["a"], [CUT], "truncated"),
    "cut after an event": (HEAD + A, ["a"], [CUT], "truncated"),
    "cut before the first event": (HEAD, [], [CUT], "truncated"),
    "cut after the events": (HEAD + A + b"]", ["a"], TAIL_LOST, "repaired"),
    "cut in the metadata": (WHOLE[:-6], ["a", "b"], TAIL_LOST, "repaired"),
    "array cut in an event": (b"[" + A + b"," + B[:30], ["a"], [CUT, ("dropped events", 1, len(A) + 2)], "truncated"),
    "damaged metadata": (HEAD + A + b'],"name":"a"b"}', ["a"], TAIL_LOST, "repaired"),
    "damaged metadata before the events": (b'{"name":"a"b",' + HEAD[1:] + A + b"]}", ["a"], HEAD_LOST, "repaired"),
    "a key of the metadata": (b'{"name":1e,"scale":-nan,' + HEAD[1:] + A + b"]}", ["a"], HEAD_LOST, "repaired"),
    "no number in the metadata": (b'{"scale":-nan,' + HEAD[1:] + A + b"]}", ["a"], [], "ok"),
    "text after the document": (HEAD + A + b"]}garbage", ["a"], TAIL_LOST, "repaired"),
    "zeros after the document": (HEAD + A + b"]}\0\0\0", ["a"], TAIL_LOST, "repaired"),
    "comma after the last event": (HEAD + A + b",]}", ["a"], [("trailing comma", 1, None)], "repaired"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGED_FILES)
def test_a_damaged_file(damage: str) -> None:
    data, names, issues, status = DAMAGED_FILES[damage]
    found = read(data)
    assert (found.names, found.issues, found.status) == (names, issues, status)


@pytest.mark.parametrize("opening", [b"nan(", b"inf(", b"nan(1"])
def test_words_that_begin_like_a_number_cost_no_more_than_their_length(opening: bytes) -> None:
    damaged = event(b"x", b'{"v":[0' + (b"," + opening) * 20_000 + b"]}")
    began = time.process_time()
    assert read(between(damaged)).names == ["a", "b"]
    assert time.process_time() - began < 2


@pytest.mark.parametrize("last", [event(b"x\x01y"), event(b'x"y'), event(b"x\xffy")])
def test_damage_in_the_last_event_leaves_the_metadata_alone(last: bytes) -> None:
    found = read(HEAD + A + b"," + last + b'],"schemaVersion":1,"ranks":[{"id":0,"x":[1]}]}')
    assert (len(found.rows), found.issues, found.status) == (2, MENDED, "repaired")
    assert found.metadata == {"schemaVersion": 1, "ranks": [{"id": 0, "x": [1]}]}


def test_times_and_arguments_survive_the_repair() -> None:
    found = read(HEAD + b'{"ph":"X","name":"a"b","ts":1683564901548726.123,"dur":0.001,"args":{"v":1.10}}]}')
    assert found.rows == [("X", None, 'a"b', None, None, 1683564901548726123, 1, None, {"v": 1.1})]


NOISE = random.Random(1)
LONG = document([x(f"op{NOISE.getrandbits(64)}", n, 1) for n in range(8000)])


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_a_cut_off_compressed_file_is_read_to_its_last_byte(compress) -> None:
    data = compress(LONG)
    found = read(data[: len(data) // 2])
    assert found.status == "truncated"
    assert [issue[:2] for issue in found.issues] == [("cut off", 1), ("damaged compression", 1), ("dropped events", 1)]
    assert found.names == read(LONG).names[: len(found.rows)]
    assert len(found.rows) > 2500


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_compressed_data_cut_off_before_its_first_byte_of_text(compress) -> None:
    with pytest.raises(InputError, match=r"trace\.json: the \w+ stream is damaged: it ends before its end-of-"):
        read(compress(LONG)[:12])


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_other_bytes_after_the_compressed_data(compress) -> None:
    found = read(compress(HEAD + A + b"]}") + b"garbage")
    assert (found.names, found.issues, found.status) == (["a"], [("damaged compression", 1, None)], "truncated")


def read_or_refuse(data: bytes) -> Reading | None:
    try:
        return read(data)
    except InputError:
        return None


NAMES = st.sampled_from(["aten::add", 'q"uo"te', "void k<T>(int*) [a, b] {c}", "tab\tß", "\\", "]}", ""])
ARGS = st.sampled_from([{}, {"Input Dims": [[2, 3], []]}, {"l": [{"name": "x"}, {"name": "y"}]}, {"s": "a, b"}])
TRACES = st.lists(st.builds(lambda name, args: x(name, 1, 2, **args), NAMES, ARGS), max_size=5)
METADATA = st.sampled_from([{}, {"distributedInfo": {"rank": 1}, "ranks": [[0, 1], []]}])


def test_zeros_after_the_compressed_data() -> None:
    """Storage that pads files to whole blocks must not change the result."""
    data = gzip.compress(document([x("a", 1, 2)])) + bytes(COMPRESSED_BLOCK + 1)
    assert (read(data).names, read(data).issues) == (["a"], [])


def test_a_second_array_of_events() -> None:
    first, second = document([x("a", 1, 2)]), document([x("b", 3, 4)])
    found = read(first[:-1] + b"," + second[1:])
    assert (found.names, found.issues, found.status) == (["a"], [("second event array", 1, None)], "repaired")
    assert found.metadata == {}


@pytest.mark.parametrize("last", [b"[]", b'{"a":1}', b'{"a":[{"ph":"X"}]}'])
def test_a_third_value_does_not_hide_a_second_array_of_events(last: bytes) -> None:
    first, second = document([x("a", 1, 2)]), document([x("b", 3, 4)])
    found = read(first[:-1] + b"," + second[1:-1] + b',"traceEvents":' + last + b"}")
    assert [issue[:2] for issue in found.issues] == [("second event array", 1 + (last != b"[]"))]


@pytest.mark.parametrize("before", [True, False])
def test_an_object_with_the_key_of_the_events_is_not_skipped_in_silence(before: bool) -> None:
    events, other = document([x("a", 1, 2)]), b'"traceEvents":{"a":[{"ph":"X"}]}'
    data = b"{" + other + b"," + events[1:] if before else events[:-1] + b"," + other + b"}"
    found = read(data)
    assert (found.names, [issue[:2] for issue in found.issues]) == (["a"], [("second event array", 1)])


@settings(max_examples=60)
@given(st.binary(max_size=200) | st.text('[]{}",:\\phX1 traceEvents', max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    found = read_or_refuse(data)
    assert found is None or found.status in ("ok", "repaired", "truncated")


@settings(max_examples=50)
@given(TRACES, METADATA, st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=3), st.integers(0, 3)), max_size=4))
def test_any_change_of_a_trace_is_survived(events, metadata, changes) -> None:
    data = document(events, **metadata)
    for place, new, removed in changes:
        at = int(place * len(data))
        data = data[:at] + new + data[at + removed :]
    found = read_or_refuse(data)
    assert found is None or len(found.rows) <= len(events) + sum(len(new) for _, new, _ in changes)


@settings(max_examples=40)
@given(TRACES, st.floats(0, 1), st.booleans())
def test_a_cut_keeps_every_whole_event_before_it(events, place, pretty) -> None:
    data = orjson.dumps({"schemaVersion": 1, "traceEvents": events}, option=orjson.OPT_INDENT_2 if pretty else None)
    cut = data[: min(int(place * len(data)), len(data) - 1)]
    found = read_or_refuse(cut)
    if b'"traceEvents"' not in cut or b"[" not in cut:
        assert found is None
        return
    events_left, closed = whole_events(cut)
    assert found is not None
    assert found.names == [each["name"] for each in events[:events_left]]
    assert found.status == ("repaired" if closed else "truncated")


def whole_events(cut: bytes) -> tuple[int, bool]:
    """Return the number of complete events in ``cut``, counted character by character, and whether their array is
    closed.
    """
    depth, inside, escaped, count, closed = 0, False, False, 0, False
    for char in cut.decode(errors="ignore"):
        if inside:
            inside, escaped = escaped or char != '"', char == "\\" and not escaped
        elif char == '"':
            inside = True
        elif char in "{[":
            depth += 1
        elif char in "}]":
            depth -= 1
            count += char == "}" and depth == 2
            closed = closed or (char == "]" and depth == 1)
    return count, closed


@pytest.mark.parametrize("cut", range(1, 4))
def test_a_frame_may_begin_at_the_end_of_a_block(cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [
        zstandard.ZstdCompressor().compress(part) for part in (b'{"traceEvents":', b'[{"ph":"X","name":"a","ts":1}]}')
    ]
    monkeypatch.setattr(stream, "COMPRESSED_BLOCK", len(parts[0]) + cut)
    assert (read(b"".join(parts)).names, read(b"".join(parts)).status) == (["a"], "ok")


def test_frames_to_skip_are_skipped() -> None:
    """pzstd writes a skippable frame before each frame, with the size of that frame."""
    compress = zstandard.ZstdCompressor().compress
    parts = [compress(b'{"traceEvents":['), compress(b'{"ph":"X","name":"a","ts":1,"dur":1}]}')]
    skipped = [b"\x50\x2a\x4d\x18\x04\0\0\0" + len(part).to_bytes(4, "little") for part in parts]
    found = read(b"".join(one for pair in zip(skipped, parts, strict=True) for one in pair))
    assert (found.names, found.status) == (["a"], "ok")


@pytest.mark.parametrize("nothing", [gzip.compress(b"", mtime=0), zstandard.ZstdCompressor().compress(b"")])
def test_the_number_of_empty_parts_is_limited(nothing: bytes) -> None:
    compress = gzip.compress if nothing.startswith(b"\x1f") else zstandard.ZstdCompressor().compress
    data = compress(document([x("a", 1, 2)]))
    assert (read(data + nothing * 1000).names, read(data + nothing * 1000).status) == (["a"], "ok")
    found = read(data + nothing * 1002)
    assert (found.names, [kind for kind, _, _ in found.issues]) == (["a"], ["damaged compression"])
