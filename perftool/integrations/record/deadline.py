"""Notices that a recording should end early: the program takes no more steps, or the recording fills the memory.
PyTorch keeps each call in memory until the recording ends, and then needs about 70 times as much to stop and save."""

from __future__ import annotations

import _thread
import ctypes
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import main_thread

_MEMORY, _WHOLE_MEMORY = Path("/proc/self/statm"), Path("/proc/meminfo")
# How often to look, in s.
_INTERVAL_S = 0.05
# Growth below this is harmless: the trace then needs about a GiB.
_HARMLESS_BYTES = 16 << 20
# The share of the machine's available memory that a recording may take.
_SHARE = 0.25
_CALLBACK = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class Deadline:
    """Calls ``passed`` in the main thread, with the reason, until ``close``: if the process grows while a deadline has
    passed, or if it grows by much of the available memory.

    Where the size of the process is unknown, only the deadline counts.
    """

    def __init__(self, passed: Callable[[str], None]) -> None:
        self._passed = passed
        self._moved = time.monotonic()
        self._until = float("inf")
        self._before = _resident_bytes()
        self._most = _SHARE * _available_bytes()
        self._owner = os.getpid()
        self._asked = False
        self._closed = False
        # Python runs this in the main thread, at its next instruction.
        self._callback = _CALLBACK(self._called)
        # ``threading`` would list this thread, and a program that joins all threads would wait for it.
        _thread.start_new_thread(self._watch, ())

    def move(self, seconds: float) -> None:
        """Let the deadline be ``seconds`` from now."""
        self._moved = time.monotonic()
        self._until = self._moved + seconds

    def close(self) -> None:
        self._closed = True

    def _watch(self) -> None:
        while not self._closed:
            time.sleep(_INTERVAL_S)
            if not self._asked and self._reason():
                self._asked = ctypes.pythonapi.Py_AddPendingCall(self._callback, None) == 0

    def _reason(self) -> str:
        """Why the recording should end now; empty if it should go on."""
        if self._closed or os.getpid() != self._owner:
            return ""
        now = _resident_bytes()
        grown = None if now is None or self._before is None else now - self._before
        if grown is not None and grown > self._most:
            return f"it took {grown / (1 << 30):.1f} GiB of memory"
        late = time.monotonic() > self._until and (grown is None or grown > _HARMLESS_BYTES)
        return f"the program took no step for {time.monotonic() - self._moved:.1f} s" if late else ""

    def _called(self, argument: object) -> int:
        self._asked = False
        try:
            if reason := self._reason():
                self._passed(reason)
        except BaseException as error:  # noqa: BLE001 - Python only prints errors of such calls
            _raise_in_main_thread(type(error))
        return 0


def _resident_bytes() -> int | None:
    """The memory that this process uses; None if the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        return int(_MEMORY.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


def _available_bytes() -> float:
    """The memory that the machine can still provide; infinite if unknown."""
    with suppress(OSError, ValueError, IndexError):
        [line] = [line for line in _WHOLE_MEMORY.read_text().splitlines() if line.startswith("MemAvailable:")]
        return float(line.split()[1]) * 1024
    return float("inf")


def _raise_in_main_thread(kind: type[BaseException]) -> None:
    """Raise an exception in the main thread, at its next instruction."""
    number = ctypes.c_ulong(main_thread().ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(kind))
