"""``merge``: the report of a run from the parts of its ranks, which were analysed where their traces lie."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perftool.commands import analyze, options
from perftool.commands.options import Color, Given, Ranks
from perftool.commands.prepare import prepare
from perftool.errors import PerfToolError


def merge(
    parts: Annotated[list[str], typer.Argument(metavar="PARTS...", help="Parts (*.part), folders of them, or globs.")],
    part: Annotated[
        str | None,
        typer.Option("--part", metavar="FILE", help="Write one part that holds them all to FILE, and no report."),
    ] = None,
    output_format: analyze.FormatOption = None,
    output_file: options.OutputFile = None,
    min_severity: options.MinSeverity = None,
    full: options.Full = False,
    top: analyze.Top = None,
    summary_jsonl: analyze.SummaryLines = None,
    select: options.Select = None,
    ignore: options.Ignore = None,
    preview: options.Preview = None,
    rules: options.RulePacks = None,
    config: options.Config = None,
    isolated: options.Isolated = False,
    trust_config: options.TrustConfig = False,
    color: options.ColorOption = Color.auto,
    quiet: options.Quiet = False,
) -> None:
    """Join analysed ranks into the report of their run

    Parts come from analyze TRACE --part FILE, on any machine. Their report is that of all traces together, in
    whatever order and groups they are merged. report, lint, diff and query take parts as well.

    Examples:

      habana_perf_tool analyze rank3.json.gz --part rank3.part

      habana_perf_tool merge parts/ --output-format json -o run.json
    """
    from perftool.readers.files.discover import find_inputs

    given = Given(select, ignore, preview=preview, rule_packs=rules, output_file=output_file,
                  output_format=output_format and output_format.value, min_severity=min_severity)  # fmt: skip
    named = [part for path in parts for part in _parts_below(path)]
    found = find_inputs(named, companions=False)
    if others := [*found.traces, *found.texts]:
        raise PerfToolError(f"{others[0]}: is no part; make one with analyze {others[0]} --part FILE.part")
    prepared = prepare(parts, config or [], isolated, given, trust_config)
    view = analyze.View(full, top, part=part, summaries=summary_jsonl)
    analyze.run_on(found, prepared, color, quiet, view, Ranks())


def _parts_below(path: str) -> list[str]:
    """The parts in the folder ``path``, beside which traces may lie; ``path`` itself when it is none, or has none."""
    from perftool.readers.files.discover import PART_SUFFIX

    below = sorted(str(part) for part in Path(path).rglob(f"*{PART_SUFFIX}")) if Path(path).is_dir() else []
    return below or [path]
