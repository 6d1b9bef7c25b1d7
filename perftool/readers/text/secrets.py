"""Finds likely passwords and tokens in the metadata of a trace: some launchers write their environment there."""

from __future__ import annotations

import json
import re
import sys
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
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
# A text is compared with so many letters of a secret at once, and searched in pieces of so many bytes.
_LONGEST = 32
_BLOCK = 1 << 16


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
        held += block
        if len(held) >= _BLOCK:
            # What begins later may go on in the next block.
            pieces, rest = _replaced(held, search.spans(held), max(len(held) - search.widest, 0))
            yield pieces
            held = held[rest:]
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


def those_in(text: bytes, secrets: Collection[str]) -> set[str]:
    """Those of ``secrets`` of which ``text``, JSON or HTML, has at least a part."""
    return _Search(secrets).those_in(text) if secrets else set()


class _Search:
    """Finds ``secrets`` in every spelling, in a time that does not grow with their number. Few texts have escapes of
    the letters of a secret, so only there are escapes decoded; ``widest`` is the length of the longest spelling.
    """

    def __init__(self, secrets: Collection[str]) -> None:
        ways = {letter: _spellings(letter) for letter in set("".join(secrets))}
        usual = {letter: _usual(letter) for letter in ways}
        # All secrets that have a part: a long one is several, so that no place is compared with long texts.
        self._secrets: dict[bytes, list[str]] = {}
        for secret in secrets:
            for part in _parts(secret):
                self._secrets.setdefault(b"".join(usual[letter] for letter in part), []).append(secret)
        # The lengths of the parts that begin alike, the longest first. With a letter more than the shortest has, few
        # places of a text begin like any.
        begins: dict[bytes, set[int]] = {}
        self._shortest = min(_SHORTEST, *map(len, self._secrets))
        for written in self._secrets:
            begins.setdefault(written[: self._shortest + 1], set()).add(len(written))
        self._lengths = {begin: sorted(lengths, reverse=True) for begin, lengths in begins.items()}
        letters = re.escape(bytes(sorted({*b"".join(usual.values())})))
        self._run = re.compile(b"[%b]{%d,}" % (letters, self._shortest))
        self._usual = {name: usual[letter] for letter, all_ways in ways.items() for name in all_ways}
        self._escape = re.compile(b"|".join(map(re.escape, sorted(self._usual))), re.IGNORECASE)
        self.widest = _WIDEST * max(map(len, self._secrets))

    def spans(self, text: bytes) -> list[tuple[int, int]]:
        """Where secrets begin and end in ``text``, in order; those that overlap are one."""
        return _joined(sorted(self._found(text)))

    def those_in(self, text: bytes) -> set[str]:
        """The secrets that have a part in ``text``."""
        spans = self._found(text)
        return {secret for start, end in spans for secret in self._secrets.get(self._decoded(text, start, end)[0], ())}

    def _found(self, text: bytes) -> list[tuple[int, int]]:
        found = [*self._as_usual(text)]
        near = (self._near(one.span()) for one in self._escape.finditer(text))
        for start, end in _joined(near):
            decoded, marks = self._decoded(text, start, end)
            found += [(_place(marks, begin), _place(marks, end)) for begin, end in self._as_usual(decoded)]
        return found

    def _as_usual(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Where parts of secrets are in ``text``, as usually written."""
        shortest, lengths, secrets = self._shortest, self._lengths, self._secrets
        for run in self._run.finditer(text):
            at, end = run.span()
            while at <= end - shortest:
                begun = lengths.get(text[at : at + shortest + 1], ())
                length = next((one for one in begun if text[at : at + one] in secrets), 0)
                if length or text[at : at + shortest] in secrets:
                    yield at, at + (length or shortest)
                # The next one may overlap.
                at += 1

    def _decoded(self, text: bytes, start: int, end: int) -> tuple[bytes, list[tuple[int, int]]]:
        """``text`` from ``start`` to ``end`` as usually written, with places behind escapes there and in ``text``."""
        pieces, size, marks = [], 0, [(0, start)]
        for one in self._escape.finditer(text, start, end):
            before, letter = text[marks[-1][1] : one.start()], self._usual[one.group().lower()]
            pieces += [before, letter]
            size += len(before) + len(letter)
            marks.append((size, one.end()))
        return b"".join([*pieces, text[marks[-1][1] : end]]), marks

    def _near(self, span: tuple[int, int]) -> tuple[int, int]:
        return max(span[0] - self.widest, 0), span[1] + self.widest


def _place(marks: Sequence[tuple[int, int]], at: int) -> int:
    """The place in a text of ``at`` in what was decoded from it."""
    decoded, place = marks[bisect_right(marks, (at, sys.maxsize)) - 1]
    return place + at - decoded


def _parts(secret: str) -> Iterator[str]:
    """``secret`` in parts of nearly the same length, of at most ``_LONGEST`` letters."""
    count = -(-len(secret) // _LONGEST)
    for part in range(count):
        yield secret[part * len(secret) // count : (part + 1) * len(secret) // count]


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """``spans``, which are in order, with those that overlap joined."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _usual(letter: str) -> bytes:
    """``letter`` as JSON usually has it."""
    return json.dumps(letter, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")


def _spellings(letter: str) -> list[bytes]:
    """The other ways to write ``letter`` in JSON and HTML, in lower case."""
    digits = letter.encode("utf-16-be", "surrogatepass").hex()
    ways = ["".join(f"\\u{digits[at : at + 4]}" for at in range(0, len(digits), 4))]
    if letter in _SHORT and letter not in '"\\':
        ways.append(f"\\{_SHORT[letter]}")
    return [way.encode() for way in [*ways, *(f"&{name};" for name in _ENTITIES.get(letter, ()))]]
