"""``diff``: what got slower, with confidence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from perftool.commands import options
from perftool.commands.options import Given
from perftool.commands.output import is_file, require_no_input, said, write_document
from perftool.commands.prepare import note, prepare, project_root
from perftool.commands.progress import progress
from perftool.errors import PerfToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perftool.model.diff import Comparison, RunSide
    from perftool.model.rule import Rule
    from perftool.readers.files.discover import Inputs


class Format(str, Enum):
    """How to print the comparison."""

    text = "text"
    json = "json"
    markdown = "markdown"


def diff(
    base: Annotated[str, typer.Argument(metavar="BASE", help="Trace, folder of ranks, or saved JSON report.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The same, of the run to judge.")],
    fail_if: Annotated[
        str | None,
        typer.Option(metavar="slower:N%", help="Exit 1 when steps are slower by more, beyond doubt."),
    ] = None,
    output_format: Annotated[Format, options.format_of(Format, "the comparison")] = Format.text,
    output_file: options.OutputFile = None,
    select: options.Select = None,
    ignore: options.Ignore = None,
    rules: options.RulePacks = None,
    config: options.Config = None,
    isolated: options.Isolated = False,
    trust_config: options.TrustConfig = False,
    jobs: options.Jobs = None,
    scheduler: options.Scheduler = None,
    as_one_run: options.AsOneRun = False,
    quiet: options.Quiet = False,
    silent: options.Silent = False,
) -> None:
    """Compare two runs: step time, breakdown, ops, findings

    The change of the median step has a 95 % bootstrap interval; a change inside the noise fails nothing, and with
    fewer than 5 steps on a side nothing is judged.

    Examples:

      habana_perf_tool diff main/ branch/ --fail-if slower:5%

      habana_perf_tool diff main.json branch.json --output-format markdown
    """
    from perftool.engine.compare.diff import fails, load_side, parse_fail_if

    found = _found(base, new, as_one_run, output_file)
    limit = None if fail_if is None else parse_fail_if(fail_if)
    given = Given(select=select, ignore=ignore, rule_packs=rules)
    prepared = prepare([new], config or [], isolated, given, trust_config)
    with progress(quiet or silent) as show:
        sides = [
            side.saved or load_side(side.path, side.inputs, prepared.rules, show, jobs, scheduler) for side in found
        ]
    result = _compared(sides[0], sides[1], prepared.rules)
    if is_file(output_file) or not silent:
        write_document(_render(result, output_format), output_file)
    note(() if quiet or silent else [*prepared.warnings, *said(output_file)])
    if limit is not None and fails(result, limit):
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Side:
    """A side of the comparison: what a report says that was ``saved``, else the ``inputs`` to analyse."""

    path: str
    saved: RunSide | None
    inputs: Inputs


def _compared(base: RunSide, new: RunSide, rules: Sequence[Rule]) -> Comparison:
    """The comparison of the two sides, with no absolute path in it."""
    from perftool.engine.compare.diff import compare
    from perftool.engine.report.portable import shown_paths

    shown = shown_paths([base.name, new.name], project_root())
    return compare(replace(base, name=shown[base.name]), replace(new, name=shown[new.name]), rules)


def _found(base: str, new: str, as_one_run: bool, output_file: str | None) -> list[_Side]:
    """Both sides. Raises PerfToolError when they are the same stream, or ``output_file`` is a file of one."""
    if base == new == "-":
        raise PerfToolError("'-' can be given only once")
    found = [_side(path, as_one_run) for path in (base, new)]
    require_no_input([output_file], [base, new, *(file for side in found for file in side.inputs.files)])
    return found


def _side(path: str, as_one_run: bool) -> _Side:
    from perftool.engine.report.saved_report import read_saved
    from perftool.readers.files.discover import Inputs, find_inputs

    saved = read_saved(path)
    inputs = find_inputs([path], as_one_run=as_one_run) if saved is None else Inputs((), ())
    return _Side(path, saved, inputs)


def _render(result: Comparison, output_format: Format) -> bytes:
    from perftool.reporters.diff import render_diff_json, render_diff_markdown, render_diff_text

    render = {
        Format.text: render_diff_text, Format.json: render_diff_json, Format.markdown: render_diff_markdown,
    }[output_format]  # fmt: skip
    return render(result)
