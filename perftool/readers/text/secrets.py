"""Finds likely passwords and tokens in the metadata of a trace: some launchers write their environment there."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

_NAME = re.compile(
    r"(?:^|[_.\-\s])(?:token|secret|passwd|password|passphrase|credentials?|(?:api|access|private|secret)[_\-]?key)"
    r"(?:$|[_.\-\s])",
    re.IGNORECASE,
)
# Tokens with well-known prefixes of services.
_VALUE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w\-]{16,}|sk-[\w\-]{20,}"
    r"|AKIA[0-9A-Z]{16}|xox[abpr]-[\w\-]{10,}|eyJ[\w\-]{10,}\.[\w\-]{10,}\.[\w\-]*)"
)
# A shorter secret would match inside other words, and protects nothing.
_SHORTEST = 8
_PLAIN = re.compile(r"[\w+/=.\-~!@#$%^&*:]+")
# Begins with a letter that may follow a backslash in JSON: what is replaced may follow one.
_STAND_IN = b"redacted"
_SHORT = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_ENTITIES = {"&": ("amp", "#38"), "<": ("lt", "#60"), ">": ("gt", "#62"), '"': ("quot", "#34"), "'": ("#39", "#x27")}
# The most bytes that a character takes: two escapes of JSON.
_WIDEST = 12


class Secret(NamedTuple):
    """A text that looks like a secret, and where it is: ``env.HF_TOKEN``."""

    name: str
    text: str


def secrets_in(value: Any) -> list[Secret]:
    """The texts in ``value`` (parsed JSON) that look like secrets, each once at a place."""
    found: dict[Secret, None] = {}
    # With each value its place, and the key that names it: a list has the name of its key.
    left: list[tuple[str, str, Any]] = [("", "", value)]
    while left:
        place, key, part = left.pop()
        if isinstance(part, str):
            found.update(dict.fromkeys(Secret(place or "text", text) for text in _secrets_of(key, part)))
        elif isinstance(part, dict):
            for name in map(str, part):
                found.update(dict.fromkeys(Secret(place or "text", token) for token in _VALUE.findall(name)))
            inner = ((f"{place}.{name}" if place else str(name), str(name), one) for name, one in part.items())
            left += reversed([*inner])
        elif isinstance(part, list):
            left += reversed([(f"{place}[{at}]", key, one) for at, one in enumerate(part)])
    return list(found)


def _secrets_of(key: str, text: str) -> Iterator[str]:
    if _NAME.search(key) and len(text) >= _SHORTEST and _PLAIN.fullmatch(text):
        yield text
    yield from _VALUE.findall(text)


def without(blocks: Iterable[bytes], secrets: Collection[str]) -> Iterator[bytes]:
    """``blocks`` of JSON or HTML with all ``secrets`` replaced, even across the boundary of two blocks, however their
    characters are written.
    """
    if not secrets:
        yield from blocks
        return
    search = _Search(secrets)
    held = b""
    for block in blocks:
        text = held + block
        # What begins later may go on in the next block.
        pieces, rest = _replaced(text, search.spans(text), max(len(text) - search.widest, 0))
        yield pieces
        held = text[rest:]
    yield _replaced(held, search.spans(held), len(held))[0]


def _replaced(text: bytes, spans: Iterable[tuple[int, int]], end: int) -> tuple[bytes, int]:
    """``text`` up to about ``end`` with the stand-in for all ``spans`` that begin before; and where its rest begins."""
    pieces, at = [], 0
    for start, stop in spans:
        if start >= end:
            break
        pieces += [text[at:start], _STAND_IN]
        at = stop
    rest = max(at, end)
    return b"".join([*pieces, text[at:rest]]), rest


def are_in(text: bytes, secrets: Collection[str]) -> bool:
    """Whether any of ``secrets`` is in ``text``, JSON or HTML."""
    return bool(secrets) and bool(_Search(secrets).spans(text))


class _Search:
    """Finds ``secrets`` in every spelling. Few texts have escapes of the letters of a secret, so only there all
    spellings of all letters are compared; ``widest`` is the length of the longest spelling.
    """

    def __init__(self, secrets: Collection[str]) -> None:
        longest_first = sorted(set(secrets), key=lambda secret: (-len(secret), secret))
        ways = {letter: _spellings(letter) for letter in set("".join(longest_first))}
        self._plain = re.compile(b"|".join(b"".join(ways[letter][0] for letter in one) for one in longest_first))
        self._escapes = re.compile(b"|".join(sorted({way for all_ways in ways.values() for way in all_ways[1:]})))
        any_way = {letter: b"(?:%b)" % b"|".join(all_ways) for letter, all_ways in ways.items()}
        self._any = re.compile(b"|".join(b"".join(any_way[letter] for letter in secret) for secret in longest_first))
        self.widest = _WIDEST * len(longest_first[0])

    def spans(self, text: bytes) -> list[tuple[int, int]]:
        """Where secrets begin and end in ``text``, in order; those that overlap are one."""
        found = [one.span() for one in self._plain.finditer(text)]
        for start, end in _joined(self._near(one.span()) for one in self._escapes.finditer(text)):
            found += [one.span() for one in self._any.finditer(text, start, end)]
        return _joined(sorted(found))

    def _near(self, span: tuple[int, int]) -> tuple[int, int]:
        return max(span[0] - self.widest, 0), span[1] + self.widest


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """``spans``, which are in order, with those that overlap joined."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _spellings(letter: str) -> list[bytes]:
    """Patterns of the ways to write ``letter`` in JSON and HTML, the usual one first."""
    usual = json.dumps(letter, ensure_ascii=False)[1:-1]
    ways = [re.escape(usual.encode("utf-8", "surrogatepass")), _escaped(letter)]
    if letter in _SHORT:
        ways.append(re.escape(f"\\{_SHORT[letter]}".encode()))
    return ways + [f"&{name};".encode() for name in _ENTITIES.get(letter, ())]


def _escaped(letter: str) -> bytes:
    """A pattern of ``letter`` as one escape of JSON or, beyond 16 bits, two."""
    digits = letter.encode("utf-16-be", "surrogatepass").hex()
    units = (digits[at : at + 4] for at in range(0, len(digits), 4))
    any_case = ("".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in unit) for unit in units)
    return "".join(rf"\\u{unit}" for unit in any_case).encode()
