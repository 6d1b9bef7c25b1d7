"""``record``: runs an unchanged program, records a few of its steps, and reports what slows them down."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from perftool.commands.analyze import show_report_on
from perftool.commands.options import NO_VALUE, ColorOption, Quiet, time_option
from perftool.commands.output import print_notes
from perftool.errors import InputError, OutputClosedError, PerfToolError
from perftool.integrations.record.plan import ACTIVE, OWN_TRACE, STAGES, STEPS_FROM, WAIT, WARMUP, Note, Plan
from perftool.model.choices import Color

_LOOK_S = 0.3
_MOST_IN_A_SECOND = 1000
StepsFrom = Enum("StepsFrom", {name: name for name in STEPS_FROM}, type=str)  # type: ignore[misc]


Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- COMMAND ...", help="The program and its arguments, as you would type them."),
]
Folder = Annotated[Path, typer.Option("--output-folder", "-o", metavar="DIR", help="Where each rank writes its trace.")]
Wait = Annotated[int, typer.Option(min=0, metavar="N", help="Steps to skip after the first one.")]
WarmUp = Annotated[int, typer.Option(min=0, metavar="N", help="Steps during which the profiler starts up.")]
Active = Annotated[int, typer.Option(min=1, metavar="N", help="Steps to record.")]
StepsOf = Annotated[StepsFrom, typer.Option(metavar="WHAT", help="What ends a step: auto, optimizer, loader, forward.")]
Stacks = Annotated[
    bool,
    typer.Option("--stacks/--no-stacks", metavar=NO_VALUE, help="Record Python stacks, to show lines of code."),
]
Trials = Annotated[
    bool,
    typer.Option(
        "--trials/--no-trials", metavar=NO_VALUE, help="Try BF16 and other changes on a copy of the model (CPU only)."
    ),
]
Memory = Annotated[bool, typer.Option("--memory", metavar=NO_VALUE, help="Also record allocations.")]
StopAfter = Annotated[
    bool, typer.Option("--stop-after-recording", metavar=NO_VALUE, help="End the program once its recording is saved.")
]
KeepCode = Annotated[
    bool,
    typer.Option(
        "--program-exit-code", metavar=NO_VALUE, help="Keep the program's exit code even if nothing was recorded."
    ),
]
ShowReport = Annotated[
    bool, typer.Option("--report/--no-report", metavar=NO_VALUE, help="Print the report on the traces.")
]
ServerAt = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="Profile the language-model server at http://HOST:PORT instead."),
]
Seconds = Annotated[float, time_option(0.1, "How long to profile the server, at most a day.", metavar="N")]
Profiles = Annotated[
    Path | None,
    typer.Option(
        "--profile-folder", metavar="DIR", help="Where the server writes its profiles, if not found automatically."
    ),
]


def record(
    command: Command = None,
    folder: Folder = Path("perftool_record"),
    wait: Wait = WAIT,
    warmup: WarmUp = WARMUP,
    active: Active = ACTIVE,
    steps_from: StepsOf = StepsFrom.auto,  # type: ignore[attr-defined]
    stacks: Stacks = True,
    trials: Trials = True,
    memory: Memory = False,
    stop_after: StopAfter = False,
    keep_code: KeepCode = False,
    report: ShowReport = True,
    server: ServerAt = None,
    seconds: Seconds = 5.0,
    profiles: Profiles = None,
    color: ColorOption = Color.auto,
    quiet: Quiet = False,
) -> None:
    """Record a few steps of an unmodified program, and report what slows it down

    The program runs unchanged, with its own output and signals. Each rank records itself. The exit code is that of the
    program, or 2 if the program succeeded but nothing was recorded.

    Examples:

      habana_perf_tool record -- python train.py --epochs 3

      habana_perf_tool record -- torchrun --nproc-per-node 8 train.py

      habana_perf_tool record --server http://localhost:8000 --seconds 5
    """
    if server is None and not command:
        raise typer.BadParameter("name a program after --, or a server with --server")
    if server is not None and command:
        raise typer.BadParameter("a program after -- and --server exclude each other; give only one of them")
    _require_writable(folder)
    if server is not None:
        with _own_folder(folder) as place:
            _record_server(server, seconds, place, profiles, report=report, color=color, quiet=quiet)
        return
    # The program may have left processes that still write notes.
    kept = tempfile.TemporaryDirectory(prefix="perftool-", ignore_cleanup_errors=True)
    with kept as notes, _own_folder(folder) as place:
        plan = Plan(
            str(place.resolve()), notes, wait, warmup, active, steps_from.value, stacks, memory, stop_after, trials
        )
        code = run_program(command or (), plan.environment(os.environ), None if quiet else _Estimate(plan, color))
        left = plan.notes_left()
    made = _made(left, _traces(place))
    sys.stdout.flush()
    moved = [one.trace for one in left if one.text == OWN_TRACE and one.trace and not os.path.isfile(one.trace)]
    if not quiet or not made:
        print_notes(_notes(left, made, moved, code), color)
    if made and report:
        with _program_first(code):
            show_report_on([str(path) for path in made], color)
    raise typer.Exit(code if code or made or moved or keep_code else InputError.exit_code)


@contextmanager
def _program_first(code: int) -> Iterator[None]:
    """If the program failed, the exit ``code`` is the program's, even if its recording cannot be reported."""
    try:
        yield
        sys.stdout.flush()
    except (OutputClosedError, BrokenPipeError):
        raise OutputClosedError(code) from None
    except PerfToolError as error:
        if not code:
            raise
        print_notes([f"habana_perf_tool: the report failed: {error}"])


def _record_server(
    address: str, seconds: float, place: Path, profiles: Path | None, *, report: bool, color: Color, quiet: bool
) -> None:
    from perftool.integrations.server.client import server_at
    from perftool.integrations.server.recording import record_server

    server = server_at(address)
    if not quiet:
        slow = "writing the traces takes additional time, during which the server may not answer requests"
        print_notes([f"habana_perf_tool: profiling {server.url} for {seconds:g} s; {slow}"], color)
    made = record_server(server, seconds, place, profiles)
    if not quiet:
        print_notes([f"habana_perf_tool: wrote {path}" for path in (*made.traces, *made.pages)], color)
    if made.idle:
        print_notes(["habana_perf_tool: the server generated no tokens; record while it serves requests"], color)
    if report and made.traces:
        show_report_on([str(place)], color)
    if made.missing is not None:
        raise InputError(f"{address}: {made.missing}")


class _Estimate:
    """Prints how long the recording will take, once a process of the program has estimated it."""

    def __init__(self, plan: Plan, color: Color) -> None:
        self._plan = plan
        self._color = color

    def __call__(self) -> bool:
        """Print the estimate if it is known, and return whether it was printed."""
        texts = [one.text for one in self._plan.notes_left() if one.stage == "recording" and one.text]
        # The program continues even if nobody reads the estimate, or if the disk is full.
        with suppress(OSError):
            if texts and sys.stderr.isatty():
                # The program's progress bar may have left the cursor within a line.
                sys.stderr.write("\n")
            print_notes([f"habana_perf_tool: {text}" for text in texts[:1]], self._color)
        return bool(texts)


def _notes(left: Sequence[Note], made: Sequence[Path], moved: Sequence[str], code: int) -> list[str]:
    texts = dict.fromkeys(one.text for one in left if one.text and one.stage in ("saved", "explained"))
    lines = [*texts, *(f"wrote {path}" for path in made)] if made or moved else [why_nothing(left, code)]
    if moved:
        others = f" (as are {len(moved) - 1:,} others)" if moved[1:] else ""
        lines.append(f"the program wrote {moved[0]}, which is no longer there{others}")
    return [f"habana_perf_tool: {text}" for text in lines]


def _require_writable(folder: Path) -> None:
    """Create ``folder`` and check that it is writable before the program runs for hours. Raise InputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"0" * 4096)
    except OSError as error:
        raise InputError(f"{folder}: cannot write traces there ({error.strerror or error})") from None


def _traces(folder: Path) -> set[Path]:
    return {path for end in ("", ".gz") for path in folder.glob(f"*.pt.trace.json{end}") if path.is_file()}


@contextmanager
def _own_folder(folder: Path) -> Iterator[Path]:
    """Create a folder in ``folder`` for this recording, named after the date and time. Remove it if it stays empty.

    It is new and only this user writes there, so nobody can have put links into it.
    """
    date = f"{datetime.now():%Y-%m-%d_%H-%M-%S}"
    names = (date, *(f"{date}_{number}" for number in range(2, _MOST_IN_A_SECOND)))
    place = next((place for name in names if _is_made(place := folder / name)), None)
    if place is None:
        raise InputError(f"{folder}: it contains too many folders named {date}")
    try:
        yield place
    finally:
        with suppress(OSError):
            place.rmdir()


def _is_made(place: Path) -> bool:
    """Create the folder ``place``. Return False if that name is taken."""
    try:
        place.mkdir(mode=0o755)
    except FileExistsError:
        return False
    except OSError as error:
        raise InputError(f"{place}: the folder cannot be created ({error.strerror or error})") from None
    return True


def _made(left: Sequence[Note], found: set[Path]) -> list[Path]:
    """List the traces that the program wrote, in the folder or elsewhere."""
    here = {path.resolve() for path in found}
    for trace in (Path(one.trace) for one in left if one.trace):
        # A recorder compresses a trace after writing it, and may have noted the earlier name.
        place = next((path for path in (trace, Path(f"{trace}.gz")) if path.is_file()), None)
        if place is not None and place.resolve() not in here:
            found.add(place)
    return sorted(found)


def why_nothing(left: Sequence[Note], code: int) -> str:
    """Explain in one line why nothing was recorded, from the processes' notes ``left`` and the exit ``code``."""
    furthest = max((STAGES.index(one.stage) for one in left), default=-1)
    stage = STAGES[furthest] if furthest >= 0 else None
    texts = [one.text for one in left if one.stage == stage and one.text]
    how = f"was killed by {_signal_name(code - 128)}" if code > 128 else f"ended with exit code {code}"
    ending = f"the program {how}"
    if stage == "saved":
        return "no trace was found: the program has moved or removed it, or has changed its root folder"
    if stage == "explained":
        return "; ".join(["nothing was recorded", *dict.fromkeys(texts)]).replace(";", ":", 1)
    if stage == "recording":
        return f"no trace was saved: {ending} during the recording, and the trace in memory was lost"
    if stage == "ready":
        if texts:
            return f"nothing was recorded: {texts[0]}; {ending}"
        if code:
            whole = (
                "; if one call to the optimizer runs the whole training, --steps-from forward counts calls to the model"
            )
            return f"nothing was recorded: {ending} before the end of its first step{whole if code > 128 else ''}"
        return (
            "nothing was recorded: the program imported PyTorch, but no step was found: no optimizer stepped, no batch "
            "came from a DataLoader, and no module was called outside of compiled functions"
        )
    if stage == "stranger":
        return f"nothing was recorded: {texts[0]}; install habana_perf_tool for that Python"
    if code:
        return f"nothing was recorded: {ending} before it imported PyTorch"
    return (
        "nothing was recorded: no process of the program imported PyTorch, or its Python runs with -I, -E or -S, which "
        "disable the recorder"
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def run_program(
    command: Sequence[str], environment: Mapping[str, str], is_done: Callable[[], bool] | None = None
) -> int:
    """Run the program to its end. Return its exit code, or 128 plus the number of the signal that ended it.

    ``is_done`` is called a few times a second while the program runs, until it returns True.
    """
    whole = [sys.executable, *command] if _is_plain_script(command[0]) else list(command)
    with _signals_held() as held, _ends_reported() as ignored:

        def as_before() -> None:
            if held:
                held.release()
            if ignored:
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)

        try:
            # The shell may have opened descriptors for the program, as for ``<(zcat data.gz)``.
            process = subprocess.Popen(
                whole, env=environment, close_fds=False, preexec_fn=as_before if held or ignored else None
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise InputError(f"{whole[0]}: cannot run ({getattr(error, 'strerror', None) or error})") from None
        code = held.wait(process, is_done) if held else _wait(process)
    return code if code >= 0 else 128 - code


def _is_plain_script(name: str) -> bool:
    """Whether ``name`` is a .py file that a shell cannot run. It then runs with the Python that runs this command."""
    if not name.endswith(".py"):
        return False
    return not os.access(name, os.X_OK) if os.path.dirname(name) else shutil.which(name) is None


class _Held:
    """Blocks signals until they can be forwarded to the program."""

    def __init__(self) -> None:
        names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCHLD")
        self._numbers = {getattr(signal, name) for name in names}
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)

    def release(self) -> None:
        """Unblock the signals."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def wait(self, process: subprocess.Popen[bytes], is_done: Callable[[], bool] | None) -> int:
        """Forward signals to ``process`` until it ends. Return its exit code as in Popen.

        Ctrl-C and Ctrl-\\ are not forwarded, because the terminal sends them to all processes in the foreground.
        """
        while (code := process.poll()) is None:
            if is_done is not None and is_done():
                is_done = None
            received = signal.sigtimedwait(self._numbers, _LOOK_S) if is_done else signal.sigwaitinfo(self._numbers)
            if received is None:
                continue
            from_terminal = received.si_signo in (signal.SIGINT, signal.SIGQUIT) and received.si_code > 0
            if received.si_signo != signal.SIGCHLD and not from_terminal:
                process.send_signal(received.si_signo)
        return code


@contextmanager
def _signals_held() -> Iterator[_Held | None]:
    """Hold signals back within this block. Yield None on systems that do not report a signal's sender (macOS,
    Windows)."""
    if not hasattr(signal, "sigwaitinfo"):
        yield None
        return
    held = _Held()
    try:
        yield held
    finally:
        held.release()


@contextmanager
def _ends_reported() -> Iterator[bool]:
    """Let this process receive the exit codes of its children: stop ignoring SIGCHLD in this block. Yield whether it
    was ignored, a setting inherited from the parent. While SIGCHLD is ignored, the system discards exit codes."""
    ignored = hasattr(signal, "SIGCHLD") and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield ignored
    finally:
        if ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Forward SIGTERM to ``process`` until it ends; the terminal sends Ctrl-C to it directly."""

    def forward(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    kept = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, forward),
    }
    try:
        return process.wait()
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
