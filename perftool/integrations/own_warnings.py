"""Warns inside the user's program without ending it."""

from __future__ import annotations

import sys
import warnings


def warn(text: str, stacklevel: int = 1) -> None:
    """Like ``warnings.warn``. Where the program turns warnings into errors, print the message instead."""
    try:
        warnings.warn(text, stacklevel=stacklevel + 1)
    except Warning:
        if sys.stderr is not None:
            sys.stderr.write(f"{text}\n")
