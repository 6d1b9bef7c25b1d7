"""How times, sizes, shares and counts are written as text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftool.units import format_alike, format_bytes, format_count, format_ns, format_ratio, ranks_text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"), (999, "999 ns"), (1000, "1.00 us"), (-2000, "-2.00 us"), (12_340, "12.3 us"), (999_400, "999 us"),
        (999_500, "1.00 ms"), (999_999_999, "1.00 s"), (1_234_000_000, "1.23 s"), (86_400_000_000_000, "86400 s"),
    ],
)  # fmt: skip
def test_times(ns: int, text: str) -> None:
    assert format_ns(ns) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (1 << 20, "1.00 MiB"), ((1 << 20) - 1, "1.00 MiB")],
)
def test_sizes(size: int, text: str) -> None:
    assert format_bytes(size) == text


@given(st.integers(1000, 999_000_000_000))
def test_three_digits_or_four(ns: int) -> None:
    number, _ = format_ns(ns).split()
    assert re.fullmatch(r"\d\.\d\d|\d\d\.\d|\d{3}|10\.00|100\.0", number)


def test_shares_and_counts() -> None:
    assert [format_ratio(0.3141), format_count(12_345), format_count(2.5)] == ["31.4 %", "12,345", "2.50"]


def test_times_side_by_side_have_one_unit() -> None:
    assert format_alike(28.5e6, 800, -28.5e6) == ["28.5 ms", "<0.1 ms", "-28.5 ms"]
    assert format_alike(450, 0, -450) == ["450 ns", "0 ns", "-450 ns"]
    assert format_alike(1.5e9, 2e6) == ["1.50 s", "<0.01 s"]


def test_ranks_are_listed_as_ranges() -> None:
    assert ranks_text([0]) == "0"
    assert ranks_text([4, 5]) == "4, 5"
    assert ranks_text([0, 1, 2, 3, 6, 8, 9]) == "0-3, 6, 8, 9"
    assert ranks_text([0, 1, 2, 4, 6, 7, 8], most=2) == "0-2, 4 and 3 more"
