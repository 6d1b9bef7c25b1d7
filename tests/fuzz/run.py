"""Fuzz every reader for a while, outside the test suite.

    python tests/fuzz/run.py [--seconds 60] [--first 0] [TARGET ...]

Each input is made from its number alone. An input that makes a reader crash, or think for longer than ten seconds, is
written to fuzz-TARGET-NUMBER and the number printed; ``--first NUMBER --seconds 0`` runs it again.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from mutate import mutated
from targets import TARGETS, Target, attempt

_SLOW_S = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"any of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    options = parser.parse_args()
    names = options.targets or list(TARGETS)
    return 1 if sum(fuzz(TARGETS[name], options.seconds, options.first) for name in names) else 0


def fuzz(target: Target, seconds: float, number: int) -> int:
    """Feed ``target`` for ``seconds``; returns how many inputs it did not survive."""
    until, first, failures, kinds = time.monotonic() + seconds, number, 0, set()
    slowest = 0.0
    while number == first or time.monotonic() < until:
        data = mutated(Random(number), target.seeds)
        begun = time.monotonic()
        signal.alarm(_SLOW_S)
        try:
            attempt(target, data)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
            failures += 1
            place = traceback.extract_tb(error.__traceback__)[-1]
            kind = (type(error).__name__, place.filename, place.lineno)
            if kind not in kinds:
                kinds.add(kind)
                Path(f"fuzz-{target.name}-{number}").write_bytes(data)
                print(f"{target.name} {number}: {type(error).__name__}: {str(error)[:200]}")
                traceback.print_exception(error, limit=-4)
        finally:
            signal.alarm(0)
        slowest = max(slowest, time.monotonic() - begun)
        number += 1
    print(f"{target.name}: {number - first:,} inputs, {failures} failures, slowest {slowest:.2f} s", flush=True)
    return failures


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"no end after {_SLOW_S} s")


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, _too_slow)
    sys.exit(main())
