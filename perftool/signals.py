"""Which signals end the program, and when their handlers may raise."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from types import FrameType

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
"""Sent by a scheduler that ends the job, by Ctrl-C, and by a terminal that closes."""
_LATER_S = 0.02


Handler = Callable[[int, FrameType | None], object]


def after_native_imports(handler: Handler) -> Handler:
    """Wrap ``handler`` so that it is delayed while a native module is loading.

    Some native modules, such as DuckDB, abort the process if a handler raises an exception during their initialisation.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if not _in_native_import(frame):
            handler(number, frame)
            return
        again = threading.Timer(_LATER_S, _send, (number,))
        again.daemon = True
        again.start()

    return handle


def _in_native_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _LOADING:
            return True
        frame = frame.f_back
    return False


_LOADING = {ExtensionFileLoader.create_module.__code__, ExtensionFileLoader.exec_module.__code__}


def _send(number: int) -> None:
    """Send a signal to the main thread, where it interrupts system calls."""
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, number)
    else:
        signal.raise_signal(number)
