"""Matching many patterns in one pass gives the same results as fnmatch. The time does not depend on how much of each
pattern matches."""

from __future__ import annotations

from fnmatch import fnmatch
from itertools import product
from time import process_time

import pytest

from perftool.readers.files.globs import Globs

PATTERNS = (
    "", "*", "?", "a", "a*", "*a", "*a*b", "a?b", "**b", "?*", "[ab]b", "[!a]*", "[]a]", "[!]]b", "[a", "[a-b]*]",
    "*.json", "a/*b", "[", "é[à-é]*", "a.b", "\n*",
)  # fmt: skip
NAMES = ("".join(letters) for count in range(4) for letters in product("ab]/", repeat=count))
OTHER_NAMES = ("a.json", ".json", "ab\n", "\nab", "éé", "éàb", "éz", "[a", "[", "a.b", "aXb")


@pytest.mark.parametrize("name", [*NAMES, *OTHER_NAMES])
def test_patterns_match_like_pythons_fnmatch(name: str) -> None:
    for pattern in PATTERNS:
        assert Globs([pattern]).match(name) == fnmatch(name, pattern), pattern
    some = [pattern for pattern in PATTERNS if pattern not in ("*", "?*", "?", "")]
    assert Globs(some).match(name) == any(fnmatch(name, pattern) for pattern in some)


def test_a_thousand_long_patterns_cost_little_for_each_name() -> None:
    """Python's own patterns took 17 ms for each name."""
    globs = Globs([f"*{'x' * 58}{number:03}y" for number in range(1000)])
    begin = process_time()
    assert not any(globs.match("x" * 230) for _ in range(100))
    assert process_time() - begin < 0.6
