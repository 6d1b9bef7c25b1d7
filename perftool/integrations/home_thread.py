"""The thread to which a recording belongs. PyTorch's profiler can only be stopped by the thread that started it. If
another thread stops it, or if the thread that started it ends first, the process crashes with a segmentation fault.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable


class HomeThread:
    """Remembers the thread that last called ``move_here``, and calls ``leaving`` in it before it ends.

    Threads are identified by their local variables, because thread IDs are reused.
    """

    def __init__(self, leaving: Callable[[], None] | None = None) -> None:
        self._leaving = leaving
        self._local = threading.local()
        self._moves = 0
        self._ending: int | None = None

    @property
    def here(self) -> bool:
        """Whether this is the home thread."""
        return hasattr(self._local, "last_words") or self._ending == threading.get_ident()

    def move_here(self) -> None:
        """Make this the home thread."""
        if not self.here:
            self._moves += 1
            self._local = threading.local()
            self._local.last_words = _ThreadEnd(self, self._moves)

    def _left(self, move: int) -> None:
        if move == self._moves and self._leaving is not None:
            self._ending = threading.get_ident()
            try:
                self._leaving()
            finally:
                self._ending = None


class _ThreadEnd:
    """A local variable of a thread. Python deletes it at the end of the thread, while the thread can still run code."""

    def __init__(self, home: HomeThread, move: int) -> None:
        self._home = home
        self._move = move
        self._thread = threading.get_ident()

    def __del__(self) -> None:
        # In the main thread, this runs too late to save anything.
        if not sys.is_finalizing() and threading.get_ident() == self._thread:
            self._home._left(self._move)
