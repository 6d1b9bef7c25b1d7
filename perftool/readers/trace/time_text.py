"""How events write times, and which of them a double does not hold."""

from __future__ import annotations

import re

# This much of a chunk tells how it writes times.
_TELLING = 256 << 10
# Up to 2**43 us (8.796e12) neighbouring doubles are less than a ns apart, so that three decimals come back by rounding.
# Kineto's times since its base lie below that; those since 1970 do not, and further decimals may make a tie.
_LOSSY_TIME = re.compile(
    rb'"(?:ts|dur)"\s*:\s*"?(?:(?:[1-9]\d{13,}|9\d{12}|8[7-9]\d{11})\.\d*[1-9]|[1-9]\d{12}\.\d{3}\d*[1-9])'
)
_DECIMALS = rb"-?\d+\.\d+(?:[eE][-+]?\d+)?"
_TIME = re.compile(rb'("(?:ts|dur)"\s*:\s*)(%b)' % _DECIMALS)
_QUOTED_TIME = re.compile(rb'("(?:ts|dur)"\s*:\s*)"(%b)"' % _DECIMALS)


def is_lossy(text: bytes | memoryview) -> bool:
    """Whether the beginning of ``text`` has a time that a double would round."""
    return _LOSSY_TIME.search(text, 0, _TELLING) is not None


def quote_times(text: bytes) -> bytes:
    """``text`` with every time that has decimals as a JSON string."""
    pieces = _TIME.split(text)
    # A third of the pieces are the numbers; this is several times faster than a substitution.
    pieces[2::3] = [b'"%b"' % number for number in pieces[2::3]]
    return b"".join(pieces)


def unquote_times(text: bytes) -> bytes:
    """``text`` of an exact chunk with its times as the numbers they were."""
    return _QUOTED_TIME.sub(rb"\1\2", text)
