"""File descriptors inside a user's program. The program may close them, as daemons do, and reuse their numbers."""

from __future__ import annotations

import os
from contextlib import suppress

# The system assigns the lowest free number, so a high number is not reused soon after it is closed.
_HIGH = 512


class Descriptor:
    """An open file that other code may close. The descriptor ``number`` is replaced with a copy that child processes do
    not inherit."""

    def __init__(self, number: int) -> None:
        self._number = _high_duplicate(number)
        self._identity = _identity(self._number)

    @property
    def number(self) -> int | None:
        """The number of the descriptor, or None if it no longer belongs to this file."""
        same = self._identity is not None and _identity(self._number) == self._identity
        return self._number if same else None

    def close(self) -> None:
        """Close the file, unless other code already did."""
        if (number := self.number) is not None:
            self._identity = None
            with suppress(OSError):
                os.close(number)


def _high_duplicate(number: int) -> int:
    try:
        import fcntl

        high = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except (ImportError, OSError):
        return number
    os.close(number)
    return high


def _identity(number: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino
