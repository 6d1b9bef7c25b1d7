"""`python -m perftool.fused script.py [arguments]`: run a script written for a Gaudi on this machine."""

from __future__ import annotations

import os
import runpy
import sys

from perftool import fused
from perftool.errors import PerfToolError

_USAGE = "usage: python -m perftool.fused SCRIPT [ARGUMENTS]: run a script written for a Gaudi without one\n"


def main(arguments: list[str]) -> int:
    """Run the script as if it were called alone; returns 2 without one, or without what it needs to run."""
    if not arguments or arguments[0] in ("-h", "--help"):
        (sys.stdout if arguments else sys.stderr).write(_USAGE)
        return 0 if arguments else 2
    script = arguments[0]
    if not os.path.isfile(script):
        sys.stderr.write(f"There is no script {script}.\n")
        return 2
    try:
        fused.install()
    except PerfToolError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
