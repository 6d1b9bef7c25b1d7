"""Finds JSON strings in text of any length.

A regular expression such as ``(?:[^"\\\\]|\\\\.)*`` keeps a state for every character, which takes 120 times the memory
of the text. These patterns keep a state per escape, and match at most a thousand escapes at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import AnyStr

# Matches a string up to its closing quote, with at most 1,000 escapes.
_RUN = re.compile(r'[^"\\]*(?:\\.[^"\\]*){0,1000}', re.DOTALL)
_RUN_OF_BYTES = re.compile(rb'[^"\\]*(?:\\.[^"\\]*){0,1000}', re.DOTALL)

_COLON = re.compile(r"\s*:")


def string_end(text: AnyStr, start: int) -> int | None:
    """Return the offset after the string whose opening quote is at ``start``, or None if it is unclosed."""
    run, quote = (_RUN, '"') if isinstance(text, str) else (_RUN_OF_BYTES, b'"')
    at = start + 1
    while (found := run.match(text, at)) is not None and found.end() > at:
        at = found.end()
        if text.startswith(quote, at):
            return at + 1
    return at + 1 if text.startswith(quote, at) else None


def strings(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each string in ``text``. An unclosed string extends to the end."""
    at = text.find('"')
    while at >= 0:
        end = string_end(text, at) or len(text)
        yield at, end
        at = text.find('"', end)


def with_strings(text: str, inside: Callable[[str], str]) -> str:
    """Replace each string in ``text``, including its quotes, with the result of ``inside``."""
    parts: list[str] = []
    last = 0
    for start, end in strings(text):
        parts += (text[last:start], inside(text[start:end]))
        last = end
    parts.append(text[last:])
    return "".join(parts)


def keys_in(text: str) -> Iterator[str]:
    """Return the keys of objects in ``text``, with escapes: the strings that a colon follows."""
    return (text[start + 1 : end - 1] for start, end in strings(text) if _COLON.match(text, end))
