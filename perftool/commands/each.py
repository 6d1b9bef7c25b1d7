"""Prints one line for each of many unrelated traces: those in a list, or those that appear in a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from perftool.commands.output import is_file, print_document
from perftool.commands.session import Session, open_run
from perftool.errors import InputError, NoInputError, PerfToolError
from perftool.output_file import append_to_file, require_apart

if TYPE_CHECKING:
    from rich.console import Console

    from perftool.engine.ranks.schedule import Schedule
    from perftool.model.report import Report
    from perftool.readers.files.finished import FileState

# The minimum width of the name column, in characters; a longer name widens it.
_NAME_WIDTH = 24


def print_each(traces: Sequence[str], session: Session) -> None:
    """Print one line per trace as soon as the trace has been analysed or has failed to load."""
    from perftool.engine.ranks.schedule import IN_PROCESS

    if not traces:
        raise NoInputError("--each needs traces, but there are none")
    width = max(map(len, traces))
    read = []

    def show(console: Console) -> None:
        for trace in traces:
            if not isinstance(_line(console, trace, trace, width, session, IN_PROCESS), InputError | None):
                read.append(trace)

    print_document(show, session.settings.output_file, session.cli.color.value)
    if not read:
        raise InputError("none of the traces could be read")


def watch(
    folder: str,
    session: Session,
    interval_s: float,
    *,
    schedule: Schedule | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Print a line for each finished trace below ``folder``, until a signal ends the process.

    A trace is finished when two polls, ``interval_s`` apart, find it unchanged. Each trace is read in a separate
    process, so that a crash or an out-of-memory kill costs only its own line. The metrics of each trace are appended to
    the file given with --summary-jsonl, which also shows which traces are already done.
    """
    from perftool.engine.ranks.schedule import Processes
    from perftool.readers.discovery.contents import is_own_output
    from perftool.readers.discovery.names import is_other_name, is_trace_name, other_name_text
    from perftool.readers.files.finished import Watched, files_below
    from perftool.readers.files.picking import is_excluded
    from perftool.readers.metrics.run_lines import read_done
    from perftool.reporters.console import make_console

    _require_watchable(folder, session)
    summaries = session.cli.summary_jsonl
    watched = Watched(read_done(summaries) if summaries else ())
    console = make_console(session.cli.color.value)
    width = _NAME_WIDTH
    said: set[str] = set()
    while True:
        unread: list[str] = []
        found = files_below(folder, lambda name: is_trace_name(name) or is_other_name(name), unread)
        session.note([sentence for sentence in unread if sentence not in said])
        said.update(unread)
        for state in watched.finished(found):
            trace = os.path.join(folder, *state.path.split("/"))
            if is_own_output(trace) or is_excluded(trace, session.settings.exclude):
                continue
            if not is_trace_name(trace):
                session.note([other_name_text(trace)])
                continue
            width = max(width, len(state.path))
            made = _line(console, trace, state.path, width, session, schedule or Processes(1))
            if made and summaries:
                require_apart([summaries], [trace])
                _append(made, state, summaries)
        wait(interval_s)


def _require_watchable(folder: str, session: Session) -> None:
    if not os.path.isdir(folder):
        raise InputError(f"{folder}: not a folder, so there is nothing to watch")
    if is_file(session.settings.output_file):
        raise PerfToolError("--watch prints lines while it runs, so it cannot be combined with --output-file")


def _append(made: Report | InputError, state: FileState, summaries: str) -> None:
    from perftool.reporters.run_lines import render_run_lines, render_unread_line

    now = datetime.now(timezone.utc)
    lines = render_unread_line(state.path, now) if isinstance(made, InputError) else render_run_lines(made, now, state)
    append_to_file(lines, Path(summaries))


def _line(
    console: Console, trace: str, name: str, width: int, session: Session, schedule: Schedule
) -> Report | InputError | None:
    """Print the line of ``trace``. Return its report, the error if it is unreadable, or None if it is not a trace."""
    from perftool.reporters.terminal.each import line_of, line_of_failure

    try:
        found = session.alone(trace)
        if not found.traces:
            return None
        with open_run(session, found, schedule=schedule) as run:
            report = run.report
    except InputError as error:
        why = InputError(str(error).removeprefix(f"{trace}: "))
        console.print(line_of_failure(name, why, width), soft_wrap=True)
        return why
    console.print(line_of(name, report, width), soft_wrap=True)
    return report
