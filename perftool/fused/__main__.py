"""`python -m perftool.fused script.py [arguments]`: run a script written for a Gaudi on this machine."""

from __future__ import annotations

import os
import sys

from perftool import fused
from perftool.errors import PerfToolError

_USAGE = (
    "usage: python -m perftool.fused SCRIPT [ARGUMENTS], or -m MODULE [ARGUMENTS]:"
    " run a program written for a Gaudi on this machine\n"
)


def main(arguments: list[str]) -> int:
    """Run the script or module as if it were called directly. Return 2 if the script does not exist."""
    if not arguments or arguments[0] in ("-h", "--help"):
        (sys.stdout if arguments else sys.stderr).write(_USAGE)
        return 0 if arguments else 2
    if arguments == ["-m"]:
        return _refused(_USAGE.rstrip("\n"))
    if arguments[0] != "-m" and not os.path.isfile(arguments[0]):
        return _refused(f"There is no script {arguments[0]}.")
    try:
        fused.install()
    except PerfToolError as error:
        return _refused(str(error), error.exit_code)
    from perftool.fused.porting import script  # imported here because its package needs torch

    script.hide_internal_frames()
    if arguments[0] == "-m":
        script.run_module(arguments[1], arguments[2:])
    else:
        script.run_script(arguments[0], arguments[1:])
    return 0


def _refused(sentence: str, code: int = 2) -> int:
    sys.stderr.write(f"{sentence}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
