"""Detects times in event text that a double would round, and puts times in quotes."""

from __future__ import annotations

import re

# How much of a chunk is examined to find out how its times are written.
_CHECKED_BYTES = 256 << 10
# Up to 2**43 us (8.796e12), doubles are less than a ns apart, so rounding restores three decimals. Kineto's times,
# relative to its base, are below that; times since 1970 are not.
_LOSSY_TIME = re.compile(
    rb'"(?:ts|dur)"\s*:\s*"?(?:(?:[1-9]\d{13,}|9\d{12}|8[7-9]\d{11})\.\d*[1-9]|[1-9]\d{12}\.\d{3}\d*[1-9])'
)
_DECIMALS = rb"-?\d+\.\d+(?:[eE][-+]?\d+)?"
_TIME = re.compile(rb'("(?:ts|dur)"\s*:\s*)(%b)' % _DECIMALS)
_QUOTED_TIME = re.compile(rb'("(?:ts|dur)"\s*:\s*)"(%b)"' % _DECIMALS)


def is_lossy(text: bytes | memoryview) -> bool:
    """Whether the beginning of ``text`` contains a time that a double would round."""
    return _LOSSY_TIME.search(text, 0, _CHECKED_BYTES) is not None


def quote_times(text: bytes) -> bytes:
    """Turn every time with decimals in ``text`` into a JSON string."""
    pieces = _TIME.split(text)
    # Every third piece is a number. Splitting is several times faster than substitution.
    pieces[2::3] = [b'"%b"' % number for number in pieces[2::3]]
    return b"".join(pieces)


def unquote_times(text: bytes) -> bytes:
    """Turn the strings that quote_times made back into numbers."""
    return _QUOTED_TIME.sub(rb"\1\2", text)
