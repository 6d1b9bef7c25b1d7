"""Threads of ours that receive no signals. The system hands a signal to any thread that does not block it. A program
with one thread may block signals while it saves a checkpoint, so our threads must not receive them instead.
"""

from __future__ import annotations

import _thread
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def start_thread(work: Callable[[], object]) -> None:
    """Call ``work`` in a new thread. ``threading`` would list the thread, and a program that joins all threads would
    wait for it."""
    with signals_blocked():
        _thread.start_new_thread(work, ())


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block signals in this thread. Threads that start in this block, also in native code, keep them blocked."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def file_limit_raises() -> Iterator[None]:
    """In this block, a file that would exceed the program's limit on file sizes raises OSError in this thread, even if
    the program lets the signal SIGXFSZ end it, or handles it."""
    number = getattr(signal, "SIGXFSZ", None)
    if number is None or not hasattr(signal, "sigtimedwait"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        if number not in before:
            # A signal that waits would be delivered now.
            signal.sigtimedwait({number}, 0)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
