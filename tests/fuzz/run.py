"""Fuzz everything that reads user data, for as long as you like, outside the test suite.

    python tests/fuzz/run.py [--minutes 10] [--first NUMBER] [TARGET ...]
    python tests/fuzz/run.py --again NUMBER TARGET

Each input follows from its number alone. The targets take turns, each in a separate process, which may crash. An input
fails when it raises anything but our errors, ends its process, or costs more time or memory than its length allows
(``worker.py``). A failing input is kept in ``fuzz-found/TARGET-NUMBER``, one for each place in the code that fails.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

FOUND = Path("fuzz-found")
_TURN_S = 30.0
# A process that is silent for this long is killed. A process that is merely slow reports its cost earlier.
_SILENCE_S = 600.0


@dataclass
class Tally:
    """The results for one target."""

    next: int
    inputs: int = 0
    failures: dict[str, list[int]] = field(default_factory=dict)
    slowest: tuple[float, int] = (0.0, 0)
    largest: tuple[int, int] = (0, 0)

    def add(self, answer: dict) -> str | None:
        """Count an answer of a worker, and return the failure if it is new."""
        number = answer["number"]
        self.next, self.inputs = number + 1, self.inputs + 1
        self.slowest = max(self.slowest, (answer.get("cpu_s", 0.0), number))
        self.largest = max(self.largest, (answer.get("peak_mb", 0), number))
        if "failure" not in answer:
            return None
        known = self.failures.setdefault(answer["place"], [])
        known.append(number)
        return answer["failure"] if len(known) == 1 else None


def main() -> int:
    from targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"any of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--minutes", type=float, default=10, help="for all targets together")
    parser.add_argument("--first", type=int, default=int(time.time()) * 1000, help="number of the first input")
    parser.add_argument("--again", type=int, metavar="NUMBER", help="run one input here, with its traceback")
    options = parser.parse_args()
    names = options.targets or list(TARGETS)
    if options.again is not None:
        for name in names:
            again(name, options.again)
        return 0
    print(f"the first input is number {options.first}", flush=True)
    tallies = {name: Tally(options.first) for name in names}
    until = time.monotonic() + 60 * options.minutes
    while (left := until - time.monotonic()) > 0:
        for name, tally in tallies.items():
            turn(name, tally, min(_TURN_S, left / len(names)))
    for name, tally in tallies.items():
        print(summary(name, tally))
    return 1 if any(tally.failures for tally in tallies.values()) else 0


def turn(name: str, tally: Tally, seconds: float) -> None:
    """Run a process that feeds inputs to the target ``name`` for ``seconds``."""
    command = [sys.executable, str(Path(__file__).with_name("worker.py")), name, str(tally.next), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        for line in lines_of(worker):
            report(name, tally, json.loads(line))
        worker.kill()
        if worker.wait() != 0:
            lost = {"number": tally.next, "failure": f"the process ended ({worker.returncode})", "place": "end"}
            report(name, tally, lost)


def lines_of(worker: subprocess.Popen) -> Iterator[str]:
    """Yield the lines that ``worker`` prints, until it ends or stays silent for too long."""
    lines: queue.Queue[str] = queue.Queue()

    def gather() -> None:
        for line in worker.stdout:
            lines.put(line)
        lines.put("")

    threading.Thread(target=gather, daemon=True).start()
    with suppress(queue.Empty):
        while line := lines.get(timeout=_SILENCE_S):
            yield line
        worker.wait()


def report(name: str, tally: Tally, answer: dict) -> None:
    failure = tally.add(answer)
    if failure is not None:
        print(f"{name} {answer['number']}: {failure}", flush=True)
        FOUND.mkdir(exist_ok=True)
        (FOUND / f"{name}-{answer['number']}").write_bytes(input_of(name, answer["number"]))


def summary(name: str, tally: Tally) -> str:
    failed = sum(map(len, tally.failures.values()))
    cpu_s, slow = tally.slowest
    peak_mb, large = tally.largest
    return (
        f"{name}: {tally.inputs:,} inputs, {failed} failures in {len(tally.failures)} places; "
        f"most {cpu_s:.2f} s of CPU ({slow}), {peak_mb} MB ({large})"
    )


def input_of(name: str, number: int) -> bytes:
    from targets import TARGETS

    return TARGETS[name].input(number)


def again(name: str, number: int) -> None:
    from targets import TARGETS, attempt

    attempt(TARGETS[name], input_of(name, number))


if __name__ == "__main__":
    sys.exit(main())
