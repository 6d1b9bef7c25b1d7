"""``simulate``: runs a script on a simulated Gaudi and analyses the trace."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perftool.commands.analyze import show_report_on
from perftool.commands.options import NO_VALUE, ColorOption, Quiet
from perftool.commands.output import print_notes
from perftool.model.choices import Color
from perftool.units import format_ns, quantity

if TYPE_CHECKING:
    from perftool.sim import Simulated


_MOST_CAUSES = 8


class DeviceName(str, Enum):
    """Which device to simulate."""

    gaudi = "gaudi"
    gaudi2 = "gaudi2"
    gaudi3 = "gaudi3"


class Mode(str, Enum):
    """How ops are sent to the device."""

    lazy = "lazy"
    eager = "eager"
    compile = "compile"


class Steps(str, Enum):
    """What marks the steps."""

    profiler = "profiler"
    optimizer = "optimizer"
    loader = "loader"
    mark_step = "mark_step"


DeviceOption = Annotated[DeviceName, typer.Option(metavar="DEVICE", help="Device to simulate: gaudi, gaudi2, gaudi3.")]
StepsOption = Annotated[
    Steps | None,
    typer.Option(
        metavar="WHAT",
        help="What marks a step: profiler, optimizer, loader, mark_step. Default: what the script uses.",
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output-file",
        "-o",
        metavar="FILE",
        help="Trace to write (.json or .json.gz), with log and metrics next to it. Default: SCRIPT.simulated.json.gz.",
    ),
]
ArgsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ARGS", help="Arguments for the script; put -- before those that look like options of simulate."
    ),
]
SkipOption = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Leave the first N steps out of the trace. Default: the warm-up steps."),
]
MaxOption = Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop the script after N steps.")]
ReportOption = Annotated[
    bool, typer.Option("--report/--no-report", metavar=NO_VALUE, help="Print the report on the trace.")
]
RanksOption = Annotated[
    int,
    typer.Option(
        min=1, max=256, metavar="N", help="Number of cards: run the script in N processes, as a launcher would."
    ),
]
ModeOption = Annotated[Mode, typer.Option(metavar="MODE", help="How ops are sent to the device: lazy, eager, compile.")]


def simulate(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The Python script.")],
    args: ArgsArgument = None,
    device: DeviceOption = DeviceName.gaudi2,
    mode: ModeOption = Mode.lazy,
    skip_steps: SkipOption = None,
    steps_from: StepsOption = None,
    max_steps: MaxOption = None,
    ranks: RanksOption = 1,
    output: OutputOption = None,
    report: ReportOption = True,
    color: ColorOption = Color.auto,
    quiet: Quiet = False,
) -> None:
    """Run a script on a simulated Gaudi, and report what slows it down

    The script's ops really run, on the CPU. Time is virtual: it comes from a model of a Gaudi (docs/simulator.md).
    The output and the exit code are those of the script. The command needs PyTorch, but neither a Gaudi nor its
    software.

    Examples:

      habana_perf_tool simulate train.py --device gaudi3 --max-steps 20

      habana_perf_tool simulate train.py -- --batch-size 8 --device hpu

      habana_perf_tool simulate ddp.py --ranks 2
    """
    from perftool import sim

    target = output.resolve() if output else None
    steps_option = steps_from and steps_from.value
    if ranks > 1:
        steps = {"--max-steps": max_steps, "--skip-steps": skip_steps, "--steps-from": steps_option}
        options = _as_options({"--device": device.value, "--mode": mode.value, **steps})
        code, traces = sim.simulate_ranks(script, args or (), ranks, target, options)
        _report_ranks(traces, report, color, quiet)
        raise typer.Exit(code)
    done = sim.simulate(script, args or (), device.value, mode.value, max_steps, target, skip_steps, steps_option)
    if done.spawned:
        _report_ranks(done.spawned, report, color, quiet)
        raise typer.Exit(done.exit_code)
    sys.stdout.flush()
    if not quiet:
        print_notes(
            [*_outcome(done, device, mode), *_causes(done), *_no_step_note(done, skip_steps, steps_option)], color
        )
    if report and done.ranks == 1 and done.used and (done.steps or not skip_steps):
        show_report_on([_shown(done.trace)], color, [_shown(done.log), _shown(done.metrics)])
    raise typer.Exit(done.exit_code)


def _as_options(values: Mapping[str, object]) -> list[str]:
    return [text for name, value in values.items() if value is not None for text in (name, str(value))]


def _report_ranks(written: Sequence[Path], report: bool, color: Color, quiet: bool) -> None:
    """Analyse the traces of all ranks together. ``written`` does not contain those of ranks that failed."""
    traces = [_shown(each) for each in written]
    sys.stdout.flush()
    if not quiet and traces:
        print_notes([f"Wrote {', '.join(traces)}, each with its log and metrics next to it"], color)
    if report and traces:
        show_report_on(traces, color)


def _shown(path: Path) -> str:
    """Return ``path``, relative to the working directory if it is in that directory."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _no_step_note(done: Simulated, skip_steps: int | None, steps_option: str | None) -> list[str]:
    if not done.used or done.steps:
        return []
    if steps_option and not done.skipped:
        return [f"habana_perf_tool: --steps-from {steps_option} found no step in this script"]
    if not skip_steps:
        return []
    return [f"habana_perf_tool: --skip-steps {skip_steps} leaves no step in the trace; skip fewer to get a report"]


def _causes(done: Simulated) -> list[str]:
    """List the script lines that cause recompilations, fallbacks, reads and graph cuts, except calls to mark_step."""
    causes = [cause for cause in done.causes if cause.what != "host step marker"]
    if not causes:
        return []
    left = len(causes) - _MOST_CAUSES
    lines = [*(f"  {cause.text}" for cause in causes[:_MOST_CAUSES])]
    more = [f"  and {left} more; all are in {_shown(done.log)}"] if left > 0 else []
    return [
        "habana_perf_tool: lines that end a graph, read a value or cause a recompilation, in the whole run:",
        *lines,
        *more,
    ]


def _outcome(done: Simulated, device: DeviceName, mode: Mode) -> list[str]:
    if not done.used:
        return ["habana_perf_tool: the script put no tensor on the device 'hpu', so there is no report"]
    lines = [
        f"habana_perf_tool: simulated {device.value.capitalize()}, {mode.value} mode: "
        f"{quantity(done.steps, 'step', 'steps')}, {quantity(done.compilations, 'compilation', 'compilations')}, "
        f"{format_ns(done.length_ns)} of virtual time, {format_ns(done.compiling_ns)} of it compiling",
        f"Wrote {', '.join(map(_shown, (done.trace, done.log, done.metrics)))}",
    ]
    if done.skipped:
        first = "first step" if done.skipped == 1 else f"first {done.skipped} steps"
        lines += [f"habana_perf_tool: the trace leaves out the {first}, as a warm-up; --skip-steps 0 keeps every step"]
    lines += [f"habana_perf_tool: note: {note}" for note in done.notes]
    if done.ranks > 1:
        traces = _shown(done.trace).replace(f".rank{done.rank}.", ".rank*.")
        lines += [
            f"habana_perf_tool: this is rank {done.rank} of {done.ranks}; for all: habana_perf_tool analyze {traces}"
        ]
    return [*lines, f"habana_perf_tool: {done.interrupted}; the trace ends there"] if done.interrupted else lines
