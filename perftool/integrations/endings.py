"""Saves a recording before the process ends, and handles forked children of a recording process. A program may end
through a signal, ``os._exit`` or ``exec``, which do not run Python's ``atexit``. We intercept these while recording,
save the recording, and then let the program end.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import torch

from perftool.integrations.compiler import uncompiled
from perftool.integrations.descriptors import Descriptor
from perftool.integrations.own_threads import start_thread

# Signals that end a program by default. SIGINT is not listed, because Python handles it by leaving ``with`` blocks and
# running ``atexit``.
_ENDING = [
    getattr(signal, name)
    for name in ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")
    if hasattr(signal, name)
]  # fmt: skip
# The type of the object that PyTorch sets as the profile function while it records Python stacks.
_STACKS = "TraceContext"
_LEAVING = ("_exit", "abort", "execv", "execve")
# How long to wait for a main thread that is stuck in native code; after that, the program ends without saving. A rank
# that waits in a collective is released when its peer exits, so waiting helps; but launchers send SIGKILL after 30 s.
_PATIENCE_S = 20.0


class Endings:
    """Calls ``save`` once if this process ends between ``watch`` and ``release``. A forked child does nothing."""

    def __init__(self, save: Callable[[], None]) -> None:
        self._save = save
        self._lock = threading.RLock()
        # For each block that runs a profiler or saves a recording, the thread inside it. Signals are delayed while the
        # main thread is in such a block.
        self._working: list[int] = []
        self._saving = False
        self._pending: int | None = None
        # The signals that the program handles itself, held while the main thread is in such a block.
        self._held: _HeldSignals | None = None
        # If set, this is called with each held signal, and delivers the signal later. Otherwise, the signal's own
        # handler is called.
        self._resend: Callable[[int], None] | None = None
        self._patched: dict[str, Any] = {}
        # The signals that we handle, and the address of Python's handler in C for each.
        self._handled: dict[int, int] = {}
        self._watchman: _Watchman | None = None
        self._watching = False

    def watch(self) -> None:
        """Start intercepting the end of this process."""
        if self._watching:
            return
        self._watching = True
        atexit.register(self._end)
        stop_recording_in_children()
        _WATCHING.append(self)
        for name in _LEAVING:
            if original := getattr(os, name, None):
                self._patched[name] = original
                setattr(os, name, self._before(original))
        if _in_main_thread():
            for number in _ENDING:
                if signal.getsignal(number) is signal.SIG_DFL and not _native_handler(number):
                    signal.signal(number, self._signalled)
                    self._handled[number] = _native_handler(number)
            self._watchman = _Watchman(self._handled, lambda: bool(self._working))

    def release(self) -> None:
        """Stop intercepting, and restore everything that other code has not changed in the meantime."""
        if not self._watching:
            return
        self._watching = False
        atexit.unregister(self._end)
        _WATCHING.remove(self)
        for name, original in self._patched.items():
            if getattr(getattr(os, name), "__wrapped__", None) is original:
                setattr(os, name, original)
        self._patched.clear()
        if self._watchman is not None:
            self._watchman.close()
            self._watchman = None
        if _in_main_thread():
            for number, native in self._handled.items():
                if signal.getsignal(number) == self._signalled and _native_handler(number) == native:
                    signal.signal(number, signal.SIG_DFL)
        self._handled = {}

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """While the profiler works in this block, delay signals that would end the process. Only one thread at a time
        can be in such a block."""
        with self._lock, self.delayed():
            yield

    @contextmanager
    def resending(self, resend: Callable[[int], None]) -> Iterator[None]:
        """Like ``undisturbed``, for a block that must not raise the exceptions of the program's signal handlers. Call
        ``resend`` with each signal that arrived, including Ctrl-C."""
        self._resend = resend
        try:
            with self.undisturbed():
                yield
        finally:
            self._resend = None

    @contextmanager
    def delayed(self) -> Iterator[None]:
        """Like ``undisturbed``, but several threads can be in such a block, because the program may wait for one of
        them."""
        outermost = _in_main_thread() and not self.works_here
        self._working.append(threading.get_ident())
        if outermost:
            self._hold()
        try:
            yield
        finally:
            self._working.remove(threading.get_ident())
            try:
                if outermost:
                    self._hand_over()
            finally:
                self._deliver()

    @contextmanager
    def delivered(self) -> Iterator[None]:
        """Deliver signals in this block, which runs the program's own code inside a ``delayed`` block."""
        here = threading.get_ident()
        blocks = self._working.count(here)
        for _ in range(blocks):
            self._working.remove(here)
        try:
            self._hand_over()
            self._deliver()
            yield
        finally:
            self._working += [here] * blocks
            if blocks and _in_main_thread():
                self._hold()

    @property
    def works_here(self) -> bool:
        """Whether this thread is in a block in which a profiler works."""
        return threading.get_ident() in self._working

    @property
    def is_urgent(self) -> bool:
        """Whether the process is ending, or a signal has arrived that is delayed until the profiler has finished."""
        return self._saving or self._pending is not None or (self._held is not None and self._held.has_arrived)

    def _hold(self) -> None:
        """Delay the signals that the program handles itself, until ``_hand_over``."""
        self._held = _HeldSignals(self._signalled, self._resend)

    def _hand_over(self) -> None:
        """Let the program's own handlers handle the signals that arrived in the block. They may raise exceptions."""
        held = self._held
        if held is not None and _in_main_thread():
            self._held = None
            held.deliver()

    def _deliver(self) -> None:
        """Handle a signal that was delayed."""
        if self._pending is not None and _in_main_thread() and not self.works_here:
            number, self._pending = self._pending, None
            self._signalled(number)

    def _others_are_done(self) -> bool:
        """Wait until no other thread works on a recording. Return False if that takes too long."""
        until = time.monotonic() + _PATIENCE_S
        while any(thread != threading.get_ident() for thread in list(self._working)):
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    @uncompiled
    def _end(self) -> None:
        if self._watching and self._others_are_done() and self._lock.acquire(timeout=_PATIENCE_S):
            try:
                if self._watching and not self._saving:
                    self._saving = True
                    # When a rank ends, launchers often signal the other ranks, which may still be saving. Delay that
                    # signal.
                    with self.undisturbed():
                        try:
                            self._save()
                        finally:
                            self.release()
            finally:
                self._saving = False
                self._lock.release()

    @uncompiled
    def _signalled(self, number: int, frame: FrameType | None = None) -> None:
        if self._watchman is not None:
            self._watchman.answered.set()
        if self.works_here:
            self._pending = number
            return
        self._end()
        if signal.getsignal(number) in (self._signalled, signal.SIG_DFL):
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        # Otherwise, the program has its own handler, which called this one and continues afterwards.

    def _before(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def leave(*args: Any, **named: Any) -> Any:
            if not self.works_here:
                self._end()
            return original(*args, **named)

        leave.__wrapped__ = original  # type: ignore[attr-defined]
        return leave


class _HeldSignals:
    """Until ``deliver``, delays the signals that the program handles itself in Python. If such a handler raised an
    exception while the profiler works, the exception would end the recording instead of reaching the program.

    Ctrl-C is delayed only if the program handles it or ``resend`` is given. If ``resend`` is given, ``deliver`` calls
    it with each signal instead of calling the handlers.
    """

    def __init__(self, ours: Callable[..., None], resend: Callable[[int], None] | None) -> None:
        self._resend = resend
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._actions: dict[int, Any] = {}
        self._arrived: list[int] = []
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler) and handler != ours and (resend or handler is not signal.default_int_handler):
                self._actions[number] = _native_action(number)
                self._handlers[number] = handler
                signal.signal(number, self._arrive)

    @property
    def has_arrived(self) -> bool:
        return bool(self._arrived)

    def _arrive(self, number: int, frame: FrameType | None) -> None:
        self._arrived.append(number)

    def deliver(self) -> None:
        for number, handler in self._handlers.items():
            if signal.getsignal(number) == self._arrive:
                signal.signal(number, handler)
                # Python forgets the flags of ``signal.siginterrupt``.
                with suppress(Exception):
                    ctypes.CDLL(None).sigaction(ctypes.c_int(number), self._actions[number], None)
        while self._arrived:
            number = self._arrived.pop(0)
            if self._resend is not None:
                self._resend(number)
                continue
            try:
                self._handlers[number](number, sys._getframe())
            except BaseException:
                # Without us, Python would call the other handlers after this exception. Mark all of their signals
                # first, because the handler of the first one may run at once, and raise an exception itself.
                rest, self._arrived = self._arrived, []
                list(map(ctypes.pythonapi.PyErr_SetInterruptEx, rest))
                raise


class _Watchman:
    """A thread that ends the process with the received signal if the main thread cannot handle it."""

    def __init__(self, numbers: Iterable[int], is_busy: Callable[[], bool]) -> None:
        self._is_busy = is_busy
        self.answered = threading.Event()
        self._numbers = set(numbers)
        self._read, self._write = map(Descriptor, os.pipe())
        self._wakes = self._write.number
        if self._wakes is None:
            return
        os.set_blocking(self._wakes, False)
        previous = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        if previous != -1:
            # Other code, such as asyncio, already uses the wakeup descriptor.
            signal.set_wakeup_fd(previous)
        start_thread(self._watch)

    def close(self) -> None:
        self._numbers.clear()
        try:
            present = signal.set_wakeup_fd(-1)
        except ValueError:
            # Only the main thread may reset the wakeup descriptor. Signals still write to it, so it stays open.
            return
        if present not in (-1, self._wakes):
            # Other code uses the wakeup descriptor now, and may set ours again when it is done, so ours stays open.
            signal.set_wakeup_fd(present)
            return
        self._write.close()

    def _next_signals(self) -> bytes:
        """Wait for the next signal. Return no bytes once ``close`` or the program has closed the pipe."""
        number = self._read.number
        if number is None:
            return b""
        try:
            return os.read(number, 1)
        except OSError:
            return b""

    def _watch(self) -> None:
        while signals := self._next_signals():
            if signals[0] not in self._numbers:
                continue
            while not self.answered.wait(_PATIENCE_S):
                if self._is_busy():
                    # While it writes a trace, the profiler may hold the interpreter lock for a long time.
                    continue
                libc = ctypes.CDLL(None)
                libc.signal(ctypes.c_int(signals[0]), ctypes.c_void_p(0))
                os.kill(os.getpid(), signals[0])
        self._read.close()


def _in_main_thread() -> bool:
    # ``threading.current_thread`` would list a thread that native code started.
    return threading.get_ident() == threading.main_thread().ident


def _native_handler(number: int) -> int:
    """Return the address of the handler of a signal in C, or 0 if there is none or this system cannot report it.

    ``signal.getsignal`` knows only Python's handlers. Native code sets others, for example ``faulthandler.register``.
    """
    return _native_action(number)[0] or 0


def _native_action(number: int) -> Any:
    """Return the system's settings for a signal. They begin with the address of the handler, and are empty if this
    system cannot report them, or if an audit hook of the program forbids native calls."""
    # The structure that sigaction fills in is smaller than this.
    action = (ctypes.c_void_p * 64)()
    with suppress(Exception):
        ctypes.CDLL(None).sigaction(ctypes.c_int(number), None, action)
    return action


_WATCHING: list[Endings] = []
_fork_handled = False


def stop_recording_in_children() -> None:
    """Turn recording off in forked children of this process. Otherwise, a child would hang when it ends, waiting
    for a thread of PyTorch's profiler that exists only in the parent (libkineto's ConfigLoader).
    """
    global _fork_handled
    if not _fork_handled and hasattr(os, "register_at_fork"):
        _fork_handled = True
        os.register_at_fork(after_in_child=_forked)


def _forked() -> None:
    if _WATCHING:
        if type(sys.getprofile()).__name__ == _STACKS:
            sys.setprofile(None)
        with suppress(AttributeError):
            if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
                torch.autograd._enable_record_function(False)  # type: ignore[attr-defined]
    for endings in list(_WATCHING):
        endings._lock = threading.RLock()
        endings._working = [thread for thread in endings._working if thread == threading.get_ident()]
        endings.release()
    with suppress(Exception):
        libc = ctypes.CDLL(None)
        # These are registered last, so they run first: they flush C's buffers and skip all destructors.
        libc.on_exit(libc._exit, None)
        libc.__cxa_atexit(libc.fflush, None, None)
