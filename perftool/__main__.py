"""``python -m perftool``, and what the scripts ``habana_perf_tool`` and ``perftool`` call: a process of its own."""

from __future__ import annotations

import atexit
import os
import sys

from perftool.commands.garbage import seldom_collected


def program() -> None:
    """Run the command line, and leave the process as soon as all is done that is registered for its end.

    Python would take apart every object that there is, one by one, which is a tenth of the analysis of a small trace;
    the system takes the memory of the process at once.
    """
    codes: list[int] = []
    # The first to be registered is the last to be called.
    atexit.register(_leave, codes)
    try:
        with seldom_collected():
            from perftool.cli import main

            main()
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            codes.append(left.code or 0)
        raise


def _leave(codes: list[int]) -> None:
    """End the process with the first of ``codes``; without one Python goes its own way, as it does after a signal."""
    if codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(codes[0])


if __name__ == "__main__":
    program()
