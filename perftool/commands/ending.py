"""Cleans up when a signal ends the program."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from perftool.errors import TerminatedError
from perftool.signals import ENDING, after_native_imports

_WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "the terminal was closed"}
# Longer than the largest analysis needs to remove its temporary files.
_UNWINDING_S = 3.0


@dataclass
class Ending:
    """How an interrupted run ends: its exit code and message, and whether a signal arrived."""

    code: int = 128 + signal.SIGINT
    word: str = _WORDS["SIGINT"]
    signalled: bool = False


@contextmanager
def signals_as_interrupts() -> Iterator[Ending]:
    """Make SIGTERM and SIGHUP raise an exception, as Ctrl-C does, so that every ``with`` cleans up.

    Further signals, such as SIGTERM right after Ctrl-C, are ignored for ``_UNWINDING_S``.
    """
    ending, first_at = Ending(), -_UNWINDING_S

    def interrupt(number: int, _: object) -> None:
        nonlocal first_at
        if time.monotonic() - first_at < _UNWINDING_S:
            return
        first_at = time.monotonic()
        ending.code, ending.word, ending.signalled = 128 + number, _WORDS[signal.Signals(number).name], True
        raise KeyboardInterrupt if number == signal.SIGINT else TerminatedError

    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    # Shells make background programs ignore SIGINT, and nohup makes them ignore SIGHUP; keep it that way.
    handled = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, after_native_imports(interrupt)) for number in handled}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
