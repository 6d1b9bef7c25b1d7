"""Ends the program once its recording is saved, whichever thread took the last step. SystemExit ends only the thread in
which it is raised, so the main thread must raise it.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from perftool.integrations.own_threads import start_thread

# Wakes the main thread. The system ignores this signal by default, and hardly any program uses it.
_SIGNAL = getattr(signal, "SIGURG", None)
# A program that has been asked to end waits in vain if its main thread uses less than the share _IDLE of a core for
# _PATIENCE_S. A main thread that saves a checkpoint uses more.
_PATIENCE_S, _IDLE = 30.0, 0.05
# How many times a program that waits in vain is asked to end, before it is ended without running its exit handlers: it
# may wait for a thread in its own code, and again when Python ends.
_MOST_CALLS = 2


class Leaving:
    """Makes the program end as after ``sys.exit()``. Create this in the main thread, so that the main thread can leave
    while it waits for a lock, a queue or a timer. Otherwise, it leaves when it next runs Python.

    A program may then wait in vain, for a process that waits for the recorded thread, or for another thread that never
    ends. Its children are terminated then, and its main thread is asked again. If that fails, ``forced`` is called, and
    the process ends without running its exit handlers.
    """

    def __init__(self, forced: Callable[[], None]) -> None:
        self._forced = forced
        self._leaves = False
        self._wakes = False
        if _SIGNAL is not None and _in_main_thread() and signal.getsignal(_SIGNAL) is signal.SIG_DFL:
            signal.signal(_SIGNAL, self._woken)
            self._wakes = True

    def leave(self) -> NoReturn:
        """End the program, and first this thread: the program may wait for it."""
        self.insist()
        # Once the main thread has run the program, it waits for the other threads, and ends after them.
        if not _in_main_thread() and threading.main_thread().is_alive():
            self._ask()
        raise SystemExit(0)

    def insist(self) -> None:
        """Wake the program if it waits in vain, after something else has asked it to end."""
        self._leaves = True
        start_thread(self._insist)

    def _woken(self, number: int, frame: FrameType | None) -> None:
        if self._leaves:
            if not threading.main_thread().is_alive():
                _hide_exit()
            raise SystemExit(0)

    def _ask(self) -> None:
        main = threading.main_thread().ident or 0
        if _SIGNAL is not None and self._wakes and signal.getsignal(_SIGNAL) == self._woken:
            signal.pthread_kill(main, _SIGNAL)
        else:
            exit_at_next_instruction()

    def _insist(self) -> None:
        for _ in range(_MOST_CALLS):
            self._end_children()
            self._ask()
        self._end_children()
        self._forced()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(0)

    @staticmethod
    def _end_children() -> None:
        """Wait until the program waits in vain, although it has no children left."""
        _wait_for_idle_main()
        while children := multiprocessing.active_children():
            # A child that is still saving its own recording exits once the recording is saved.
            for child in children:
                child.terminate()
            _wait_for_idle_main()


def _hide_exit() -> None:
    """Keep Python from printing the SystemExit that ends its wait for threads."""
    usual = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        sys.unraisablehook = usual
        if unraisable.exc_type is not SystemExit:
            usual(unraisable)

    sys.unraisablehook = hook


def exit_at_next_instruction() -> None:
    """Raise SystemExit in the main thread at its next Python instruction."""
    main = ctypes.c_ulong(threading.main_thread().ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(SystemExit))


def _wait_for_idle_main() -> None:
    """Return once the main thread has used almost no CPU time for ``_PATIENCE_S``."""
    used_s = _IDLE * _PATIENCE_S
    while used_s >= _IDLE * _PATIENCE_S:
        before_s = _main_cpu_s()
        time.sleep(_PATIENCE_S)
        used_s = _main_cpu_s() - before_s


def _main_cpu_s() -> float:
    """The CPU time of the main thread, or of the process on systems that do not report it."""
    with suppress(AttributeError, OSError):
        return time.clock_gettime(time.pthread_getcpuclockid(threading.main_thread().ident or 0))
    return time.process_time()


def _in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident
