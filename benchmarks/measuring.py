"""Runs a program in a separate process and measures its cost."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Timer
from typing import BinaryIO


@dataclass(frozen=True)
class Cost:
    """What a run took, with all threads and child processes, from the start of the process to its end.

    ``cpu`` is processor time, user and system, and ``wall`` the time that passed, both in s; ``peak`` is the
    resident memory of the largest process in bytes.
    """

    cpu: float
    wall: float
    peak: int


class RunError(Exception):
    """The program ended with an error, or took too long; the message says which."""


def measure(command: Sequence[str], limit: float, environment: Mapping[str, str]) -> Cost:
    """Run ``command`` once. Raises RunError when it fails, and when it takes more than ``limit`` s."""
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        watch = Timer(limit, process.kill)
        watch.start()
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        watch.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        if wall > limit:
            raise RunError(f"stopped after {limit:.0f} s")
        if process.returncode:
            raise RunError(f"failed: {last_line(output)}")
    # Linux counts kilobytes of 1024.
    return Cost(used.ru_utime + used.ru_stime, wall, used.ru_maxrss * 1024)


def last_line(output: BinaryIO) -> str:
    """The last line that the program wrote."""
    output.seek(0)
    return (output.read().decode(errors="replace").strip().splitlines() or ["no output"])[-1]


def best(costs: Sequence[Cost]) -> Cost:
    """The least of several runs in each respect: what the program takes when nothing disturbs it."""
    return Cost(min(c.cpu for c in costs), min(c.wall for c in costs), min(c.peak for c in costs))
