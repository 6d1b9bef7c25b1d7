"""``merge``: the report of a run from the parts of its ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perftool.commands.analyze import show_report
from perftool.commands.options import CliSettings
from perftool.commands.session import Session
from perftool.errors import PerfToolError

Parts = Annotated[list[str], typer.Argument(metavar="PARTS...", help="Parts (*.part), folders of them, or globs.")]


def merge(cli: CliSettings, parts: Parts) -> None:
    """Merge per-rank parts into one report

    Parts come from analyze TRACE --part FILE, on any machine. The report is identical to the report on all traces,
    whatever the order and grouping of the parts. report, lint, diff and query also read parts.

    Examples:

      habana_perf_tool analyze rank3.json.gz --part rank3.part

      habana_perf_tool merge parts/ --output-format json -o run.json
    """
    from perftool.readers.discover import find_inputs

    session = Session(cli, parts)
    unread: list[str] = []
    named = [part for path in parts for part in _parts_below(path, unread)]
    session.note(unread)
    found = find_inputs(named, companions=False)
    if others := [*found.traces, *found.texts]:
        raise PerfToolError(f"{others[0]}: not a part; create one with analyze {others[0]} --part FILE.part")
    session.require_apart([session.settings.output_file, cli.part, cli.summary_jsonl], found.files)
    show_report(session, found)


def _parts_below(path: str, unread: list[str]) -> list[str]:
    """List the parts in the folder ``path``, ignoring traces; ``path`` itself if it is a file or contains no part."""
    from perftool.readers.discovery.folder import parts_below

    return (parts_below(Path(path), unread) if Path(path).is_dir() else []) or [path]
