"""``report``: the analysis as one HTML file to share."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from perftool.commands.options import NO_VALUE, CliSettings, Paths
from perftool.commands.output import is_file, print_notes, said, warn_of_secrets, write_document
from perftool.commands.session import Session, open_run, project_root
from perftool.errors import PerfToolError

if TYPE_CHECKING:
    from perftool.model.pictures import Pictures
    from perftool.model.report import Report
    from perftool.readers.discover import Inputs
    from perftool.readers.text.secrets import Secret


Static = Annotated[
    bool,
    typer.Option("--static", metavar=NO_VALUE, help="Leave out all scripts: a small file with the same content."),
]


def report(cli: CliSettings, paths: Paths = None, static: Static = False) -> None:
    """Write the analysis as one HTML file

    The file needs no network, works without scripts, prints, and follows the light or dark theme of its reader.

    Examples:

      habana_perf_tool report traces/ --log console.log --static -o run.html
    """
    session = Session(cli, paths or [])
    target = session.settings.output_file
    inputs = session.inputs(paths or [], [target])
    if not is_file(target) and sys.stdout.isatty():
        raise PerfToolError("a report is an HTML file: say where it goes with -o run.html")
    # The warning about leaked secrets appears even with --quiet.
    print_notes(_write(*make_document(session, inputs, static, target), cli.redact, target), cli.color)
    session.note([*session.choice.warnings, *said(target)])


def _write(document: bytes, secrets: Sequence[Secret], redact: bool, target: str | None) -> list[str]:
    """Write ``document``, with ``redact`` without its ``secrets``; returns warnings."""
    from perftool.readers.text.secrets import without

    texts = {secret.text for secret in secrets}
    write_document(b"".join(without([document], texts)) if redact else document, target, verbatim=True)
    return warn_of_secrets({secret.name for secret in secrets}, redact)


def make_document(session: Session, inputs: Inputs, static: bool, target: str | None) -> tuple[bytes, list[Secret]]:
    """The report on ``inputs`` as one HTML file for ``target``, and the input secrets that it contains."""
    from perftool.readers.text.secrets import secrets_in, those_in
    from perftool.reporters.html import render_html

    found, pictures, metadata = _analysis(session, inputs)
    roots = (project_root(), *session.settings.source_roots)
    page = render_html(found, pictures, not static, partial(_link_to_source, target=target, roots=roots))
    secrets = secrets_in(metadata)
    left = those_in(page, {secret.text for secret in secrets})
    return page, [secret for secret in secrets if secret.text in left]


def _link_to_source(file: str, target: str | None, roots: Sequence[Path]) -> str:
    """The address of ``file``, which is below one of ``roots``, relative to the folder of the report."""
    folder = Path(target).resolve().parent if target and is_file(target) else Path.cwd()
    root = next((root for root in roots if os.path.isfile(root / file)), roots[0])
    try:
        way = Path(os.path.relpath((root / file).resolve(), folder)).as_posix()
    except ValueError:
        # There is no relative path to another drive.
        way = file
    return quote(way.encode("utf-8", "replace"))


def _analysis(session: Session, inputs: Inputs) -> tuple[Report, Pictures, dict[str, Any]]:
    """The report without absolute paths, its pictures, and the metadata of its inputs."""
    from perftool.engine.report.portable import make_portable, shown_paths
    from perftool.engine.report.source_places import place_sources

    with open_run(session, inputs) as run:
        found, pictures = run.report, run.pictures
        settings = {row["key"]: row["value"] for row in run.store.rows("config")}
        metadata = {"trace": {str(rank): top for rank, top in run.store.metadata.items()}, "configuration": settings}
    portable = make_portable(found, shown_paths([read.path for read in found.inputs], project_root()))
    roots = (project_root(), *session.settings.source_roots)
    return place_sources(portable, roots, shorten=True), pictures, metadata
