"""Compares names with many patterns at once."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache

_PIECE = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
# Enough for the names in a folder of a run with ten thousand ranks.
_MOST = 32_768


class Globs:
    """Patterns like those of fnmatch, all matched in one pass: each character of a name takes a few operations on an
    integer that has one bit for each piece of the patterns.

    Python's regular expressions would try each pattern at each position of the name.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._starts = self._ends = self._stars = self._any = 0
        self._letters: dict[str, int] = {}
        self._sets: dict[str, int] = {}
        place = 1
        for pattern in patterns:
            self._starts |= place
            for piece in _PIECE.findall(os.path.normcase(pattern)):
                if piece == "*":
                    self._stars |= place
                    continue
                if piece == "?":
                    self._any |= place
                else:
                    kind = self._sets if len(piece) > 1 else self._letters
                    kind[piece] = kind.get(piece, 0) | place
                place <<= 1
            self._ends |= place
            place <<= 1
        self._tests = [(re.compile(translate(text)), places) for text, places in self._sets.items()]
        self._places: dict[str, int] = {}

    def match(self, name: str) -> bool:
        """Whether a pattern matches all of ``name``."""
        # The bit of a piece is set if the pieces before it in the pattern match the characters read so far.
        reached = self._starts
        for letter in os.path.normcase(name):
            reached = (reached & self._places_of(letter)) << 1 | reached & self._stars
            if not reached:
                return False
        return reached & self._ends != 0

    def _places_of(self, letter: str) -> int:
        """Return the bits of the pieces that match ``letter``."""
        places = self._places.get(letter)
        if places is None:
            places = self._any | self._letters.get(letter, 0)
            for test, where in self._tests:
                if test.match(letter):
                    places |= where
            self._places[letter] = places
        return places


@lru_cache(maxsize=8)
def _joined(patterns: tuple[str, ...]) -> Globs:
    return Globs(patterns)


@lru_cache(maxsize=_MOST)
def is_named_like(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of ``patterns`` matches ``path`` or its last part."""
    globs = _joined(patterns)
    return globs.match(path) or globs.match(os.path.basename(path))
