"""How the program ends when it is told to: in an order in which temporary folders go too."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

TERMINATED = 128 + signal.SIGTERM
INTERRUPTED = 128 + signal.SIGINT


@dataclass
class Ending:
    """The exit code and the word for what broke the run off."""

    code: int = INTERRUPTED
    word: str = "interrupted"


@contextmanager
def sigterm_as_interrupt() -> Iterator[Ending]:
    """Let SIGTERM, whose default ends a process on the spot, take the way of Ctrl-C through every ``with``."""
    ending = Ending()

    def interrupt(*_: object) -> None:
        ending.code, ending.word = TERMINATED, "terminated"
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield ending
    finally:
        signal.signal(signal.SIGTERM, before)
