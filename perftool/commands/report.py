"""``report``: the analysis as one HTML file to send to a colleague."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from perftool.commands import options
from perftool.commands.options import Color, Given, Ranks
from perftool.commands.output import is_file, require_no_input, said, warn_of_secrets, write_document
from perftool.commands.prepare import Prepared, note, prepare, project_root
from perftool.commands.progress import progress
from perftool.errors import PerfToolError

if TYPE_CHECKING:
    from perftool.model.pictures import Pictures
    from perftool.model.report import Report


def report(
    paths: options.Paths = None,
    log: options.Logs = None,
    metrics: options.Metrics = None,
    output_file: options.OutputFile = None,
    static: Annotated[
        bool,
        typer.Option(
            "--static", metavar=options.NO_VALUE, help="Leave out all scripts: a small file with the same content."
        ),
    ] = False,
    select: options.Select = None,
    ignore: options.Ignore = None,
    extend_select: options.ExtendSelect = None,
    extend_ignore: options.ExtendIgnore = None,
    preview: options.Preview = None,
    rules: options.RulePacks = None,
    exclude: options.Exclude = None,
    config: options.Config = None,
    isolated: options.Isolated = False,
    trust_config: options.TrustConfig = False,
    jobs: options.Jobs = None,
    scheduler: options.Scheduler = None,
    as_one_run: options.AsOneRun = False,
    redact: options.Redact = False,
    color: options.ColorOption = Color.auto,
    quiet: options.Quiet = False,
) -> None:
    """Write the analysis as one HTML file

    The file needs no network, works without scripts, prints, and follows the light or dark theme of its reader.

    Examples:

      habana_perf_tool report run.pt.trace.json -o run.html

      habana_perf_tool report traces/ --log console.log --static -o run.html
    """
    texts = [*(log or ()), *(metrics or ())]
    given = Given(select, ignore, extend_select, extend_ignore, preview, rules, exclude, output_file=output_file)
    if not paths and not texts:
        raise PerfToolError("report needs PATHS: files, folders, globs, or '-'")
    prepared = prepare(paths or texts, config or [], isolated, given, trust_config)
    target = prepared.settings.output_file
    if not is_file(target) and sys.stdout.isatty():
        raise PerfToolError("a report is an HTML file: say where it goes with -o run.html")
    made = make_document(paths or [], texts, prepared, static, quiet, Ranks(jobs, scheduler, as_one_run))
    note(_write(*made, redact, target), color)
    if not quiet:
        note([*prepared.warnings, *said(target)], color)


def _write(document: bytes, secrets: Mapping[str, str], redact: bool, target: str | None) -> list[str]:
    """Write ``document``, with ``redact`` without the ``secrets`` in it; returns what to warn of."""
    from perftool.readers.text.secrets import without

    write_document(b"".join(without([document], secrets.values())) if redact else document, target)
    return warn_of_secrets(secrets, redact)


def make_document(
    paths: Sequence[str], texts: Sequence[str], prepared: Prepared, static: bool, quiet: bool, ranks: Ranks
) -> tuple[bytes, dict[str, str]]:
    """The report on ``paths`` and ``texts`` as one HTML file, and the secrets of the inputs that are in it."""
    from perftool.readers.text.secrets import secrets_in
    from perftool.reporters.html import render_html

    found, pictures, metadata = _analysis(paths, texts, prepared, quiet, ranks)
    page = render_html(found, pictures, not static, _way_to_sources(prepared.settings.output_file))
    secrets = {name: text for name, text in secrets_in(metadata).items() if text.encode() in page}
    return page, secrets


def _way_to_sources(target: str | None) -> str:
    """From the folder of the report to the root of the project, where its sources are."""
    folder = Path(target).resolve().parent if target and is_file(target) else Path.cwd()
    try:
        way = Path(os.path.relpath(project_root().resolve(), folder)).as_posix()
    except ValueError:
        # Another drive: there is no such way.
        return ""
    return "" if way == "." else f"{quote(way)}/"


def _analysis(
    paths: Sequence[str], texts: Sequence[str], prepared: Prepared, quiet: bool, ranks: Ranks
) -> tuple[Report, Pictures, dict[str, Any]]:
    """The report with no absolute path in it, its pictures, and the metadata of its inputs."""
    from perftool.engine.analysis import analysed
    from perftool.engine.ranks.choice import choose_schedule
    from perftool.engine.report.portable import make_portable, shown_paths
    from perftool.engine.report.source_places import place_sources
    from perftool.readers.files.discover import find_inputs

    inputs = find_inputs(paths, texts, prepared.settings.exclude, as_one_run=ranks.as_one_run)
    require_no_input([prepared.settings.output_file], inputs.files)
    schedule = choose_schedule(inputs.traces, ranks.jobs, ranks.scheduler)
    with progress(quiet) as show, analysed(inputs, prepared.rules, schedule, show) as run:
        found, pictures = run.report, run.pictures
        settings = {row["key"]: row["value"] for row in run.store.rows("config")}
        metadata = {"trace": {str(rank): top for rank, top in run.store.metadata.items()}, "configuration": settings}
    portable = make_portable(found, shown_paths([read.path for read in found.inputs], project_root()))
    return place_sources(portable, (project_root(), *prepared.settings.source_roots), shorten=True), pictures, metadata
