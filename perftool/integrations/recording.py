"""``perftool.profile``: records a few steps of a run, saves the trace, and reports what slows the run down."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from perftool.errors import InputError, PerfToolError, is_interrupt
from perftool.integrations.activities import ProfilerAction, ProfilerActivity, activities_here, torch_profiler
from perftool.integrations.endings import Endings
from perftool.integrations.home_thread import HomeThread
from perftool.integrations.ignored_warnings import warnings_ignored
from perftool.integrations.machine import Watch
from perftool.integrations.modes import unseen_by_modes
from perftool.integrations.own_warnings import warn
from perftool.integrations.process import new_trace, rank_here
from perftool.integrations.record.plan import ACTIVE, WAIT, WARMUP
from perftool.integrations.saving import save_trace
from perftool.readers.discovery.names import TRACE_SUFFIXES
from perftool.units import format_times

if TYPE_CHECKING:
    from perftool.model.report import Report


def profile(
    folder: str | PathLike[str],
    *,
    wait: int = WAIT,
    warmup: int = WARMUP,
    active: int = ACTIVE,
    repeat: int = 1,
    activities: Iterable[ProfilerActivity] | None = None,
    record_shapes: bool = True,
    profile_memory: bool = False,
    with_stack: bool = False,
    quiet: bool = False,
) -> Recording:
    """Record a ``with`` block, save the trace in ``folder`` and print the report when the block ends.

    Call ``step()`` on the object after each step: ``wait`` steps are skipped, the profiler starts up during ``warmup``
    steps, ``active`` steps are recorded, and this cycle runs ``repeat`` times (0: until the block ends). If the block
    never calls ``step()``, all of it is recorded. ``activities`` are those of torch.profiler; by default the host and
    every device. With ``quiet``, no report is printed. The profiler never ends a run: once it has started, its errors
    become warnings. If the block raises an exception, or if a signal or ``os._exit`` ends the process, the recording is
    saved first. Raise PerfToolError if ``folder`` cannot be created or the schedule has no active steps.
    """
    place = Path(folder).absolute()
    if place.name.endswith(TRACE_SUFFIXES):
        raise PerfToolError(f"{place}: profile needs a folder, because it names the files itself")
    if active < 1 or min(wait, warmup, repeat) < 0:
        raise PerfToolError("profile needs active >= 1, and wait, warmup and repeat >= 0")
    watch = Watch(_schedule(wait, warmup, active, repeat))
    profiler = torch_profiler.profile(
        activities=activities_here() if activities is None else activities,
        schedule=watch.schedule,
        record_shapes=record_shapes,
        profile_memory=profile_memory,
        with_stack=with_stack,
    )
    return Recording(place, profiler, watch, wait + warmup, quiet)


class Recording:
    """A recording: ``traces`` are the files saved so far, and ``report`` is the report on the newest one."""

    def __init__(self, folder: Path, profiler: torch_profiler.profile, watch: Watch, before: int, quiet: bool) -> None:
        self.traces: list[Path] = []
        self._folder = folder
        self._profiler = profiler
        self._watch = watch
        self._endings = Endings(self.close)
        watch.is_urgent = lambda: self._failed or self._endings.is_urgent
        self._home = HomeThread(self.close)
        self._before = before
        self._quiet = quiet
        self._steps = 0
        self._running = False
        # The block has raised an exception.
        self._failed = False
        # A forked child leaves the recording to this process.
        self._owner = os.getpid()
        self._report: Report | None = None
        profiler.on_trace_ready = self._save

    def __enter__(self) -> Recording:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self._folder}: cannot create the folder ({error.strerror or error})") from None
        self._home.move_here()
        with unseen_by_modes():
            self._profiler.start()
        self._running = True
        self._owner = os.getpid()
        self._endings.watch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._failed = error is not None
        self.close()
        if os.getpid() != self._owner:
            return
        if not self.traces and error is None:
            warn(self._nothing(), stacklevel=2)
        elif error is None and not self._quiet and rank_here() in (None, 0):
            with errors_become_warnings("the recording could not be analysed"):
                show(self.report, self.traces[-1])

    def step(self) -> None:
        """Mark the end of a step and the start of the next. Call this in the thread that entered the block."""
        if os.getpid() != self._owner:
            return
        if not self._home.here:
            warn("perftool: step() has no effect in a thread that is not recorded", stacklevel=2)
            return
        self._steps += 1
        with self._endings.undisturbed(), errors_become_warnings("the profiler failed"), unseen_by_modes():
            self._end_trial() if self._steps == 1 else self._profiler.step()

    def close(self) -> None:
        """Stop, and save what is still being recorded. Further calls do nothing."""
        if self._running and os.getpid() == self._owner:
            if not self._home.here:
                warn("perftool: a recording can only be saved by the thread that started it", stacklevel=2)
                return
            self._running = False
            failing = errors_become_warnings("the recording could not be saved")
            with self._endings.undisturbed(), failing, unseen_by_modes():
                self._watch.end()
                self._profiler.stop()
            self._endings.release()

    def _end_trial(self) -> None:
        # Hide the warning that the first recording is dropped.
        with warnings_ignored(message=".*Profiler clears events"):
            self._profiler.step()

    @property
    def report(self) -> Report:
        """The report on the newest trace of this rank. Raises PerfToolError if nothing was recorded."""
        if self._report is None:
            if not self.traces:
                raise PerfToolError(self._nothing())
            self._report = analyze_trace(self.traces[-1])
        return self._report

    def _save(self, profiler: torch_profiler.profile) -> None:
        # The recording from the start of the block is kept only if the block never calls step().
        trial = self._steps == 1 and self._before > 0
        # If no step followed the skipped steps, nothing was recorded.
        if trial or 0 < self._steps <= self._before:
            return
        self.traces.append(save_trace(profiler, new_trace(self._folder), self._watch.facts))
        self._report = None

    def _nothing(self) -> str:
        return (
            f"nothing was recorded: the block called step() {format_times(self._steps)}, but recording starts after "
            f"{self._before}; lower wait or warmup"
        )


def analyze_trace(path: Path) -> Report:
    """Analyse a trace and the logs next to it."""
    from perftool.api import analyze

    return analyze(path)


def show(report: Report, path: Path) -> None:
    """Print ``report`` and the path of its trace."""
    from perftool.reporters.console import make_console
    from perftool.reporters.terminal.answer import print_answer

    console = make_console()
    print_answer(report, console)
    console.print(f"The trace: {path}", soft_wrap=True)


@contextmanager
def errors_become_warnings(what: str) -> Iterator[None]:
    """Turn an error in the block into a warning that begins with ``what``; Ctrl-C stays a KeyboardInterrupt."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a run must not end because of its profiler
        if is_interrupt(error):
            raise KeyboardInterrupt from None
        warn(f"perftool: {what} ({type(error).__name__}: {error})", stacklevel=3)


def _schedule(wait: int, warmup: int, active: int, repeat: int) -> Callable[[int], ProfilerAction]:
    usual = torch_profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat)

    def action(step: int) -> ProfilerAction:
        # Record from the start, because the block may never call step(). Its first call ends this trial recording.
        alone = step == 0 and wait + warmup > 0
        return ProfilerAction.RECORD_AND_SAVE if alone else usual(step)

    return action
