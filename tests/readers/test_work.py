"""The cost of damage grows linearly with its length. It is measured in bytes examined rather than in seconds."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from time import process_time

import orjson
import pytest
import zstandard
from events import document, x
from reading import read

from perftool.readers.files import stream
from perftool.readers.files.stream import ByteStream
from perftool.readers.metrics import metrics_file
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.text_lines import read_lines
from perftool.readers.trace import chrome_trace, envelope, mend
from perftool.readers.trace.event_text import last_boundary

MB = 1 << 20
# The length of damage.
SIZE = MB // 4
EVENT = b'{"ph":"X","name":"a","ts":1,"dur":1}'
BROKEN = b'{"ph":"X","name":"a,"ts":1 1,"dur":[}'


def half_nested(size: int) -> bytes:
    """Events that never end, each nested in the previous event."""
    return (b'{"ph":"X","args":{"a":[1},' * (size // 26 + 1))[:size]


DAMAGE: dict[str, Callable[[int], bytes]] = {
    "quotes": lambda size: b'{"ph":"X","name":"' + b'"' * size,
    "escaped quotes": lambda size: b'{"ph":"X","name":"' + b'\\"' * (size // 2),
    "quotes and commas": lambda size: b'{"ph":"X","name":"' + b'","' * (size // 3),
    "spaces after quotes": lambda size: b'{"ph":"X","name":' + (b'"' + b" " * 98) * (size // 99),
    "a key without an end": lambda size: b'{"ph":"X","name":"a",' + b'"\\\\' * (size // 3),
    "braces": lambda size: b'{"ph":"X"' + b"}" * size,
    "brackets": lambda size: b'{"ph":"X","name":' + b"[" * size,
    "commas": lambda size: b'{"ph":"X"' + b"," * size,
    "colons and signs": lambda size: b'{"ph":"X","ts":' + b":-" * (size // 2),
    "UTF-16": lambda size: (EVENT.decode() * (size // 70)).encode("utf-16-le"),
    "one long string": lambda size: b'{"ph":"X","name":"' + b"x" * size,
    "broken events": lambda size: b",".join([BROKEN] * (size // len(BROKEN))),
    "broken and whole events": lambda size: b",".join([BROKEN, EVENT] * (size // 75)),
    "half nested events": half_nested,
    "zeros": bytes,
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_twice_the_damage_takes_twice_the_work(kind: str) -> None:
    size = 60_000
    once, twice = (mend.mend_events(DAMAGE[kind](length)).work for length in (size, 2 * size))
    assert twice <= 2.5 * once + 10_000


@pytest.mark.parametrize("kind", DAMAGE)
def test_long_damage_takes_linear_time(kind: str) -> None:
    """Quadratic time would take hours."""
    found = mend.mend_events(DAMAGE[kind](SIZE))
    assert found.work < (mend.MOST_WORK + 40) * 3 * SIZE
    assert found.events or found.dropped


def test_after_its_deadline_the_rest_of_a_stretch_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b",".join([EVENT, *[half_nested(500)] * 100, EVENT])
    assert mend.mend_events(data).events[-1] == EVENT
    monkeypatch.setattr(mend, "MOST_WORK", 1)
    monkeypatch.setattr(mend, "_LEAST_WORK", 0)
    cut_short = mend.mend_events(data)
    assert cut_short.dropped >= 1
    assert sum(map(len, cut_short.events)) + cut_short.dropped_bytes > 0.9 * len(data)
    assert EVENT not in cut_short.events[1:]


HOSTILE = {
    "escapes": b'{"a":"' + b'\\"' * SIZE,
    "quotes": b'{"a":' + b'"' * (SIZE + 1),
    "brackets": b'{"a":1' + b"]" * SIZE,
    "keys": b'{"a":1' + b'],"b' * (SIZE // 4),
    "commas": b'{"a":1' + b"]," * (SIZE // 2) + b"}",
    "starts": b'{"ph":' * (SIZE // 6),
    "boundaries": EVENT + b'},{"ph":' * (SIZE // 8),
    "lists": b'{"x":' + b"[1], " * (SIZE // 5),
    "blank": b"]" + b" " * SIZE + b"]",
    "blanks": (b"]" + b" " * 900) * (SIZE // 900),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_events_behind_long_damage_are_found(kind: str) -> None:
    """Quadratic time would take hours here and in the tests below."""
    text = HOSTILE[kind] + b',"traceEvents":['
    head = envelope.read_head(text + EVENT)
    assert (head and head.start) == (len(text) if text.startswith(b"{") else None)


@pytest.mark.parametrize("kind", HOSTILE)
def test_only_the_last_bracket_ends_long_damage(kind: str) -> None:
    text = HOSTILE[kind]
    assert envelope.read_tail(text, bare=False) is None
    assert last_boundary(text) is None
    assert envelope.scan_end(text, 0) == (text.rindex(b"]") if text.rstrip().endswith(b"]") else None)


def test_a_megabyte_of_quotes_in_a_metrics_file_is_damage() -> None:
    found = metrics_file.read(b'[{"metric_name": "' + b'\\"' * MB + b"\n")
    assert [issue.kind for issue in found.issues] == ["damaged record", "unterminated"]


def test_a_long_head_is_examined_at_most_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    plain = envelope.read_head
    monkeypatch.setattr(chrome_trace.envelope, "read_head", lambda data: seen.append(len(data)) or plain(data))
    monkeypatch.setattr(stream, "BLOCK", 1000)
    monkeypatch.setattr(stream, "COMPRESSED_BLOCK", 1000)
    data = b'{"notes":"' + b"x" * 200_000 + b'","traceEvents":[' + EVENT + b"]}"
    assert read(data).names == ["a"]
    assert sum(seen) < 4 * len(data)


def test_many_lists_after_the_events_limit_the_search_for_the_last_event(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    plain = envelope.ends_with_event
    monkeypatch.setattr(envelope, "ends_with_event", lambda data: seen.append(len(data)) or plain(data))
    lists = b"".join(b',"k%d":[{}]' % number for number in range(500))
    data = b'{"traceEvents":[' + EVENT + b'],"big":"' + b"x" * 100_000 + b'"' + lists + b"}"

    assert read(data).names == ["a"]
    assert sum(seen) < 70 * len(data)


def test_blank_text_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "blank.json.gz"
    squeeze = zlib.compressobj(1, wbits=31)
    path.write_bytes(b"".join(squeeze.compress(b" " * MB) for _ in range(200)) + squeeze.flush())
    tracemalloc.start()
    with ByteStream(str(path)) as opened:
        assert sum(map(len, opened.blocks())) == 200 * MB
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 40 * MB


@pytest.mark.parametrize("form", ["gzip", "zstd"])
def test_the_size_of_unpacked_blocks_is_limited(form: str, tmp_path: Path) -> None:
    data = b"\0" * (60 * MB)
    squeezed = gzip.compress(data, 1, mtime=0) if form == "gzip" else zstandard.ZstdCompressor().compress(data)
    path = tmp_path / "zeros"
    path.write_bytes(squeezed)
    with ByteStream(str(path)) as opened:
        sizes = list(map(len, opened.blocks()))
    assert sum(sizes) == len(data)
    assert max(sizes) <= 80 * MB if form == "zstd" else max(sizes) <= 12 * MB


def test_zstandard_may_unpack_no_more_than_gzip(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(b" " * (200 * MB)))
    with ByteStream(str(path)) as opened:
        given = sum(map(len, opened.blocks()))
        (issue,) = opened.issues
    assert path.stat().st_size < 20_000
    assert given <= 64 * MB
    assert issue.message == "the zstd stream is damaged: it unpacks to more than 1,000 times its size"


def test_blanks_before_the_events_are_skipped_quickly() -> None:
    begun = process_time()
    assert envelope.read_head(b" \n" * (10 * MB) + document([x("a", 1, 2)])) is not None
    assert process_time() - begun < 1


@pytest.mark.parametrize("end", ["\n", " \n"])
def test_a_million_blank_lines_are_counted_and_not_delivered(end: str) -> None:
    lines = list(read_lines(f"a\n{end * MB}b\n".encode(), IssueTally()))
    assert [(line.number, line.text) for line in (lines[0], lines[-1])] == [(1, "a"), (MB + 2, "b")]
    assert len(lines) < MB // 4


class Counted:
    """A decompressor that counts the bytes given to it and to its copies."""

    fed = 0

    def __init__(self, member: object) -> None:
        self._member = member

    def __getattr__(self, name: str) -> object:
        return getattr(self._member, name)

    def copy(self) -> Counted:
        return Counted(self._member.copy())

    def decompress(self, data: bytes) -> bytes:
        Counted.fed += len(data)
        return self._member.decompress(data)


def test_a_damaged_stream_is_decompressed_at_most_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = document([x(random.Random(1).randbytes(60_000).hex(), 1, 1)])
    squeezed = bytearray(gzip.compress(text, mtime=0))
    squeezed[40_000:40_004] = b"\xff\xff\xff\xff"
    path = tmp_path / "damaged.json.gz"
    path.write_bytes(squeezed)
    codec = stream.CODECS[0]
    counted = type(codec)(codec.name, codec.magic, lambda: Counted(codec.open()), codec.error)
    monkeypatch.setattr(stream, "CODECS", (counted,))
    Counted.fed = 0
    with ByteStream(str(path)) as opened:
        blocks = list(opened.blocks())
    assert len(blocks) == 1
    assert text.startswith(blocks[0][:30_000])
    assert Counted.fed < 1.2 * len(squeezed) + 3000
    assert opened.issues


def test_text_without_any_event_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BLOCK", 1000)
    monkeypatch.setattr(stream, "COMPRESSED_BLOCK", 1000)
    monkeypatch.setattr(chrome_trace, "_LONGEST_CARRY", 5_000)
    monkeypatch.setattr(chrome_trace, "_LONGEST_EVENT", 20_000)
    found = read(
        b'{"traceEvents":[' + EVENT + b"," + EVENT + b',"' + b"x" * 100_000 + b'",' + EVENT + b"," + EVENT + b"]}"
    )
    assert found.names[0] == "a"
    assert found.names[-1] == "a"
    dropped = [count for kind, count, _ in found.issues if kind == "dropped text"]
    assert dropped
    assert found.status == "repaired"


EVENTS = [x("a", 1, 2), x("b\nc", 3, 4, nested={"x": [1]})]


@pytest.mark.parametrize("between", [b"\n", b"\r\n", b"\n\n", b" \n "])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_an_event_on_each_line_is_read(between: bytes, end: bytes) -> None:
    found = read(between.join(map(orjson.dumps, EVENTS)) + end)
    assert (found.names, found.status) == (["a", "b\nc"], "ok")
    assert found.rows == read(document(EVENTS)).rows


def test_lines_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b"\n".join(orjson.dumps(x(f"op{number}", number, 1)) for number in range(50))
    for size in (100, 333, 1000):
        monkeypatch.setattr(stream, "BLOCK", size)
        monkeypatch.setattr(stream, "COMPRESSED_BLOCK", size)
        assert read(lines).names == [f"op{number}" for number in range(50)]


def test_lines_without_events_are_not_a_trace() -> None:
    with pytest.raises(Exception, match="without a traceEvents array"):
        read(b'{"a": 1}\n{"b": 2}\n')


def test_deep_arguments_keep_their_event() -> None:
    deep = b'{"ph":"X","name":"deep","ts":1,"dur":1,"args":' + b'{"a":' * 2000 + b"1" + b"}" * 2000 + b"}"
    whole = read_names(b'{"traceEvents":[' + EVENT + b"," + deep + b"]}")
    assert whole == (["a", "deep"], "ok", [])
    # Near the damage, each event is parsed on its own by a parser that rejects such deep nesting. The loss is reported.
    names, status, kinds = read_names(b'{"traceEvents":[' + deep + b',{"ph":"X","name":"tab\there","ts":1,"dur":1}]}')
    assert (names, status) == (["tab\there"], "repaired")
    assert "dropped events" in kinds


def read_names(data: bytes) -> tuple[list[str], str, list[str]]:
    """Return the names, the status and the kinds of issues. Arguments are ignored, because Python's own parser rejects
    such deep nesting.
    """
    import tempfile

    from perftool.store.trace_store import TraceStore

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(data)
        with TraceStore() as store:
            added = store.add_trace(str(path))
            names = [row["name"] for row in store.select("SELECT name FROM raw ORDER BY rowid")]
    return names, added.status, [issue.kind for issue in added.issues]
