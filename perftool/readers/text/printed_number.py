"""Reads numbers in what servers and benchmark clients print."""

from __future__ import annotations

import re

_WHOLE = re.compile(r"\d{1,12}")
_REAL = re.compile(r"\d{1,15}(?:\.\d{1,12})?")


def printed_number(text: str, *, whole: bool = False) -> float | None:
    """Return the number that ``text`` consists of, or None if it is anything else, such as ``nan``, ``1e3`` or ``5,0``.

    A reader notes None as damage, because servers and clients print only plain numbers.
    """
    if whole:
        return int(text) if _WHOLE.fullmatch(text) else None
    return float(text) if _REAL.fullmatch(text) else None
