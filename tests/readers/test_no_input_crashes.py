"""For any bytes, a reader returns a reading or raises InputError."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scanning import CsvReading, read_banner, read_csv, read_events, read_fallbacks

from perftool.errors import InputError
from perftool.model.records import LogReading
from perftool.readers import text_input
from perftool.readers.config import run_config
from perftool.readers.logs import console_log, environment_dump
from perftool.readers.logs.bridge_patterns import BRIDGE_PATTERNS
from perftool.readers.logs.framework_patterns import FRAMEWORK_PATTERNS
from perftool.readers.metrics import compilation_stats, metrics_file

READERS = (
    read_banner,
    compilation_stats.read,
    console_log.read,
    environment_dump.read,
    read_fallbacks,
    metrics_file.read,
    read_csv,
    run_config.read,
    read_events,
    text_input.read,
)

# Fragments of every format, which let random text pass the first check of a reader.
FRAGMENTS = """\
[1,0]<stdout>:
rank3:
[20:57:12.104233]
[PT_LAZY ]
[tid:1]
[R9]
CPU Fallback stats:
7\taten::add.out
CPU fallback x : self=HPUFloatType
HABANA PT BRIDGE CONFIGURATION
 PT_X = 1
------------------------------
Metric name: m
Statistics:
\tFallbackOps: {'a': 1}
\tTotalNumber: 3
[{"metric_name": "cpu_fallback", "statistics": {"TotalNumber":
"FallbackOps": {"a":
"recipe": [["g",
[{"000000001": {"shapes":
"compilations": [{"recipe": 1
Name,Trace Source,Engine,Event type,Timestamp[usec]
a,HW,TPC,BEGIN,1
a,HW,TPC,END,2
3%|x| 3/9 [00:01<00:32, 1it/s]
RANK=1
recipe compilation time |last 1 [ns] |sum 1 [ns] |count 1|
"""
PIECES = [
    *(known.core for known in (*BRIDGE_PATTERNS, *FRAMEWORK_PATTERNS)),
    *FRAGMENTS.splitlines(),
    *FRAGMENTS.splitlines(keepends=True),
    *"\n\r\t \x1b\0\ud7ff={}[]\"',:-",
    *("::", "9" * 30, "nan", "\x1b[31m"),
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=30).map("".join)
ENCODED = st.builds(
    lambda text, encoding, end: text.encode(encoding, errors="replace")[: len(text) * 4 - end],
    TEXTS,
    st.sampled_from(["utf-8", "utf-16", "utf-16-be", "utf-32", "latin-1"]),
    st.integers(0, 3),
)


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__module__.rpartition(".")[2])
@settings(max_examples=60)
@given(content=st.binary(max_size=200) | ENCODED)
def test_only_input_errors(read: Callable[[bytes], LogReading | CsvReading], content: bytes) -> None:
    try:
        reading = read(content)
    except InputError:
        reading = LogReading()
    assert isinstance(reading, (LogReading, CsvReading))
    assert all(issue.count > 0 and issue.message for issue in reading.issues)


@settings(max_examples=60)
@given(content=st.binary(max_size=200) | ENCODED)
def test_reading_is_repeatable(content: bytes) -> None:
    assert console_log.read(content) == console_log.read(content)
