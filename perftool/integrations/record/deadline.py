"""Notices that a recording should end early: the program takes no more steps, or the recording fills the memory.
PyTorch keeps every call in memory until the recording ends. Stopping and saving then takes about 70 times the
memory that those calls occupy."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable

from perftool.integrations.compiler import uncompiled
from perftool.integrations.own_threads import start_thread
from perftool.integrations.record.leaving import exit_at_next_instruction
from perftool.model.machine_memory import free_memory_mb
from perftool.model.usage import resident_bytes

# How often to check the deadline and the memory, in s.
_INTERVAL_S = 0.05
# Growth below this is harmless: saving then takes at most about 1 GiB.
_HARMLESS_BYTES = 16 << 20
# The process may grow by this share of the free memory, because most of the growth may be tensors instead of recorded
# calls.
_SHARE = 0.25
_CALLBACK = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
# Makes the main thread call a C function at its next Python instruction. Returns 0 on success.
_ADD = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(("Py_AddPendingCall", ctypes.pythonapi))
_SIGNALLED = ctypes.cast(ctypes.pythonapi.PyErr_SetInterruptEx, ctypes.c_void_p)


class Deadline:
    """Until ``close``, calls ``passed`` in the main thread, with the reason, if the deadline has passed and the process
    has grown, or if the process has grown by a large share of the available memory.

    If the size of the process is unknown, only the deadline counts. ``passed`` must not raise an exception, because the
    exception would get lost. ``passed`` may call ``send`` and ``leave``.
    """

    def __init__(self, passed: Callable[[str], None]) -> None:
        self._passed = passed
        self._moved = time.monotonic()
        self._until = float("inf")
        self._before = resident_bytes()
        self._most = _SHARE * (free_memory_mb() << 20)
        self._owner = os.getpid()
        self._asked = False
        self._closed = False
        self._signals: list[int] = []
        self._leaves = False
        self._callback = _CALLBACK(self._called)
        start_thread(self._watch)

    def postpone(self, seconds: float) -> None:
        """Move the deadline to ``seconds`` from now."""
        self._moved = time.monotonic()
        self._until = self._moved + seconds

    def send(self, number: int) -> None:
        """Make Python handle signal ``number`` at the program's next instruction after ``passed`` returns."""
        self._signals.append(number)

    def leave(self) -> None:
        """Raise SystemExit in the main thread once ``passed`` has returned."""
        self._leaves = True

    def close(self) -> None:
        self._closed = True

    def _watch(self) -> None:
        while True:
            time.sleep(_INTERVAL_S)
            if self._asked:
                continue
            if self._leaves:
                # The main thread may not have left the callback yet.
                time.sleep(_INTERVAL_S)
                self._leaves = False
                exit_at_next_instruction()
            if self._closed:
                return
            if self._reason():
                self._asked = _ADD(ctypes.cast(self._callback, ctypes.c_void_p), None) == 0

    def _reason(self) -> str:
        """Return why the recording should end now, or an empty text if it should go on."""
        if self._closed or os.getpid() != self._owner:
            return ""
        now = resident_bytes()
        grown = None if now is None or self._before is None else now - self._before
        if grown is not None and grown > self._most:
            return f"it took {grown / (1 << 30):.1f} GiB of memory"
        late = time.monotonic() > self._until and (grown is None or grown > _HARMLESS_BYTES)
        return f"the program took no step for {time.monotonic() - self._moved:.1f} s" if late else ""

    @uncompiled
    def _called(self, argument: object) -> int:
        try:
            if reason := self._reason():
                self._passed(reason)
        finally:
            # Python calls these after it has left this function, so the handlers run, and may raise exceptions, in the
            # program's code.
            for number in self._signals:
                _ADD(_SIGNALLED, number)
            self._signals.clear()
            self._asked = False
        return 0
