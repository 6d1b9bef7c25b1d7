"""Removes secrets and their repetitions from output."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from perftool.model.cut_text import CUT
from perftool.readers.secrets import (
    REPLACEMENT,
    SHORTEST,
    certainty,
    decode,
    is_secret,
    is_secret_number,
    joined,
    looks_random,
    replaced,
    secrets_in,
)
from perftool.readers.text.quoted import string_end

_T = TypeVar("_T")
_Edit = tuple[int, int, bytes]

_IN_JSON = b'"%b"' % REPLACEMENT.encode()
# A JSON string or, if it has many escapes, its beginning.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*){0,100}("|(?=\\))', re.DOTALL)
_COLON, _COMMA, _CLOSED = re.compile(rb"\s*:"), re.compile(rb"\s*,"), re.compile(rb"\s*\]")
_PART = re.compile(rb'[\[\]{}"]|[^\s,:\[\]{}"]+')
_DIGIT, _NUMBER = re.compile(r"\d"), re.compile(r"\d+")
_BETWEEN = re.compile(r"[\s\0\[\],|=:\"'\\]+")
# Reports may shorten strings without a mark: kernel names before their (template) arguments, stacks between frames,
# paths to the file name, modules before their number, and messages before a colon.
_CUT_BEFORE = re.compile(r"""[(<>;/\\'"`]|: |_\d+$""")
# A backslash ends a value that has no quotes, because it may begin an escape. It may also belong to a Windows path.
_PATH_BELOW = re.compile(r"""(?:\\+\w[^\s"'`&;<>\\]*)+""")
# Strings often repeat, so the results for the first strings are cached, except for long strings.
_MOST_KEPT, _LONGEST_KEPT = 1 << 16, 200
# Secrets are compared with text in parts of at most this many characters.
_LONGEST = 32


class _Judged(NamedTuple):
    """The text of a JSON string, and the string without its secrets (None if it contains none)."""

    text: str
    clean: bytes | None


class Redactor:
    """Removes strings that look like secrets, and further occurrences of secrets found earlier."""

    def __init__(self) -> None:
        self._removed: set[str] = set()
        self._texts: dict[str, str] = {}
        self._search: _Search | None = None
        self._judged: dict[bytes, _Judged] = {}

    @property
    def left_out(self) -> set[str]:
        """The names of values, or the kinds of tokens, that were removed since the last call of ``learn``."""
        return {self.text(kind) for kind in [*self._removed]}

    def learn(self, pieces: Iterable[bytes]) -> set[str]:
        """Learn the secrets in ``pieces`` of JSON, which must contain whole values; return their names or kinds."""
        for piece in pieces:
            for _ in self._edits(piece):
                pass
        learned = self.left_out
        self._search = _Search(self._texts) if self._texts else None
        self._judged.clear()
        self._removed.clear()
        return learned

    def json(self, piece: bytes) -> bytes:
        """Remove the secrets from ``piece``, JSON that consists of whole values."""
        parts, at = [], 0
        for start, end, clean in self._edits(piece):
            parts += [piece[at:start], clean]
            at = end
        return b"".join([*parts, piece[at:]]) if parts else piece

    def text(self, text: str) -> str:
        """Remove the secrets from ``text``."""
        spans = []
        for found in secrets_in(text):
            # Examine only the beginning of a long line, because a secret may begin at each of its characters.
            line = text[found.start : min(found.last, found.start + _LONGEST_KEPT)]
            below = _PATH_BELOW.match(text, found.end, found.end + _LONGEST_KEPT)
            self._remember(found.kind, text[found.start : found.end], line, below[0] if below else "")
            spans.append(found.span)
        if self._search:
            spans += self._repeated(self._search, text)
            decoded, origin = decode(text)
            if len(decoded) < len(text):
                spans += ((origin(start), origin(end)) for start, end in self._repeated(self._search, decoded))
        return replaced(text, spans)

    def _repeated(self, search: _Search, text: str) -> list[tuple[int, int]]:
        """Return the start and the end of each repetition that ``search`` finds in ``text``."""
        # Join the spans right away to save memory, because a secret may be found at every character of a long string.
        return [*joined(self._noted(search.found(text))), *self._noted(search.cut(text))]

    def _noted(self, found: Iterable[tuple[int, int, str]]) -> Iterator[tuple[int, int]]:
        """Yield the start and the end of each repetition in ``found``, and note its name or kind as removed."""
        for start, end, kind in found:
            self._removed.add(kind)
            yield start, end

    def value(self, value: _T) -> _T:
        """Remove the secrets from the strings in ``value``. Dataclasses, lists and tuples keep their types."""
        clean: Any = self._value(value)
        return clean  # type: ignore[no-any-return]

    def _value(self, value: Any) -> Any:
        if type(value) is str:
            return self.text(value)
        if isinstance(value, Mapping):
            return {self._value(key): self._value(one) for key, one in value.items()}
        if type(value) in (list, tuple):
            return type(value)(map(self._value, value))
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{one.name: self._value(getattr(value, one.name)) for one in fields(value)})
        return value

    def _remember(self, kind: str, text: str = "", line: str = "", below: str = "") -> None:
        """Learn the secret ``text``. Also learn the parts of the path ``below`` it, and words in the rest of its
        ``line`` that look like generated keys, because they may be part of the secret."""
        self._removed.add(kind)
        # Rules that group names regardless of numbers print # for each number. A value may be a list or a block of
        # YAML, and other text may repeat only the secret in it.
        words = filter(looks_random, _BETWEEN.split(line or text))
        for part in (text, *_CUT_BEFORE.split(text + below), _NUMBER.sub("#", text), *words):
            if len(part) >= SHORTEST:
                self._texts.setdefault(part, kind)

    def _edits(self, piece: bytes) -> Iterator[_Edit]:
        """Yield the spans of secrets in ``piece``, in order, with their replacements."""
        after = 0
        for start, end in _strings(piece):
            if start < after:
                continue
            judged = self._judge(piece[start:end])
            if judged.clean is not None:
                yield start, end, judged.clean
            option = judged.text.startswith("-") and _COMMA.match(piece, end)
            named = option or _COLON.match(piece, end) or _paired(piece, start, end)
            if named and certainty(judged.text):
                after = yield from self._named(piece, named.end(), judged.text, bool(option))

    def _judge(self, raw: bytes) -> _Judged:
        found = self._judged.get(raw)
        if found is None:
            text = _text_of(raw)
            clean = self.text(text)
            found = _Judged(text, None if clean == text else json.dumps(clean).encode())
            if len(raw) <= _LONGEST_KEPT and len(self._judged) < _MOST_KEPT:
                self._judged[raw] = found
        return found

    def _named(self, piece: bytes, at: int, name: str, option: bool) -> Generator[_Edit, None, int]:
        """Yield the spans of secrets in the value at ``at``, whose key is ``name``, and in its members. Return the end
        of the value."""
        depth, key = 0, name
        while found := _PART.search(piece, at):
            start, at = found.span()
            part, clean = found[0], None
            if part in (b"[", b"{", b"]", b"}"):
                depth += 1 if part in (b"[", b"{") else -1
            elif part == b'"':
                at = string_end(piece, start) or len(piece)
                judged = self._judge(piece[start:at])
                if option and judged.text.startswith("-"):
                    return start
                clean = judged.clean
                if depth and _COLON.match(piece, at):
                    key = max(name, judged.text, key=certainty)
                elif is_secret(key, judged.text):
                    # Strings without digits in a secret object, such as a region, are removed here but not elsewhere.
                    self._remember(name, judged.text if not depth or _DIGIT.search(judged.text) else "")
                    clean = _IN_JSON
            elif is_secret_number(key, part.decode()):
                self._remember(name)
                clean = _IN_JSON
            if clean is not None:
                yield start, at, clean
            if depth <= 0:
                break
        return at


class _Search:
    """Finds the strings in ``kinds``, or parts of them, in a time that does not depend on the number of strings."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        # Split long strings to keep comparisons short.
        self._parts = {part: kind for text, kind in kinds.items() for part in _parts(text)}
        # The lengths of parts, by their beginnings. A beginning is one character longer than the shortest part, so that
        # it is rare in text.
        begins: dict[str, set[int]] = {}
        for part in self._parts:
            begins.setdefault(part[: SHORTEST + 1], set()).add(len(part))
        # SHORTEST if some part has that length, otherwise 0. It is tried after all longer parts have failed to match.
        self._short = SHORTEST if any(len(part) == SHORTEST for part in self._parts) else 0
        self._lengths = {begin: sorted(lengths, reverse=True) for begin, lengths in begins.items()}
        letters = re.escape("".join(sorted({*"".join(self._parts)})))
        self._run = re.compile(f"[{letters}]{{{SHORTEST},}}")

    @cached_property
    def _begun(self) -> _Begun:
        return _Begun(self._parts)

    @cached_property
    def _ended(self) -> _Begun:
        return _Begun({part[::-1]: kind for part, kind in self._parts.items()})

    def cut(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield the start, the end and the kind of each fragment of a secret next to a cut in ``text``."""
        at = text.find(CUT)
        while at >= 0:
            length, kind = self._begun.longest(text[max(0, at - _LONGEST) : at])
            if length:
                yield at - length, at, kind
            at += len(CUT)
            length, kind = self._ended.longest(text[at : at + _LONGEST][::-1])
            if length:
                yield at, at + length, kind
            at = text.find(CUT, at)

    def found(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield the start, the end and the kind of each part of a learned secret in ``text``."""
        lengths, parts, short = self._lengths, self._parts, self._short
        for run in self._run.finditer(text):
            for at in range(run.start(), run.end() - SHORTEST + 1):
                lengths_here = lengths.get(text[at : at + SHORTEST + 1])
                length = (
                    next((one for one in lengths_here if text[at : at + one] in parts), short)
                    if lengths_here
                    else short
                )
                if length and (kind := parts.get(text[at : at + length])):
                    yield at, at + length, kind


class _Begun:
    """Finds the start of a learned string at the end of text that was cut. ``kinds`` maps each learned string to its
    kind."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self._kinds = kinds
        self._sorted = sorted(kinds)
        # For most positions in text, a single lookup here shows that no learned string begins there.
        self._begins = {text[:SHORTEST] for text in kinds}

    def longest(self, text: str) -> tuple[int, str]:
        """Return the length of the longest suffix of ``text`` that is the beginning of a learned string, and the kind
        of that string, or 0 and "" if no such suffix has at least SHORTEST characters."""
        for at in range(len(text) - SHORTEST + 1):
            if text[at : at + SHORTEST] in self._begins:
                place = bisect_left(self._sorted, text[at:])
                if place < len(self._sorted) and self._sorted[place].startswith(text[at:]):
                    return len(text) - at, self._kinds[self._sorted[place]]
        return 0, ""


def _text_of(raw: bytes) -> str:
    try:
        return str(json.loads(raw, strict=False)) if b"\\" in raw else raw[1:-1].decode("utf-8", "replace")
    except ValueError:
        return raw[1:-1].decode("utf-8", "replace")


def _paired(piece: bytes, start: int, end: int) -> re.Match[bytes] | None:
    """Return the comma behind the string from ``start`` to ``end`` if the string is the first of two values in an array
    that is in another array, as in a list of variables: ``[["HF_TOKEN", "X"]]``."""
    before = piece[max(0, start - _LONGEST_KEPT) : start].rstrip()
    comma = before.endswith(b"[") and before[:-1].rstrip().endswith((b"[", b",")) and _COMMA.match(piece, end)
    value = _PART.search(piece, comma.end()) if comma else None
    if not comma or not value or value[0] in (b"[", b"]", b"{", b"}"):
        return None
    value_end = string_end(piece, value.start()) if value[0] == b'"' else value.end()
    return comma if value_end and _CLOSED.match(piece, value_end) else None


def _strings(piece: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each string in ``piece``."""
    at: int | None = 0
    while at is not None:
        begin, at = at, None
        for found in _STRING.finditer(piece, begin):
            if found[1]:
                yield found.span()
            else:
                at = string_end(piece, found.start()) or len(piece)
                yield found.start(), at
                break


def _parts(text: str) -> Iterator[str]:
    """Split ``text`` into parts of nearly equal length, of at most ``_LONGEST`` characters."""
    count = -(-len(text) // _LONGEST)
    for part in range(count):
        yield text[part * len(text) // count : (part + 1) * len(text) // count]
