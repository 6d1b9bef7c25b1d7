"""``diff``: what got slower, with a confidence interval."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from perftool.commands.options import CliSettings, OutputFile, format_of
from perftool.commands.output import exit_code, is_file, write_document, written_note
from perftool.commands.session import Session, open_run, project_root
from perftool.errors import PerfToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perftool.model.diff import Comparison, RunSide
    from perftool.model.rule import Rule
    from perftool.readers.discover import Inputs


class Format(str, Enum):
    """How to print the comparison."""

    text = "text"
    json = "json"
    markdown = "markdown"


def diff(
    cli: CliSettings,
    base: Annotated[str, typer.Argument(metavar="BASE", help="Trace, folder of ranks, or saved JSON report.")],
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="The run to judge: a trace, a folder of ranks, or a saved JSON report.")
    ],
    fail_if: Annotated[
        str | None,
        typer.Option(metavar="slower:N%", help="Exit 1 when steps are significantly slower by more than N %."),
    ] = None,
    output_format: Annotated[Format, format_of(Format, "the comparison")] = Format.text,
    output_file: OutputFile = None,
    base_run: Annotated[
        str | None,
        typer.Option("--base-run", metavar="NAME", help="Run to read in the folder BASE, like --run for NEW."),
    ] = None,
) -> None:
    """Compare two runs: step time, breakdown, ops, findings

    The change of the median step has a 95 % bootstrap interval; a change within the noise never fails, and nothing is
    judged with fewer than 5 steps on a side. With several ranks, the one with the longest median step is compared.
    With --fail-if, exit 2 means that an input cannot be read in full, that a rank has fewer than 5 complete steps, or
    that the runs have different ranks.

    Examples:

      habana_perf_tool diff main.json branch.json --output-format markdown
    """
    from perftool.engine.compare.diff import fails, parse_fail_if, unjudged

    session = Session(cli, [new], gate=fail_if is not None)
    found = _found(session, (base, base_run), (new, session.settings.run), output_file)
    session.note([*_ignored_files_note(session), *(text for side in found for text in side.inputs.notes)])
    limit = None if fail_if is None else parse_fail_if(fail_if)
    sides = [side.saved or _analysed(session, side) for side in found]
    result = _compared(sides[0], sides[1], session.choice.rules)
    unseen = "" if limit is None else unjudged(result, limit)
    with exit_code(1 if limit is not None and fails(result, limit) else 0, unseen):
        if is_file(output_file) or not cli.silent:
            write_document(_render(result, output_format), output_file)
        session.note([*session.choice.warnings, *written_note(output_file)])


@dataclass(frozen=True)
class _Side:
    """One side of the comparison: either a ``saved`` report or the ``inputs`` to analyse."""

    path: str
    saved: RunSide | None
    inputs: Inputs


def _compared(base: RunSide, new: RunSide, rules: Sequence[Rule]) -> Comparison:
    """Compare the two sides, with relative paths as their names."""
    from perftool.engine.compare.diff import compare
    from perftool.engine.report.portable import shown_paths

    shown = shown_paths([base.name, new.name], project_root())
    return compare(replace(base, name=shown[base.name]), replace(new, name=shown[new.name]), rules)


def _ignored_files_note(session: Session) -> list[str]:
    """Say which configured files diff ignores, because each side uses the files next to its traces."""
    named = [key for key in ("log", "metrics", "capture") if getattr(session.settings, key)]
    return (
        [f"diff reads two runs, so it ignores these settings, which apply to a single run: {', '.join(named)}"]
        if named
        else []
    )


def _analysed(session: Session, side: _Side) -> RunSide:
    from perftool.engine.compare.diff import side_of

    with open_run(session, side.inputs) as run:
        return side_of(side.path, run, project_root())


def _found(
    session: Session, base: tuple[str, str | None], new: tuple[str, str | None], output_file: str | None
) -> list[_Side]:
    """Find the inputs of both sides, each given as a path and the name of a run.

    Raise PerfToolError if both are stdin, or if ``output_file`` is an input.
    """
    if base[0] == new[0] == "-":
        raise PerfToolError("'-' can be used only once")
    found = [_side(session, path, run) for path, run in (base, new)]
    session.require_apart([output_file], [base[0], new[0], *(file for side in found for file in side.inputs.files)])
    return found


def _side(session: Session, path: str, run: str | None) -> _Side:
    from perftool.engine.compare.saved_report import read_saved
    from perftool.readers.discover import Inputs

    saved = read_saved(path)
    return _Side(path, saved, session.side(path, run) if saved is None else Inputs((), ()))


def _render(result: Comparison, output_format: Format) -> bytes:
    from perftool.reporters.diff import render_diff_json, render_diff_markdown, render_diff_text

    render = {
        Format.text: render_diff_text, Format.json: render_diff_json, Format.markdown: render_diff_markdown,
    }[output_format]  # fmt: skip
    return render(result)
