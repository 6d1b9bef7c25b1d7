"""Simulates a run of a script and writes its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from perftool.errors import PerfToolError
from perftool.output_file import require_apart
from perftool.sim import MODES, Simulated, require_script
from perftool.sim.machine.annotations import PROFILER_STEP
from perftool.sim.machine.costs import device_facts
from perftool.sim.machine.steps import SOURCES
from perftool.sim.machine.write import require_replaceable, require_writable
from perftool.sim.places import files, place
from perftool.sim.session.script import run_script
from perftool.sim.session.simulation import Simulation
from perftool.sim.spawned import Settings, spawning
from perftool.sim.stubs.modules import standing_in
from perftool.units import NS_PER_US


def run(
    script: Path,
    args: Sequence[str],
    device: str,
    mode: str,
    max_steps: int | None,
    output: Path | None,
    skip_steps: int | None,
    steps_from: str | None,
) -> Simulated:
    """See :func:`perftool.sim.simulate`."""
    if mode not in MODES:
        raise PerfToolError(f"there is no mode {mode!r}; the modes are {', '.join(MODES)}")
    if steps_from is not None and steps_from not in SOURCES:
        raise PerfToolError(f"{steps_from!r} cannot mark steps; {', '.join(SOURCES)} can")
    require_script(script)
    trace, log, metrics = files(place(script, output))
    require_apart([str(trace), str(log), str(metrics)], [str(script)])
    require_replaceable(trace, log, metrics)
    for path in (trace, log, metrics):
        require_writable(path)
    simulation = Simulation(device_facts(device), mode)
    machine = simulation.machine
    with TemporaryDirectory(prefix="perftool-") as folder:
        settings = Settings(device, mode, max_steps, skip_steps, steps_from, trace.resolve(), Path(folder))
        with standing_in(simulation, max_steps, steps_from), spawning(settings):
            exit_code, interrupted = run_script(simulation, script, args)
        settings.require_written()
        spawned = settings.written()
    skipped = simulation.finish(skip_steps, steps_from)
    if machine.used or not spawned:
        # The script may have written its own files under these names.
        require_replaceable(trace, log, metrics)
        simulation.write(trace, log, metrics, interrupted)
    steps = sum(event.name.startswith(PROFILER_STEP) for event in machine.recorder.events)
    return Simulated(
        trace=trace,
        log=log,
        metrics=metrics,
        exit_code=exit_code,
        interrupted=interrupted,
        used=machine.used,
        steps=steps,
        length_ns=machine.length,
        compilations=len(machine.log.compiled),
        skipped=skipped,
        compiling_ns=sum(microseconds for _, microseconds in machine.log.compiled) * NS_PER_US,
        notes=machine.log.notes,
        causes=machine.causes.all,
        rank=simulation.rank,
        ranks=simulation.ranks,
        spawned=spawned,
    )
