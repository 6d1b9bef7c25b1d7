"""``python -m perftool.sim SCRIPT [ARGS...]``: simulates one run in a separate process."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from perftool.errors import PerfToolError
from perftool.sim import MODES, simulate


def main() -> int:
    """Run the script and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m perftool.sim", description=__doc__)
    parser.add_argument("--device", default="gaudi2")
    parser.add_argument("--mode", default="lazy", choices=MODES)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--skip-steps", type=int)
    parser.add_argument("--steps-from")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("script", type=Path)
    parser.add_argument("args", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    try:
        done = simulate(
            arguments.script,
            arguments.args,
            arguments.device,
            arguments.mode,
            arguments.max_steps,
            arguments.output,
            arguments.skip_steps,
            arguments.steps_from,
        )
    except PerfToolError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return done.exit_code


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    # Write the files, as after Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main())
