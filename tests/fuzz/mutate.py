"""Damages good inputs at random, in many ways."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from random import Random

import zstandard
from structure import cells, events_on_lines, numbers, parts, structure, words

# Values that once broke readers: limits of ranges, text that looks like structure, bytes that are not text.
_WORDS = r'''
{ } [ ] , : " \ \u \ud800 null true NaN -Infinity 1e999 0 -1 "" [] {} = # ' """ 0x10 1_000
18446744073709551616 1.7976931348623157e308 "ph":"X" "traceEvents":[ "ts": "args":{ Name, [tool.habana_perf_tool] ::
'''
TOKENS = [
    *(word.encode() for word in _WORDS.split()),
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b"\n", b"\t", b"\x1b[31m", b"\xed\xa0\x80", b"\xc3"),
    *(b"9" * 25, b"-" + b"9" * 400, b"[" * 300, b'{"a":' * 300),
]
_LONGEST = 200_000

Mutation = Callable[[Random, bytes, Sequence[bytes]], bytes]


def mutated(random: Random, seeds: Sequence[bytes]) -> bytes:
    """Return one of ``seeds`` after a few mutations, and occasionally unchanged."""
    data = random.choice(seeds)
    for _ in range(random.choice((0, 1, 1, 2, 3, 6, 12))):
        data = random.choice(_MUTATIONS)(random, data, seeds)[:_LONGEST]
    return data


def _cut(random: Random, data: bytes) -> tuple[int, int]:
    """Return the bounds of a random stretch of ``data``. Short stretches are more likely."""
    start = random.randint(0, len(data))
    return start, min(len(data), start + int(random.expovariate(1 / 20)) + 1)


def _insert(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    at, _ = _cut(random, data)
    return data[:at] + random.choice(TOKENS) + data[at:]


def _replace(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    start, end = _cut(random, data)
    return data[:start] + random.choice(TOKENS) + data[end:]


def _delete(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    start, end = _cut(random, data)
    return data[:start] + data[end:]


def _repeat(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    start, end = _cut(random, data)
    return data[:end] + data[start:end] * random.choice((1, 2, 50)) + data[end:]


def _flip(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        if changed:
            changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def _truncate(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    at, _ = _cut(random, data)
    return data[:at] if random.random() < 0.8 else data[at:]


def _cross(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    other = random.choice(seeds)
    return data[: random.randint(0, len(data))] + other[random.randint(0, len(other)) :]


def _lines(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Reorder, repeat or drop lines."""
    lines = data.splitlines(keepends=True)
    return b"".join(random.choices(lines, k=len(lines))) if lines else data


def _much(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Repeat structural characters, which makes a search start over and over."""
    thing = random.choice(
        (b'"', b'\\"', b"{", b"[", b"]", b"}", b",", b" ", b"\n", b'","', b"],", b'{"ph":', b'"a":', b":-")
    )
    places = [at for at, byte in enumerate(data) if byte in b'{}[],:"\n']
    at = random.choice(places) if places else 0
    return data[:at] + thing * int(10 ** random.uniform(1, 4.5)) + data[at:]


def _recoded(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Return the same text in a different encoding, usually without a byte order mark."""
    return data.decode("utf-8", "replace").encode(random.choice(("utf-16-le", "utf-16-be", "utf-32-le", "utf-8-sig")))


def _inside(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Decompress the data, change it, and compress it again, perhaps in a different way and in pieces."""
    try:
        plain = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else zstandard.ZstdDecompressor().decompress(data)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError, MemoryError):
        plain = data
    changed = random.choice(_MUTATIONS)(random, plain[:_LONGEST], seeds)
    at = random.randint(0, len(changed)) if random.random() < 0.3 else len(changed)
    squeeze = random.choice(_SQUEEZE)
    return b"".join(squeeze(piece) for piece in (changed[:at], changed[at:]) if piece)


_SQUEEZE: tuple[Callable[[bytes], bytes], ...] = (
    lambda data: gzip.compress(data, 1, mtime=0), zstandard.ZstdCompressor().compress, lambda data: data,
)  # fmt: skip
_MUTATIONS: tuple[Mutation, ...] = (
    _insert, _replace, _delete, _repeat, _flip, _truncate, _cross, _lines, _much, _recoded, _inside,
    events_on_lines, structure, structure, structure, numbers, cells, parts, words,
)  # fmt: skip
