"""``whatif``: the step after a fix, predicted by replaying the recorded steps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from perftool.commands import options
from perftool.commands.options import Color, Given
from perftool.commands.output import print_document, require_no_input, said, write_document
from perftool.commands.prepare import Prepared, note, prepare
from perftool.commands.progress import progress

if TYPE_CHECKING:
    from perftool.model.what_if import WhatIf


@dataclass(frozen=True)
class Asked:
    """The changes as the command line has them, and the rank."""

    fixes: tuple[str, ...]
    scale: tuple[str, ...]
    without: tuple[str, ...]
    rank: int | None


class Format(str, Enum):
    """How to print the prediction."""

    text = "text"
    json = "json"


Fixes = Annotated[
    list[str] | None,
    typer.Option(
        "--fix", metavar="RULE", help="Make the fix of this rule; repeatable.", autocompletion=options.complete_code
    ),
]
Scale = Annotated[
    list[str] | None,
    typer.Option(metavar="KIND:NAME=FACTOR", help="Let work take this share of its time; repeatable."),
]
Without = Annotated[
    list[str] | None,
    typer.Option(metavar="KIND:NAME", help="Leave work out, with all that it launches; repeatable."),
]
OneRank = Annotated[int | None, typer.Option(metavar="N", help="Replay this rank; the default is the slowest.")]


def whatif(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A trace, or a folder with those of a few ranks.")],
    fix: Fixes = None,
    scale: Scale = None,
    without: Without = None,
    rank: OneRank = None,
    output_format: Annotated[Format, options.format_of(Format, "the prediction")] = Format.text,
    output_file: options.OutputFile = None,
    log: options.Logs = None,
    rules: options.RulePacks = None,
    config: options.Config = None,
    isolated: options.Isolated = False,
    trust_config: options.TrustConfig = False,
    color: options.ColorOption = Color.auto,
    quiet: options.Quiet = False,
) -> None:
    """Predict a step after fixes, by replaying it

    The recorded steps are replayed as a graph of dependencies, unchanged and with the changes. Kinds of work are op,
    runtime, kernel, memcpy, memset and collective; names may hold * and ?. Without any change it says who bounds the
    step as it is. Exit code 1 when these steps cannot be replayed well enough to predict anything; it says why.

    Examples:

      habana_perf_tool whatif run.json --fix GAP102 --fix SYN101

      habana_perf_tool whatif run.json --scale 'kernel:*gemm*=0.5'

      habana_perf_tool whatif run.json --without op:aten::item
    """
    from perftool.reporters.what_if import print_what_if, render_what_if_json

    given = Given(rule_packs=rules)
    prepared = prepare([trace], config or [], isolated, given, trust_config)
    asked = Asked(tuple(fix or ()), tuple(scale or ()), tuple(without or ()), rank)
    result = _predicted(trace, log or [], prepared, asked, output_file, quiet)
    if output_format is Format.json:
        write_document(render_what_if_json(result), output_file)
    else:
        print_document(lambda console: print_what_if(result, console), output_file, color.value)
    note([] if result.why_not is None else [f"Nothing is predicted: {result.why_not}"])
    note([] if quiet else said(output_file))
    if result.why_not is not None:
        raise typer.Exit(1)


def _predicted(
    trace: str, logs: list[str], prepared: Prepared, asked: Asked, output_file: str | None, quiet: bool
) -> WhatIf:
    from perftool.engine.analysis import analysed
    from perftool.engine.what_if import parse_scale, parse_without, rules_named, what_if
    from perftool.readers.files.discover import find_inputs

    # A fix may be asked for whether or not its rule is selected.
    fixes = rules_named(asked.fixes, prepared.known)
    tasks = [*map(parse_scale, asked.scale), *map(parse_without, asked.without)]
    inputs = find_inputs([trace], logs)
    require_no_input([output_file], inputs.files)
    with progress(quiet) as show, analysed(inputs, progress=show) as run:
        return what_if(run.whole, fixes, tasks, asked.rank)
