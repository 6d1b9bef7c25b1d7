"""``python -m perftool``, and the entry point of the scripts ``habana_perf_tool`` and ``perftool``."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def program() -> None:
    """Run the command line, then exit as soon as the exit handlers have run.

    A normal exit also destroys all Python objects, which takes 10 % of the time of a small analysis.
    """
    codes: list[int] = []
    # Exit handlers run in reverse order, so this one runs last.
    atexit.register(_leave, codes)
    try:
        with _ended_by_ctrl_c():
            from perftool.commands.garbage import less_garbage_collection

            with less_garbage_collection():
                from perftool.cli import main

                main()
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            codes.append(left.code or 0)
        raise


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process without a traceback until ``main`` runs. Before that, there is nothing to clean up."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(codes: list[int]) -> None:
    """End the process with the exit code in ``codes``, if there is one; otherwise let Python exit normally."""
    if codes:
        for stream in (sys.stdout, sys.stderr):
            # A simulated script may have closed the streams.
            with suppress(ValueError):
                stream.flush()
        os._exit(codes[0] & 0xFF)


if __name__ == "__main__":
    program()
