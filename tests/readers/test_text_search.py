"""Every search method finds the same lines that contain any of many strings."""

from __future__ import annotations

from random import Random

import pytest

from perftool.readers.logs import console_log
from perftool.readers.text import text_search
from perftool.readers.text.text_search import TextSearch

# Strings that overlap, that share prefixes, or that contain special characters of regular expressions.
TEXTS = ("abab", "ba", "b c", "%|", " | ", "[x]", "(a", "a.c", "\x1b", "'l': ", "é", "\\d", "a\0b")
PARTS = (*TEXTS, "a", "b", " ", "c", "x", "|", "axc", "7", "É", "\0", "\n", "\n", "\n")


@pytest.fixture(scope="module")
def long_text() -> str:
    random = Random(7)
    return "".join(random.choice(PARTS) for _ in range(4000)) + "\n"


@pytest.mark.parametrize("start", [0, 13, 5000])
@pytest.mark.parametrize("texts", [TEXTS, ("abab",), ("\x1b", "é"), ("none",), ()])
def test_both_ways_find_the_same_lines(
    texts: tuple[str, ...], start: int, long_text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = long_text.find("\n", start) + 1
    expected, at = [], begin
    for line in long_text[begin:].split("\n")[:-1]:
        if any(text in line for text in texts):
            expected.append(at)
        at += len(line) + 1
    with TextSearch() as search:
        few = search.lines_with(texts, long_text, begin)
        monkeypatch.setattr(text_search, "_LONG", 0)
        many = search.lines_with(texts, long_text, begin)
    assert few == many == expected


def test_every_text_of_logs_is_found_in_a_long_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_search, "_LONG", 0)
    texts = console_log._TEXTS
    piece = "".join(f"nothing\n{text}\n" for text in texts)
    with TextSearch() as search:
        found = search.lines_with(texts, piece, 0)
    assert [piece[begin : piece.index("\n", begin)] for begin in found] == list(texts)
