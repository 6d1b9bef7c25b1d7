"""Messages from a sandbox that hostile SQL controls never pass for answers and never crash the program."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import pytest

from perftool.store.sandbox.sandbox import Bounds, Result, read_result
from perftool.store.sandbox.wire import BrokenFrameError, encoded, send

COLUMNS, DONE = {"columns": ["a"]}, {"done": True, "cut": False}
BOUNDS = Bounds(1.0, rows=3, bytes=1000)
LONGEST = (1000 + (16 << 20)).to_bytes(4, "big")


def answer(*frames: Any) -> io.BytesIO:
    """Return a pipe with ``frames``: bytes stay as they are, and anything else becomes JSON."""
    pipe = io.BytesIO()
    for frame in frames:
        send(pipe, frame if isinstance(frame, bytes) else encoded(frame))
    pipe.seek(0)
    return pipe


def packed(*values: Any) -> io.BytesIO:
    return answer(COLUMNS, {"packed": [list(values)]}, DONE)


BROKEN = {
    "no JSON": answer(b"\x80\x04pickle"),
    "no UTF-8": answer(b'"\xff"'),
    "deep lists": answer(b"[" * 200_000),
    "deep objects": answer(b'{"a":' * 200_000),
    "deep values": answer(COLUMNS, b'{"packed": [[' + b"[" * 101 + b"]" * 101 + b"]]}", DONE),
    "deep tuples": answer(COLUMNS, b'{"packed": [[' + b'{"tuple":[' * 101 + b"]}" * 101 + b"]]}", DONE),
    "a number of 5,000 digits": answer(b"1" * 5000),
    "half a character": answer({"error": "\ud800"}),
    "half a character in a name": answer({"columns": ["\udfff"]}),
    "no object": answer([1]),
    "no object either": answer("error"),
    "a number": answer(1),
    "columns that are a number": answer({"columns": 1}),
    "columns that are text": answer({"columns": "ab"}),
    "columns that are numbers": answer({"columns": [1]}),
    "rows that are a number": answer(COLUMNS, {"rows": 5}),
    "rows that are numbers": answer(COLUMNS, {"rows": [1, 2]}),
    "rows that are texts": answer(COLUMNS, {"rows": ["a"]}),
    "rows that are an object": answer(COLUMNS, {"rows": {"a": 1}}),
    "rows of another length": answer(COLUMNS, {"rows": [[1, 2]]}),
    "rows of lists": answer(COLUMNS, {"rows": [[[1]]]}),
    "rows without columns": answer({"rows": [[1]]}),
    "rows that are not there": answer(COLUMNS, {}),
    "packed rows that are null": answer(COLUMNS, {"packed": None}),
    "too many rows": answer(COLUMNS, {"rows": [[1]] * 4}),
    "too many rows in turn": answer(COLUMNS, *[{"rows": [[1]]}] * 4),
    "a value of two kinds": packed({"number": "1", "day": "2024-02-29"}),
    "a value of no kind": packed({}),
    "a value of an unknown kind": packed({"pickle": "gA=="}),
    "a number that is a list": packed({"number": []}),
    "a text instead of a number": packed({"number": "one"}),
    "a number without end": packed({"number": "1E+999999"}),
    "an identity that is a number": packed({"uuid": 5}),
    "bytes that are a number": packed({"bytes": 5}),
    "a moment that is null": packed({"moment": None}),
    "a day that does not exist": packed({"day": "2023-02-29"}),
    "a span of texts": packed({"span": ["a"]}),
    "a span without end": packed({"span": [10**18]}),
    "a span of too many": packed({"span": list(range(20))}),
    "a tuple that is a number": packed({"tuple": 1}),
    "a number instead of a pair": packed({"dict": [1]}),
    "pairs of three": packed({"dict": [[1, 2, 3]]}),
    "a key that is a list": packed({"dict": [[[1], 2]]}),
    "a length beyond all": io.BytesIO(b"\xff\xff\xff\xff"),
    "a length beyond the bound": io.BytesIO((int.from_bytes(LONGEST, "big") + 1).to_bytes(4, "big")),
    "more in sum than was asked for": answer({"columns": ["x" * (9 << 20)]}, {"columns": ["x" * (9 << 20)]}),
}


@pytest.mark.parametrize("pipe", BROKEN.values(), ids=BROKEN.keys())
def test_invalid_answers_are_recognised(pipe: io.BytesIO) -> None:
    pipe.seek(0)
    with pytest.raises(BrokenFrameError):
        read_result(pipe, BOUNDS)


@pytest.mark.parametrize(
    "pipe", [io.BytesIO(), io.BytesIO(b"\0\0"), io.BytesIO(LONGEST + b"{"), answer(COLUMNS, {"rows": [[1]]})]
)
def test_a_truncated_answer_is_rejected(pipe: io.BytesIO) -> None:
    assert read_result(pipe, BOUNDS) is None


def test_an_answer_is_its_rows() -> None:
    sent = [COLUMNS, {"rows": [[1], ["\U0001f600"]]}, {"packed": [[{"tuple": [{"number": "1.50"}]}]]}, DONE]
    found = read_result(answer(*sent), BOUNDS)
    assert isinstance(found, Result)
    assert [str(value) for (value,) in found.rows] == ["1", "\U0001f600", "(Decimal('1.50'),)"]
    assert found.bytes == sum(len(json.dumps(message)) for message in sent)


def test_an_error_is_short() -> None:
    assert read_result(answer({"error": "e" * 9_000}), BOUNDS) == "e" * 2_000
    assert read_result(io.BytesIO(struct.pack(">I", 14) + b'{"error": [1]}'), BOUNDS) == "[1]"
