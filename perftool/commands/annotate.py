"""``annotate``: draws the findings into a trace, for Perfetto."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perftool.commands.options import NO_VALUE, CliSettings
from perftool.commands.output import is_file, print_notes, warn_of_secrets, write_blocks
from perftool.commands.session import Session, open_run
from perftool.errors import PerfToolError
from perftool.output_file import gzipped

if TYPE_CHECKING:
    from perftool.engine.analysis import Run
    from perftool.model.annotations import Annotations
    from perftool.model.inputs import InputFile

_SUFFIXES = (".json", ".json.gz")
# The longest file name has 255 bytes on most systems, and 143 on some encrypted ones.
_LONGEST_STEM = 120


CopyFile = Annotated[
    str | None,
    typer.Option(
        "--output-file", "-o", metavar="FILE", rich_help_panel="Output",
        help="Write the annotated trace here: .json, .json.gz, or '-' for stdout.",
    ),
]  # fmt: skip
Open = Annotated[
    bool,
    typer.Option(
        "--open",
        metavar=NO_VALUE,
        help="Show the annotated trace in the Perfetto UI, in a browser.",
        rich_help_panel="Output",
    ),
]


def annotate(
    cli: CliSettings,
    traces: Annotated[
        list[str], typer.Argument(metavar="PATHS", help="The trace of one rank, or the traces of several.")
    ],
    output_file: CopyFile = None,
    show: Open = False,
) -> None:
    """Write a copy of a trace with the findings drawn into it, for Perfetto

    The copy contains every event of the trace. A process at the top adds a track for each rule with findings, the
    idle time of the device by cause, and counters (device busy, queue depth, memory). Click on a finding for its
    evidence and its fix. Several ranks share one timeline and one clock. The Perfetto UI runs in the browser; the
    trace is not uploaded.

    Examples:

      habana_perf_tool annotate run.pt.trace.json -o annotated.json.gz

      habana_perf_tool annotate traces/ -o ranks.json.gz

      habana_perf_tool annotate run.pt.trace.json --open
    """
    for trace in traces:
        _require_target(trace, output_file, show)
    session = Session(cli, traces)
    with tempfile.TemporaryDirectory(prefix="perftool-") as folder:
        target = output_file or str(Path(folder) / f"{_stem(traces[0])}.annotated.json.gz")
        drawn, warnings, notes = _write(traces, session, target)
        # The warning about leaked secrets appears even with --quiet.
        print_notes(warnings, cli.color)
        session.note([*session.choice.warnings, *_written_notes(output_file, drawn, notes)])
        if show:
            from perftool.commands.serve import serve_once

            serve_once(Path(target), drawn)


def _require_target(trace: str, output_file: str | None, show: bool) -> None:
    from perftool.readers.files.stream import reads_once

    if reads_once(trace):
        raise PerfToolError("annotate reads the trace twice, so it cannot come from stdin or a pipe; give a file")
    if output_file is None and not show:
        raise PerfToolError("annotate needs -o FILE for the annotated trace, or --open to show it")
    if output_file == "-" and show:
        raise PerfToolError("--open needs a file: it cannot show what goes to stdout")
    if is_file(output_file) and not str(output_file).endswith(_SUFFIXES):
        raise PerfToolError(f"{output_file}: the name must end in {' or '.join(_SUFFIXES)}")


def _stem(trace: str) -> str:
    """Return the name of ``trace`` without its endings, shortened so that an ending can be appended."""
    name = Path(trace).name
    for suffix in (".gz", ".zst", ".json"):
        name = name.removesuffix(suffix)
    return os.fsencode(name)[:_LONGEST_STEM].decode(errors="ignore")


def _write(traces: list[str], session: Session, target: str) -> tuple[Annotations, list[str], list[str]]:
    """Analyse ``traces`` and write them with annotations. Return the annotations to show first, warnings and notes."""
    from perftool.engine.drawing.rank_timelines import rank_metadata
    from perftool.readers.files.remote import local_copy
    from perftool.readers.text.redaction import Redactor

    inputs, redact = session.inputs(traces, [target]), session.cli.redact
    if not inputs.traces:
        raise PerfToolError(f"{traces[0]}: no trace to annotate")
    one, redactor = len(inputs.traces) == 1, Redactor()
    with (
        open_run(session, inputs) as run, tempfile.TemporaryDirectory(prefix="perftool-") as spool,
        local_copy(inputs.traces[0]) if one else nullcontext("") as place,
    ):  # fmt: skip
        drawn, copied, notes = _one_rank(run, place, Path(spool), redact) if one else _several_ranks(run)
        # The timeline of several ranks contains no metadata, but its events may repeat a secret from the metadata.
        found = redactor.learn(rank_metadata(run)) if one or redact else set()
        if redact:
            # Read everything before writing, because a secret found late may also occur earlier.
            redactor.learn(copied())
        blocks = map(redactor.json, copied()) if redact else copied()
        write_blocks(gzipped(blocks) if target.endswith(".gz") else blocks, target)
    return drawn, warn_of_secrets(redactor.left_out if redact else found, redact), notes


def _one_rank(
    run: Run, place: str, spool: Path, redact: bool
) -> tuple[Annotations, Callable[[], Iterator[bytes]], list[str]]:
    from perftool.engine.drawing.annotate import annotate as draw
    from perftool.readers.trace.splice import splice
    from perftool.reporters.perfetto import render_events

    read = _readable(run.store.inputs, run.store.unreadable, place)
    drawn = draw(run.rank_store(read.rank or 0), run.report, read.rank or 0)

    def copied() -> Iterator[bytes]:
        with tempfile.TemporaryDirectory(dir=spool) as folder:
            yield from splice(read, render_events(drawn), Path(folder), verbatim=not redact)

    return drawn, copied, []


def _several_ranks(run: Run) -> tuple[Annotations, Callable[[], Iterator[bytes]], list[str]]:
    from perftool.engine.drawing.rank_timelines import clock_offsets, first_view, rank_timelines
    from perftool.reporters.perfetto import render_ranks

    offsets = clock_offsets(run)
    if unknown := [rank for rank, offset_ns in offsets.items() if offset_ns is None]:
        ranks = ", ".join(map(str, unknown))
        notes = [f"Collectives do not link the clocks of ranks {ranks}, so their times are as recorded."]
    else:
        notes = ["Times are on the clock of the lowest rank; clock offsets are estimated from the ends of collectives."]
    return first_view(run), lambda: render_ranks(rank_timelines(run)), notes


def _readable(read: Sequence[InputFile], unreadable: Sequence[InputFile], place: str) -> InputFile:
    """Return the only trace in ``read``, with the path of its local copy ``place`` if it was a URL.

    Raise PerfToolError if it is unreadable or not a JSON trace.
    """
    from perftool.readers.files.remote import is_url
    from perftool.readers.nodes import is_bundle
    from perftool.readers.trace.memory_snapshot import is_snapshot_file
    from perftool.readers.trace.profiler_csv import is_profiler_csv

    if not read:
        raise PerfToolError(next(issue.message for file in unreadable for issue in file.issues))
    path = place if is_url(read[0].path) else read[0].path
    if is_profiler_csv(path) or is_bundle(path) or is_snapshot_file(path):
        kind = "an archive" if is_bundle(path) else "a CSV file" if is_profiler_csv(path) else "a memory snapshot"
        raise PerfToolError(f"{read[0].path}: {kind}, but annotate needs a JSON trace")
    return replace(read[0], path=path)


def _written_notes(output_file: str | None, drawn: Annotations, notes: Sequence[str]) -> list[str]:
    if output_file is None:
        return list(notes)
    findings = "1 finding" if drawn.findings == 1 else f"{drawn.findings} findings"
    lines = [f"Wrote {'the trace' if output_file == '-' else output_file} with {findings} drawn in", *notes]
    lines.append("Open it at https://ui.perfetto.dev, or with --open; the findings are at the top, under perftool.")
    if drawn.select:
        lines.append(f"To see the first finding there: Ctrl+Shift+P, 'Pan to timestamp', {drawn.select.ts_ns}")
    return lines
