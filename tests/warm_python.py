"""A Python for scripts that import PyTorch. Importing takes 3 s, so a server does it once, and each script runs in a
fork of the server.

A script in a fork imports PyTorch through all finders as usual, but PyTorch's code does not run again. A test of what
happens before or during this import needs ``sys.executable``.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

_SERVER = Path(__file__).with_name("warm_server.py")
_STAND_IN = Path(__file__).with_name("warm_stand_in.py")


@cache
def warm_python() -> list[str]:
    """Return the command to use instead of ``sys.executable``, before a script (or ``-c`` and code, or ``-m`` and a
    module) and its arguments.
    """
    if not hasattr(os, "fork"):
        return [sys.executable]
    folder = tempfile.mkdtemp(prefix="warm")
    place = os.path.join(folder, "socket")
    pipe = subprocess.PIPE
    server = subprocess.Popen([sys.executable, str(_SERVER), place], stdin=pipe, stdout=pipe)
    assert server.stdout
    assert server.stdout.readline() == b"ready\n"

    def close() -> None:
        # The server ends when its input ends.
        server.communicate()
        shutil.rmtree(folder)

    atexit.register(close)
    return [sys.executable, "-I", "-S", str(_STAND_IN), place]


def warm_executable(folder: Path) -> str:
    """Return a program in ``folder`` that does the same, for code that starts ``sys.executable`` itself."""
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(warm_python())} "$@"\n')
    program.chmod(0o755)
    return str(program)
