"""Hides errors in our own code from the program, but not the program's own errors.

At any instruction, even in our code, one of the program's signal handlers may raise an exception, or another of its
threads may raise one in this thread.
"""

from __future__ import annotations

import sys
from types import TracebackType

_NOT_OF_PROGRAM = {"perftool", "torch", *sys.stdlib_module_names}


class OwnErrorsHidden:
    """Ignores an exception of this ``kind`` in a block if neither its class nor a function that it passed through is
    the program's."""

    def __init__(self, kind: type[Exception] = Exception) -> None:
        self._kind = kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> bool:
        if kind is None or not issubclass(kind, self._kind):
            return False
        names = [kind.__module__]
        while trace is not None:
            names.append(str(trace.tb_frame.f_globals.get("__name__")))
            trace = trace.tb_next
        return all(name.partition(".")[0] in _NOT_OF_PROGRAM for name in names)
