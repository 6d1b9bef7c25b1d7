"""``record``: run a program as it is, record a few of its steps, and say what slows them down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from perftool.commands import analyze
from perftool.commands.options import NO_VALUE, Color, ColorOption, Given, Quiet
from perftool.commands.prepare import note, prepare
from perftool.errors import InputError
from perftool.integrations.record.plan import STEPS_FROM, Plan

_NO_STEPS = (
    "no step was found in the program: no step of an optimizer, no batch of a data loader, no call of a module; "
    "is PyTorch used, and is this program installed for that Python?"
)
StepsFrom = Enum("StepsFrom", {name: name for name in STEPS_FROM}, type=str)  # type: ignore[misc]


def record(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND ...", help="The program and its arguments, as you would type it.")
    ],
    folder: Annotated[
        Path, typer.Option("--output-folder", "-o", metavar="DIR", help="Where each rank writes its trace.")
    ] = Path("perftool_record"),
    wait: Annotated[int, typer.Option(min=0, metavar="N", help="Steps to skip after the first one.")] = 1,
    warmup: Annotated[int, typer.Option(min=0, metavar="N", help="Steps during which the profiler starts up.")] = 1,
    active: Annotated[int, typer.Option(min=1, metavar="N", help="Steps to record.")] = 3,
    steps_from: Annotated[
        StepsFrom, typer.Option(metavar="WHAT", help="What ends a step: auto, optimizer, loader, forward.")
    ] = StepsFrom.auto,  # type: ignore[attr-defined]
    stacks: Annotated[
        bool, typer.Option("--stacks/--no-stacks", metavar=NO_VALUE, help="Record Python stacks: findings name lines.")
    ] = True,
    memory: Annotated[bool, typer.Option("--memory", metavar=NO_VALUE, help="Record allocations too.")] = False,
    stop_after: Annotated[
        bool, typer.Option("--stop-after-recording", metavar=NO_VALUE, help="End the program when it is recorded.")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report/--no-report", metavar=NO_VALUE, help="Print the report on the traces.")
    ] = True,
    color: ColorOption = Color.auto,
    quiet: Quiet = False,
) -> None:
    """Record a few steps of a program as it is, and report what slows it down

    The program is not changed: its output, signals and exit code are its own. Each rank records itself.

    Examples:

      habana_perf_tool record -- python train.py --epochs 3

      habana_perf_tool record -- torchrun --nproc-per-node 8 train.py
    """
    with tempfile.TemporaryDirectory(prefix="perftool-") as notes:
        plan = Plan(str(folder.resolve()), notes, wait, warmup, active, steps_from.value, stacks, memory, stop_after)
        before = _traces(folder)
        code = _run(command, plan)
        made = sorted(_traces(folder) - before)
        said = plan.notes_left() or ([] if made else [_NO_STEPS])
    sys.stdout.flush()
    if not quiet:
        wrote = [f"habana_perf_tool: wrote {path}" for path in made]
        note([*(f"habana_perf_tool: {text}" for text in said), *wrote], color)
    if made and report:
        analyze.run([str(path) for path in made], [], prepare([str(folder)], [], False, Given()), color, quiet=True)
    raise typer.Exit(code)


def _traces(folder: Path) -> set[Path]:
    return set(folder.glob("*.pt.trace.json.gz"))


def _run(command: Sequence[str], plan: Plan) -> int:
    """Run the program to its end; its exit code, 128 and the number of the signal that ended it."""
    # A script alone is for the Python that runs us.
    whole = [sys.executable, *command] if command[0].endswith(".py") else list(command)
    try:
        process = subprocess.Popen(whole, env=plan.environment(os.environ))
    except OSError as error:
        raise InputError(f"{whole[0]}: cannot be run ({error.strerror or error})") from None
    with _signals_go_to(process):
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _signals_go_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave interrupts to the program, which gets them from the terminal as we do, and hand a SIGTERM on."""

    def hand_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    kept = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, hand_on),
    }
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
