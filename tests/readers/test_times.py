"""Times become integer nanoseconds without any loss of precision."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import Reading, read
from test_cutting import read_in_blocks

from perftool.readers.trace.chrome_trace import ChromeTrace


def trace(*times: tuple[str, str]) -> bytes:
    """Return a trace of events whose ``ts`` and ``dur`` have exactly the given text."""
    events = [f'{{"ph":"X","name":"a","pid":1,"tid":1,"ts":{ts},"dur":{dur}}}' for ts, dur in times]
    return ('{"traceEvents":[' + ",".join(events) + "]}").encode()


def ns(micros: str) -> int:
    return int(Decimal(micros) * 1000)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("0", 0),
        ("5", 5_000),
        ("0.001", 1),
        ("0.999", 999),
        ("1.0005", 1_000),  # half a nanosecond is rounded to even on both paths
        ("12.345", 12_345),
        ("-3", -3_000),
        ("-0.25", -250),
        ("1e3", 1_000_000),
        ("1.5E-1", 150),
        ("1683564901548726", 1683564901548726000),
        ("1683564901548726.1", 1683564901548726100),
        ("1683564901548726.123", 1683564901548726123),
        ("1683564901548726.999", 1683564901548726999),
        ("7681265892914.967", 7681265892914967),
        ("9007199254740.991", 9007199254740991),
        ('"5"', 5_000),
        ('"1683564901548726.123"', 1683564901548726123),
        ("NaN", None),
        ("inf", None),
        ("-Infinity", None),
        ('"soon"', None),
        ("null", None),
        ("true", None),
        ("false", None),
        ("{}", None),
        ("[1]", None),
        ("1e300", None),
        ("9.2e15", None),  # later than 2043: the sum of two such times would overflow
        ("-9.2e15", None),
        ('"9200000000000000.5"', None),
        ("-1e300", None),
    ],
)
def test_a_time_as_written(written: str, expected: int | None) -> None:
    found = read(trace((written, "2"), ("1", written)))
    assert [row[5] for row in found.rows][:1] == [expected]
    assert [row[6] for row in found.rows][1:] == [expected]


def only_times(found: Reading) -> list[tuple[int | None, int | None]]:
    assert (found.issues, found.status) == ([], "ok")
    return found.times


MICROS = st.builds("{}.{:03}".format, st.integers(0, 2**53 // 1000 - 1), st.integers(0, 999))
ABSOLUTE = st.builds("{}.{:03}".format, st.integers(10**15, 2 * 10**15), st.integers(0, 999))


@settings(max_examples=15)
@given(st.lists(st.tuples(MICROS, MICROS), min_size=1, max_size=32))
def test_relative_times_are_exact_up_to_2_to_the_53_ns(times: list[tuple[str, str]]) -> None:
    assert only_times(read(trace(*times))) == [(ns(ts), ns(dur)) for ts, dur in times]


@settings(max_examples=20)
@given(st.lists(st.tuples(ABSOLUTE, MICROS), min_size=1, max_size=24), st.integers(100, 400))
def test_absolute_times_are_exact_anywhere_in_the_file(times: list[tuple[str, str]], block: int) -> None:
    assert only_times(read_in_blocks(trace(("0", "1"), *times), block)) == [
        (0, 1000),
        *[(ns(ts), ns(dur)) for ts, dur in times],
    ]


def test_exponents_among_absolute_times() -> None:
    found = read(trace(("1683564901548726.123", "2.5e1"), ("1.683564901548727e15", "1E-1")))
    assert only_times(found) == [(1683564901548726123, 25_000), (1683564901548727000, 100)]


def test_absolute_times_after_a_long_head() -> None:
    """The first block ends before the first event begins."""
    head = '{"log": "' + "x" * 300_000 + '", "traceEvents": ['
    events = trace(("1683564901548726.123", "0.5")).removeprefix(b'{"traceEvents":[')
    assert read(head.encode() + events).times == [(1683564901548726123, 500)]


def test_a_negative_length_is_kept_as_written() -> None:
    assert read(trace(("10", "-4"))).times == [(10_000, -4_000)]


NEAR_THE_LIMIT = st.builds("{}.{:03}".format, st.integers(8_600_000_000_000, 9_007_199_254_739), st.integers(0, 999))
MORE_DECIMALS = st.builds(
    "{}.{:03}{}".format, st.integers(10**12, 9 * 10**12), st.integers(0, 999), st.sampled_from("149")
)


@settings(max_examples=25)
@given(st.lists(NEAR_THE_LIMIT, min_size=1, max_size=32))
def test_times_are_exact_on_both_sides_of_where_doubles_end(times: list[str]) -> None:
    assert only_times(read(trace(*((ts, "1") for ts in times)))) == [(ns(ts), 1000) for ts in times]


@settings(max_examples=15)
@given(st.lists(MORE_DECIMALS, min_size=1, max_size=16))
def test_further_decimals_are_rounded_alike(times: list[str]) -> None:
    rounded = [int((Decimal(ts) * 1000).to_integral_value()) for ts in times]
    assert only_times(read(trace(*((ts, "1") for ts in times)))) == [(ts, 1000) for ts in rounded]


def test_times_of_kineto_are_read_by_the_fast_path(tmp_path: Path) -> None:
    for written, exact in [("1428625746910.765", False), ("8699999999999.999", False), ("8700000000000.001", True)]:
        path = tmp_path / "trace.json"
        path.write_bytes(trace((written, "0.5")))
        (chunk,) = ChromeTrace(str(path), tmp_path).chunks()
        assert chunk.exact is exact
