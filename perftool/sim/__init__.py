"""Simulates a Gaudi on the CPU, with real values in virtual time. ``simulate`` runs a script and writes the files of a
Gaudi run: a trace, a log and a metrics file, all marked as simulated. ``python -m perftool.sim SCRIPT`` does the same
in a separate process. docs/simulator.md describes the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from perftool.errors import InputError, MissingExtraError
from perftool.sim.machine.causes import Cause

MODES = ("lazy", "eager", "compile")
_NO_TORCH = "simulate needs PyTorch; the extra `bench` installs it: pip install 'habana-perf-tool[bench]'."


@dataclass(frozen=True)
class Simulated:
    """The result of a simulated run.

    ``interrupted``: why it ended early, or None. ``used``: whether the device did any work. ``steps``: the number of
    steps in the trace; ``skipped``: the number of steps before the trace starts. ``length_ns``: the virtual time of the
    whole run; ``compiling_ns``: the time that its ``compilations`` take. ``rank``: the number of this process among the
    ``ranks`` that a launcher started. ``spawned``: the traces of ranks that the script itself started. If there are
    any, ``trace`` is written only if the script also used the device. ``notes``: differences from a real device.
    ``causes``: why graphs ended, values were read, ops ran on the CPU and graphs were recompiled, in the whole run.
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
    rank: int = 0
    ranks: int = 1
    spawned: tuple[Path, ...] = ()
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
    next to it. The trace starts after ``skip_steps`` steps, as a profiler's trace starts after its warm-up. If
    ``skip_steps`` is None, the initial steps that compile are skipped: at most three, and at most half of all steps.
    ``steps_from`` says what marks a step (profiler, optimizer, loader, mark_step); if it is None, this is detected. Log
    and metrics cover the whole run. The script runs in this process, and ``torch`` is patched while it runs. Raise
    InputError if ``script`` is not a file, MissingExtraError if torch is not installed, and PerfToolError for an
    unknown device, mode or kind of step.
    """
    _require_torch()
    from perftool.sim.run import run

    return run(script, args, device, mode, max_steps, output, skip_steps, steps_from)


def simulate_ranks(
    script: Path, args: Sequence[str] = (), ranks: int = 2, output: Path | None = None, options: Sequence[str] = ()
) -> tuple[int, list[Path]]:
    """Run ``script`` in ``ranks`` processes that communicate through ``hccl``, each with its own card.

    ``options`` are passed to ``python -m perftool.sim``. Return the exit code of the first process that fails, or 0,
    and the traces: if ``output`` is ``run.json.gz``, they are ``run.rank0.json.gz`` and so on. Raise InputError if
    ``script`` is not a file, and MissingExtraError if torch is not installed.
    """
    require_script(script)
    _require_torch()
    from perftool.sim.ranks import run_ranks

    return run_ranks(script, args, options, output, ranks)


def require_script(script: Path) -> None:
    """Raise InputError if ``script`` is not a file."""
    if not script.is_file():
        raise InputError(f"{script}: {'a folder, not a script' if script.is_dir() else 'no such file'}")


def _require_torch() -> None:
    if find_spec("torch") is None:
        raise MissingExtraError(_NO_TORCH)
