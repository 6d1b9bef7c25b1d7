"""A line for each of many traces, every one a run of its own: given at once, or as they appear in a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from perftool.commands.options import Color
from perftool.commands.output import is_file, print_document, require_no_input
from perftool.commands.prepare import Prepared
from perftool.commands.progress import progress
from perftool.errors import InputError, NoInputError, PerfToolError
from perftool.output_file import append_to_file

if TYPE_CHECKING:
    from rich.console import Console

    from perftool.engine.ranks.schedule import Schedule
    from perftool.model.report import Report
    from perftool.readers.files.finished import FileState

# The narrowest column for names of which more are to come.
_NAME_WIDTH = 24


def print_each(traces: Sequence[str], prepared: Prepared, color: Color, quiet: bool) -> None:
    """One line for each of ``traces``, as soon as it is known; one that cannot be read is a line too."""
    from perftool.engine.ranks.schedule import IN_PROCESS

    if not traces:
        raise NoInputError("--each needs traces, and there is none")
    width = max(map(len, traces))
    read = []

    def show(console: Console) -> None:
        for trace in traces:
            if _line(console, trace, trace, width, prepared, quiet, IN_PROCESS):
                read.append(trace)

    print_document(show, prepared.settings.output_file, color.value)
    if not read:
        raise InputError("none of the traces could be read")


def watch(
    folder: str,
    prepared: Prepared,
    color: Color,
    quiet: bool,
    summaries: str | None,
    interval_s: float,
    *,
    schedule: Schedule | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """A line for each trace below ``folder`` once it is finished, until the process is told to end.

    It is finished when two looks, ``interval_s`` apart, find it the same. Each is read in a process of its own, so that
    one that breaks the program, or takes too much memory, costs its line only. ``summaries`` is a summary file, which
    gets the numbers of each, and tells what was done before this process began.
    """
    from perftool.engine.ranks.schedule import Processes
    from perftool.readers.files.discover import TRACE_SUFFIXES, is_excluded, is_our_own
    from perftool.readers.files.finished import Watched, files_below
    from perftool.readers.metrics.run_lines import read_done
    from perftool.reporters.console import make_console

    _require_watchable(folder, prepared)
    watched = Watched(read_done(summaries) if summaries else ())
    console = make_console(color.value)
    width = _NAME_WIDTH
    while True:
        for state in watched.finished(files_below(folder, TRACE_SUFFIXES)):
            trace = os.path.join(folder, *state.path.split("/"))
            if is_our_own(trace) or is_excluded(trace, prepared.settings.exclude):
                continue
            width = max(width, len(state.path))
            report = _line(console, trace, state.path, width, prepared, quiet, schedule or Processes(1))
            if report and summaries:
                require_no_input([summaries], [trace])
                _append(report, state, summaries)
        wait(interval_s)


def _require_watchable(folder: str, prepared: Prepared) -> None:
    if not os.path.isdir(folder):
        raise InputError(f"{folder}: is no folder, so there is nothing to watch")
    if is_file(prepared.settings.output_file):
        raise PerfToolError("--watch prints lines as they come: leave out --output-file")


def _append(report: Report, state: FileState, summaries: str) -> None:
    from perftool.reporters.run_lines import render_run_lines

    append_to_file(render_run_lines(report, datetime.now(timezone.utc), state), Path(summaries))


def _line(
    console: Console, trace: str, name: str, width: int, prepared: Prepared, quiet: bool, schedule: Schedule
) -> Report | None:
    """Print the line of ``trace``; returns what it says, None for one that cannot be read or is no trace."""
    from perftool.engine.analysis import analysed
    from perftool.readers.files.discover import find_inputs
    from perftool.reporters.terminal.each import line_of, line_of_failure

    try:
        found = find_inputs([trace])
        if not found.traces:
            return None
        with progress(quiet) as shown, analysed(found, prepared.rules, schedule, shown) as run:
            report = run.report
    except InputError as error:
        why = InputError(str(error).removeprefix(f"{trace}: "))
        console.print(line_of_failure(name, why, width), soft_wrap=True)
        return None
    console.print(line_of(name, report, width), soft_wrap=True)
    return report
