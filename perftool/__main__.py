"""``python -m perftool``, and the entry point of the scripts ``habana_perf_tool`` and ``perftool``."""

from __future__ import annotations

import atexit
import os
import sys

from perftool.commands.garbage import less_garbage_collection


def program() -> None:
    """Run the command line, and exit right after the registered exit handlers.

    Python would destroy its objects one by one, which takes 10 % of the time of a small analysis.
    """
    codes: list[int] = []
    # Exit handlers run in reverse order, so this one runs last.
    atexit.register(_leave, codes)
    try:
        with less_garbage_collection():
            from perftool.cli import main

            main()
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            codes.append(left.code or 0)
        raise


def _leave(codes: list[int]) -> None:
    """End the process with the first of ``codes``; without one, Python exits normally, as after a signal."""
    if codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(codes[0])


if __name__ == "__main__":
    program()
