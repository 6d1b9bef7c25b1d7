"""Checks of values from JSON and pickles. A value that has the wrong type or is out of range counts as missing."""

from __future__ import annotations

from math import inf

LONGEST_TEXT = 1000


def integer(value: object, below: float = inf, *, signed: bool = False) -> int | None:
    """Return ``value`` if it is an integer, is less than ``below``, and is not negative; otherwise, return None. With
    ``signed``, it may be negative, and ``below`` limits its absolute value.
    """
    return value if isinstance(value, int) and number(value, below, signed=signed) is not None else None


def number(value: object, below: float = inf, *, signed: bool = False) -> int | float | None:
    """Like ``integer``, but also accepts floats."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if 0 <= (abs(value) if signed else value) < below else None  # false for NaN as well


def text(value: object) -> str | None:
    """Return ``value`` if it is a string that is not empty; otherwise, return None. Long strings are truncated, because
    many entries of a file may repeat them.
    """
    return value[:LONGEST_TEXT] if isinstance(value, str) and value else None
