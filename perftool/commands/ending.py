"""Ends the program on signals in an orderly way, which also removes temporary folders."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

TERMINATED = 128 + signal.SIGTERM
INTERRUPTED = 128 + signal.SIGINT
# Removing the temporary files of the largest analysis takes less.
_UNWINDING_S = 3.0


@dataclass
class Ending:
    """The exit code and the word for the cause of an interrupted run."""

    code: int = INTERRUPTED
    word: str = "interrupted"


@contextmanager
def sigterm_as_interrupt() -> Iterator[Ending]:
    """Make SIGTERM, which by default ends a process at once, unwind every ``with`` as Ctrl-C does.

    Further signals, such as SIGTERM right after Ctrl-C, do not disturb the unwinding for ``_UNWINDING_S``.
    """
    ending, first_at = Ending(), -_UNWINDING_S

    def interrupt(number: int, _: object) -> None:
        nonlocal first_at
        if time.monotonic() - first_at < _UNWINDING_S:
            return
        first_at = time.monotonic()
        if number == signal.SIGTERM:
            ending.code, ending.word = TERMINATED, "terminated"
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    # A shell that runs the program in the background has it ignore Ctrl-C.
    heard = [number for number in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
