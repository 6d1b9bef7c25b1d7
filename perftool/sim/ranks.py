"""Simulates several cards: starts one process for each, as a launcher would on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from perftool.errors import TerminatedError
from perftool.sim.machine.write import require_replaceable
from perftool.sim.places import files, of_rank, place

# The interval between checks for ended processes, and how long a process may take to end on request.
_LOOK_S, _END_S = 0.05, 10.0


def run_ranks(
    script: Path, args: Sequence[str], options: Sequence[str], output: Path | None, ranks: int
) -> tuple[int, list[Path]]:
    """Run ``script`` in ``ranks`` processes, with ``options`` for ``python -m perftool.sim``.

    Return the exit code of the first process that fails, or 0, and the traces. If a process fails, the others are
    terminated, because they would wait for it. Raise PerfToolError, before any process starts, if a rank would replace
    a file that is not from a simulation.
    """
    target = place(script, output).resolve()
    for rank in range(ranks):
        require_replaceable(*files(of_rank(target, rank)))
    command = [sys.executable, "-m", "perftool.sim", *options, "-o", str(target), str(script), *args]
    shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // ranks)), **os.environ}
    children: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(ranks):
            own = {**threads, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            # The shell may have opened file descriptors for the script, such as ``<(zcat data.gz)``.
            children.append(subprocess.Popen(command, env=own, close_fds=False))
        code = _wait(children)
    except KeyboardInterrupt as ended:
        # The ranks write their files before they end. The terminal also sends Ctrl-C to them.
        if isinstance(ended, TerminatedError):
            for child in children:
                child.terminate()
        code = max(_wait_for_each(children), 130)
    finally:
        _end(children)
    traces = [of_rank(target, rank) for rank in range(ranks)]
    return code, [trace for trace in traces if trace.exists()]


def _wait(children: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait until all processes have ended or one has failed. Return the exit code of the failed process, or 0."""
    while True:
        codes = [child.poll() for child in children]
        failed = next((code for code in codes if code), None)
        if failed is not None or None not in codes:
            # Like a shell, report a process killed by a signal as 128 plus the signal's number.
            return 128 - failed if failed and failed < 0 else failed or 0
        time.sleep(_LOOK_S)


def _wait_for_each(children: Sequence[subprocess.Popen[bytes]]) -> int:
    end = time.monotonic() + _END_S
    while any(child.poll() is None for child in children) and time.monotonic() < end:
        time.sleep(_LOOK_S)
    return max((child.returncode or 0 for child in children), default=0)


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    for child in children:
        if child.poll() is None:
            child.terminate()
    for child in children:
        try:
            child.wait(_END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
