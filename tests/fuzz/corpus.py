"""Inputs that once broke or stalled a reader, for each target."""

from __future__ import annotations

import gzip
from random import Random

EVENT = b'{"ph":"X","name":"a","ts":1,"dur":1,"pid":1,"tid":1}'
_STRING = EVENT.replace(b'"a"', b'"%b"' % Random(1).randbytes(30_000).hex().encode())
_HALF = gzip.compress(b'{"traceEvents":[' + _STRING + b"]}", mtime=0)

CORPUS: dict[str, tuple[str, bytes]] = {
    "a damaged gzip with one long string": ("compressed", _HALF[:20_000] + b"\xff" * 4 + _HALF[20_004:]),
    "UTF-16 without a mark": ("trace", (b'{"traceEvents":[' + EVENT * 900 + b"]}").decode().encode("utf-16-le")),
    "gzip of spaces": ("compressed", gzip.compress(b" " * (8 << 20), mtime=0)),
    "a trailing comma": ("trace", b'{"traceEvents":[' + EVENT + b",]}"),
    "deep arguments": ("trace", b"[" + EVENT[:-1] + b',"args":' + b'{"a":' * 2000 + b"1" + b"}" * 2001 + b"]"),
    "an event on each line": ("trace", b"\n".join([EVENT] * 3)),
    "lines that end like a document": ("copy", EVENT + b"\n" + EVENT + b"," + EVENT + b"]}"),
    "quotes without an end": ("trace", b'{"traceEvents":[{"ph":"X","name":"' + b'"' * 60_000),
    "an endless device": ("settings", b'extend = "/dev/zero"'),
    "an output elsewhere": ("settings", b'output-file = "../victim"'),
    "logging": ("query", b"SELECT * FROM enable_logging('QueryLog', storage='stdout')"),
    "a slow function": ("query", b"SELECT levenshtein(repeat('a',200000), repeat('b',200000))"),
    "a long text": ("query", b"SELECT length(repeat('x',4000000000))"),
    "an event very often": (
        "cases",
        b'[[case]]\nname = "n"\nfindings = []\nevents = [{name = "a", ts = 0, dur = 1, repeat = 1000000000000}]\n',
    ),
}
