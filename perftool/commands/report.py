"""``report``: the analysis as one HTML file to share."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from perftool.commands.options import NO_VALUE, CliSettings, Paths
from perftool.commands.output import is_file, print_notes, warn_of_secrets, write_document, written_note
from perftool.commands.session import Session, open_run, project_root
from perftool.errors import PerfToolError

if TYPE_CHECKING:
    from perftool.model.pictures import Pictures
    from perftool.model.report import Report
    from perftool.readers.discover import Inputs
    from perftool.readers.text.redaction import Redactor


Static = Annotated[
    bool,
    typer.Option("--static", metavar=NO_VALUE, help="Leave out all scripts: a small file with the same content."),
]


def report(cli: CliSettings, paths: Paths = None, static: Static = False) -> None:
    """Write the analysis as one HTML file

    The file needs no network, works without scripts, can be printed, and follows the reader's light or dark theme.

    Examples:

      habana_perf_tool report traces/ --log console.log --static -o run.html
    """
    session = Session(cli, paths or [])
    target = session.settings.output_file
    inputs = session.inputs(paths or [], [target])
    if not is_file(target) and sys.stdout.isatty():
        raise PerfToolError("report writes an HTML file; name it with -o, such as -o run.html")
    # The warning about leaked secrets appears even with --quiet.
    page, secrets = make_document(session, inputs, static, target, cli.redact)
    write_document(page, target, verbatim=True)
    print_notes(warn_of_secrets(secrets, cli.redact), cli.color)
    session.note([*session.choice.warnings, *written_note(target)])


def make_document(
    session: Session, inputs: Inputs, static: bool, target: str | None, redact: bool = False
) -> tuple[bytes, set[str]]:
    """Render the report on ``inputs`` as one HTML file for ``target``. Also return where the inputs contain secrets,
    which the file shows or leaves out."""
    from perftool.readers.text.redaction import Redactor
    from perftool.reporters.html import render_html

    redactor = Redactor()
    found, pictures = _analysis(session, inputs, redactor, redact)
    clean = redactor.value((found, pictures))
    shown = clean if redact else (found, pictures)
    roots = (project_root(), *session.settings.source_roots)
    page = render_html(*shown, not static, partial(_link_to_source, target=target, roots=roots))
    return page, redactor.left_out


def _link_to_source(file: str, target: str | None, roots: Sequence[Path]) -> str:
    """Link from the report to ``file``, which is relative to the first of ``roots`` that contains it."""
    folder = Path(target).resolve().parent if target and is_file(target) else Path.cwd()
    root = next((root for root in roots if os.path.isfile(root / file)), roots[0])
    try:
        way = Path(os.path.relpath((root / file).resolve(), folder)).as_posix()
    except ValueError:
        # There is no relative path to another drive.
        way = file
    return quote(way.encode("utf-8", "replace"))


def _analysis(session: Session, inputs: Inputs, redactor: Redactor, redact: bool) -> tuple[Report, Pictures]:
    """Return the report without absolute paths, and its charts. ``redactor`` learns the secrets in the inputs."""
    from perftool.engine.drawing.rank_timelines import all_texts
    from perftool.engine.report.portable import make_portable, shown_paths
    from perftool.engine.report.source_places import place_sources
    from perftool.readers.text.nested_json import as_json

    if redact and inputs.parts:
        raise PerfToolError("--redact needs the traces: parts lack the metadata and events that show what is secret")
    with open_run(session, inputs) as run:
        found, pictures = run.report, run.pictures
        settings = {row["key"]: row["value"] for row in run.store.rows("config")}
        redactor.learn(map(as_json, [*run.store.metadata.values(), settings]))
        if redact:
            redactor.learn(all_texts(run))
    portable = make_portable(found, shown_paths([read.path for read in found.inputs], project_root()))
    roots = (project_root(), *session.settings.source_roots)
    return place_sources(portable, roots, shorten=True), pictures
