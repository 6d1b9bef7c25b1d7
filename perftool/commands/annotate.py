"""``annotate``: the trace with what was found in it, for Perfetto."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perftool.commands import options
from perftool.commands.options import Given
from perftool.commands.output import is_file, require_no_input, warn_of_secrets, write_blocks
from perftool.commands.prepare import Prepared, note, prepare
from perftool.commands.progress import progress
from perftool.errors import PerfToolError
from perftool.output_file import gzipped

if TYPE_CHECKING:
    from perftool.model.annotations import Annotations
    from perftool.model.inputs import InputFile

_SUFFIXES = (".json", ".json.gz")


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
        "--open", metavar=options.NO_VALUE, help="Show it in the Perfetto UI, in a browser.", rich_help_panel="Output"
    ),
]


def annotate(
    traces: Annotated[list[str], typer.Argument(metavar="TRACE", help="The trace file of one rank.")],
    output_file: CopyFile = None,
    show: Open = False,
    log: options.Logs = None,
    metrics: options.Metrics = None,
    select: options.Select = None,
    ignore: options.Ignore = None,
    extend_select: options.ExtendSelect = None,
    extend_ignore: options.ExtendIgnore = None,
    preview: options.Preview = None,
    rules: options.RulePacks = None,
    config: options.Config = None,
    isolated: options.Isolated = False,
    trust_config: options.TrustConfig = False,
    redact: options.Redact = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a copy of a trace with the findings drawn into it, for Perfetto

    The copy has every event of the trace, and a process of ours above them: a track for each rule with findings,
    the idle time of the device by cause, and counters (device busy, queue depth, memory). Click on a finding for its
    evidence and its fix. The Perfetto UI runs in the browser; the trace is not uploaded.

    Examples:

      habana_perf_tool annotate run.pt.trace.json -o annotated.json.gz

      habana_perf_tool annotate run.pt.trace.json --open
    """
    trace = _only(traces)
    texts = [*(log or ()), *(metrics or ())]
    given = Given(select, ignore, extend_select, extend_ignore, preview, rules)
    _require_target(trace, output_file, show)
    prepared = prepare([trace], config or [], isolated, given, trust_config)
    with tempfile.TemporaryDirectory(prefix="perftool-") as folder:
        target = output_file or str(Path(folder) / f"{_stem(trace)}.annotated.json.gz")
        drawn, warnings = _write(trace, texts, prepared, target, redact, quiet)
        # A secret that leaves is told also to those who want to hear nothing else.
        note(warnings)
        if not quiet:
            note([*prepared.warnings, *_what_was_written(output_file, drawn)])
        if show:
            from perftool.commands.serve import serve_once

            serve_once(Path(target), drawn)


def _only(traces: list[str]) -> str:
    if len(traces) > 1:
        raise PerfToolError(_not_one(len(traces)))
    return traces[0]


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
    name = Path(trace).name
    for suffix in (".gz", ".zst", ".json"):
        name = name.removesuffix(suffix)
    return name


def _write(
    trace: str, texts: list[str], prepared: Prepared, target: str, redact: bool, quiet: bool
) -> tuple[Annotations, list[str]]:
    """Analyse ``trace`` and write its annotated copy; returns what was drawn, and what to warn of."""
    from perftool.engine.analysis import analysed
    from perftool.engine.drawing.annotate import annotate as draw
    from perftool.readers.files.discover import find_inputs
    from perftool.readers.text.secrets import secrets_in, without
    from perftool.readers.trace.splice import splice
    from perftool.reporters.perfetto import render_events

    inputs = find_inputs([trace], texts)
    require_no_input([target], inputs.files)
    if len(inputs.traces) != 1:
        raise PerfToolError(f"{trace}: {_not_one(len(inputs.traces))}")
    with (
        progress(quiet) as show,
        analysed(inputs, prepared.rules, progress=show) as run,
        tempfile.TemporaryDirectory(prefix="perftool-") as spool,
    ):
        read = _readable(run.store.inputs, run.store.unreadable)
        drawn = draw(run.rank_store(read.rank or 0), run.report, read.rank or 0)
        if show:
            show("writing", 0)
        secrets = secrets_in(run.store.metadata.get(read.rank or 0, {}))
        copied = splice(read, render_events(drawn), Path(spool))
        blocks = without(copied, secrets.values()) if redact else copied
        write_blocks(gzipped(blocks) if target.endswith(".gz") else blocks, target)
    return drawn, warn_of_secrets(secrets, redact)


def _not_one(traces: int) -> str:
    if traces:
        return f"{traces} traces are too many: annotate takes one, so give each rank's file by itself"
    return "holds no trace to draw into"


def _readable(read: Sequence[InputFile], unreadable: Sequence[InputFile]) -> InputFile:
    from perftool.store.load_csv import is_profiler_csv

    if not read:
        raise PerfToolError(next(issue.message for file in unreadable for issue in file.issues))
    if is_profiler_csv(read[0].path):
        raise PerfToolError(f"{read[0].path}: is a CSV file, which has no events to draw beside")
    return read[0]


def _what_was_written(output_file: str | None, drawn: Annotations) -> list[str]:
    if output_file is None:
        return []
    findings = "1 finding" if drawn.findings == 1 else f"{drawn.findings} findings"
    lines = [f"Wrote {'the trace' if output_file == '-' else output_file} with {findings} drawn in"]
    lines.append("Open it at https://ui.perfetto.dev, or with --open; the track group perftool comes first.")
    if drawn.select:
        lines.append(f"To see the first finding there: Ctrl+Shift+P, 'Pan to timestamp', {drawn.select.ts_ns}")
    return lines
