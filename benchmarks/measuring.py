"""Runs a program in a separate process and measures its cost."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Timer


@dataclass(frozen=True)
class Cost:
    """The cost of a run with all its threads and child processes, from the start of the process to its end.

    ``cpu`` is user and system CPU time, and ``wall`` is elapsed time, both in s; ``peak`` is the resident memory of the
    largest process in bytes.
    """

    cpu: float
    wall: float
    peak: int


class RunError(Exception):
    """The program failed or took too long; the message says which of the two."""


@dataclass(frozen=True)
class Ran:
    """How a program ended: its cost, its exit code (None if it was stopped for taking too long) and its output."""

    cost: Cost
    code: int | None
    output: str

    @property
    def last_line(self) -> str:
        """The last line that the program wrote."""
        return (self.output.strip().splitlines() or ["no output"])[-1]


def run(command: Sequence[str], limit: float, environment: Mapping[str, str]) -> Ran:
    """Run ``command`` once, for at most ``limit`` s."""
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        watch = Timer(limit, process.kill)
        watch.start()
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        watch.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    # Linux reports ru_maxrss in units of 1024 bytes.
    cost = Cost(used.ru_utime + used.ru_stime, wall, used.ru_maxrss * 1024)
    return Ran(cost, None if wall > limit else process.returncode, text)


def measure(command: Sequence[str], limit: float, environment: Mapping[str, str]) -> Cost:
    """Run ``command`` once. Raises RunError if it fails or takes more than ``limit`` s."""
    ran = run(command, limit, environment)
    if ran.code is None:
        raise RunError(f"stopped after {limit:.0f} s")
    if ran.code:
        raise RunError(f"failed: {ran.last_line}")
    return ran.cost


def best(costs: Sequence[Cost]) -> Cost:
    """Return the minimum of each cost over several runs. The minimum estimates the cost on an undisturbed machine."""
    return Cost(min(c.cpu for c in costs), min(c.wall for c in costs), min(c.peak for c in costs))
