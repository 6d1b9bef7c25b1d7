"""A lazy-mode Gaudi, simulated on the CPU: real values, virtual time.

``simulate`` runs a script and writes what a Gaudi run would have left: a trace, a log and a metrics file, all marked as
simulated. ``python -m perftool.sim SCRIPT`` does the same in a process of its own. docs/simulator.md states the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perftool.errors import MissingExtraError
from perftool.sim.machine.causes import Cause

MODES = ("lazy", "eager", "compile")


@dataclass(frozen=True)
class Simulated:
    """What a simulated run left. ``interrupted`` says why it ended early; ``used`` whether the device did anything.

    ``notes`` say what a real device does otherwise, ``causes`` where and why graphs ended, values were read, ops ran on
    the CPU and graphs were compiled anew, in the whole run. ``steps`` of the trace, ``skipped`` steps before it and
    ``compilations`` of the whole run are counts; ``length_ns`` is how long the run took in virtual time, and
    ``compiling_ns`` how long its compilations took.
    """

    trace: Path
    log: Path
    metrics: Path
    exit_code: int
    interrupted: str | None
    used: bool
    steps: int
    length_ns: int
    compilations: int
    skipped: int = 0
    compiling_ns: int = 0
    notes: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()


def simulate(
    script: Path,
    args: Sequence[str] = (),
    device: str = "gaudi2",
    mode: str = "lazy",
    max_steps: int | None = None,
    output: Path | None = None,
    skip_steps: int | None = None,
    steps_from: str | None = None,
) -> Simulated:
    """Run ``script`` on a simulated ``device`` (gaudi, gaudi2, gaudi3) in ``mode`` (lazy, eager, compile).

    The trace goes to ``output`` (default: ``<script>.simulated.json.gz`` in the working directory), log and metrics
    beside it. The trace begins after ``skip_steps`` steps, like that of a profiler with a warm-up; None leaves out the
    first steps that compile, at most three and at most half of all. ``steps_from`` says what a step is told by
    (profiler, optimizer, loader, mark_step); None finds out. Log and metrics tell of the whole run. The script runs in
    this process, which should do nothing else: it changes ``torch`` while it runs.
    Raises InputError when there is no such script, MissingExtraError without torch, and PerfToolError for an unknown
    device, mode or kind of step.
    """
    try:
        from perftool.sim.run import run
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError(
            "simulate needs PyTorch; the extra `bench` brings it: pip install 'habana-perf-tool[bench]'."
        ) from error
    return run(script, args, device, mode, max_steps, output, skip_steps, steps_from)
