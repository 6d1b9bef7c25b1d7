"""A value of the wrong kind, or out of range, counts as missing."""

from __future__ import annotations

from math import inf, nan

import pytest

from perftool.readers.text.json_values import LONGEST_TEXT, integer, number, text


@pytest.mark.parametrize("value", [None, True, "1", [1], {}, -1, -0.5, 8, 8.0, 10**400, nan, inf, -inf])
def test_these_are_neither_integers_nor_numbers(value: object) -> None:
    assert integer(value, below=8) is None
    assert number(value, below=8) is None


def test_numbers_in_range_are_kept() -> None:
    assert [integer(value, below=8) for value in (0, 7, 7.5)] == [0, 7, None]
    assert [number(value, below=8) for value in (0, 7, 7.5)] == [0, 7, 7.5]
    assert [number(value, below=8, signed=True) for value in (-7.5, -8, nan, -inf)] == [-7.5, None, None, None]
    assert [number(value) for value in (10**400, inf, nan)] == [10**400, None, None]


def test_a_text_is_cut_and_an_empty_one_is_missing() -> None:
    assert text("x" * (LONGEST_TEXT + 1)) == "x" * LONGEST_TEXT
    assert [text(value) for value in ("", None, 3, ["x"])] == [None] * 4
