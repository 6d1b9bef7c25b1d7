"""``whatif``: predicts the step time after a fix by replaying the recorded steps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from perftool.commands.options import CliSettings, OutputFile, complete_code, format_of
from perftool.commands.output import print_document, print_notes, write_document, written_note
from perftool.commands.session import Session, open_run

if TYPE_CHECKING:
    from perftool.model.what_if import WhatIf


@dataclass(frozen=True)
class Request:
    """The changes and the rank given on the command line."""

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
    typer.Option("--fix", metavar="RULE", help="Apply the fix of this rule; repeatable.", autocompletion=complete_code),
]
Scale = Annotated[
    list[str] | None,
    typer.Option(metavar="KIND:NAME=FACTOR", help="Multiply the time of this work by a factor; repeatable."),
]
Without = Annotated[
    list[str] | None,
    typer.Option(metavar="KIND:NAME", help="Leave out this work and everything it launches; repeatable."),
]
OneRank = Annotated[int | None, typer.Option(metavar="N", help="Replay this rank; the default is the slowest.")]


def whatif(
    cli: CliSettings,
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A trace, or a folder with the traces of a few ranks.")],
    fix: Fixes = None,
    scale: Scale = None,
    without: Without = None,
    rank: OneRank = None,
    output_format: Annotated[Format, format_of(Format, "the prediction")] = Format.text,
    output_file: OutputFile = None,
) -> None:
    """Predict the step time with fixes applied

    The recorded steps are replayed as a graph of dependencies, unchanged and with the changes. Kinds of work are op,
    runtime, kernel, memcpy, memset and collective; names may contain * and ?. Without changes, the command shows what
    bounds the recorded step. For a fix that cannot be replayed, it prints an upper bound on the gain. The exit code is
    1, with the reason on stderr, when the steps cannot be replayed well enough and there is no bound either.

    Examples:

      habana_perf_tool whatif run.json --fix GAP102 --fix SYN101

      habana_perf_tool whatif run.json --scale 'kernel:*gemm*=0.5'

      habana_perf_tool whatif run.json --without op:aten::item
    """
    from perftool.reporters.what_if import print_what_if, render_what_if_json

    session = Session(cli, [trace])
    request = Request(tuple(fix or ()), tuple(scale or ()), tuple(without or ()), rank)
    result = _predicted(session, trace, request, output_file)
    if output_format is Format.json:
        write_document(render_what_if_json(result), output_file)
    else:
        print_document(lambda console: print_what_if(result, console), output_file, cli.color.value)
    print_notes([] if result.why_not is None else [f"Nothing is predicted: {result.why_not}"], cli.color)
    session.note(written_note(output_file))
    if result.why_not is not None and not result.bounds:
        raise typer.Exit(1)


def _predicted(session: Session, trace: str, request: Request, output_file: str | None) -> WhatIf:
    from perftool.engine.what_if import parse_scale, parse_without, rules_named, what_if

    # --fix also accepts rules that are not selected.
    fixes = rules_named(request.fixes, session.choice.known)
    tasks = [*map(parse_scale, request.scale), *map(parse_without, request.without)]
    with open_run(session, session.inputs([trace], [output_file]), rules=()) as run:
        return what_if(run.whole, fixes, tasks, request.rank)
