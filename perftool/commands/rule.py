"""``rule``: explains rules, and checks user packs."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perftool.commands import options
from perftool.commands.output import print_notes, write_document, written_note
from perftool.errors import PerfToolError, RuleError
from perftool.output_file import require_apart

if TYPE_CHECKING:
    from perftool.model.rule import Rule


class Format(str, Enum):
    """How to print rules."""

    text = "text"
    json = "json"
    markdown = "markdown"


def rule(
    code: Annotated[
        str | None,
        typer.Argument(metavar="CODE", help="Code or name of a rule.", autocompletion=options.complete_code),
    ] = None,
    every: Annotated[bool, typer.Option("--all", metavar=options.NO_VALUE, help="List all rules.")] = False,
    check: Annotated[
        str | None, typer.Option("--check", metavar="DIR", help="Check a pack of rules and run its cases.")
    ] = None,
    rules: options.RulePacks = None,
    output_format: Annotated[Format, options.format_of(Format, "the explanation")] = Format.text,
    output_file: options.OutputFile = None,
) -> None:
    """Explain a rule, or list them all

    Your own pack is a folder of CODE.toml files with codes x9xx; its cases are in cases/CODE.toml.

    Examples:

      habana_perf_tool rule GAP101

      habana_perf_tool rule --all --output-format json

      habana_perf_tool rule --check my-rules/
    """
    if (code is not None) + every + (check is not None) != 1:
        raise PerfToolError("rule needs exactly one of CODE, --all and --check DIR")
    if check is not None:
        _check(Path(check), output_file)
        return
    from perftool.engine.rules.pack import load_packs

    _require_apart(output_file, rules or ())
    known = load_packs([Path(folder) for folder in rules or ()])
    write_document(_render(known if code is None else [_find(code, known)], output_format, every), output_file)
    print_notes(written_note(output_file))


def _require_apart(output_file: str | None, packs: Iterable[str]) -> None:
    from perftool.engine.rules.pack import toml_files

    require_apart([output_file], (str(file) for pack in packs for file in toml_files(Path(pack))))


def _check(folder: Path, output_file: str | None) -> None:
    from perftool.engine.rule_tests.check_pack import check_pack
    from perftool.reporters.escape import one_line

    _require_apart(output_file, [str(folder)])
    result = check_pack(folder)
    counts = ((result.rules, "rule"), (result.cases, "case"), (len(result.problems), "problem"))
    total = ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts)
    lines = [*map(one_line, result.problems), total]
    write_document("".join(f"{line}\n" for line in lines).encode(), output_file)
    print_notes(written_note(output_file))
    if not result.cases:
        print_notes([f"no cases were found in {folder / 'cases'}"])
    if result.problems:
        raise typer.Exit(1)


def _find(code: str, rules: list[Rule]) -> Rule:
    from perftool.engine.rules.selection import successor

    found = next((known for known in rules if code in (known.code, known.name)), None)
    if found is None and (found := successor(code, rules)):
        print_notes([f"{code} is retired; it is now {found.code} ({found.name})"])
    if found is None:
        names = [text for known in rules for text in (known.code, known.name)]
        close = get_close_matches(code, names, n=1) or get_close_matches(code.upper(), names, n=1)
        raise RuleError(f"there is no rule {code!r}{f'; did you mean {close[0]}?' if close else ''}")
    return found


def _render(rules: list[Rule], output_format: Format, every: bool) -> bytes:
    from perftool.reporters import rules as pages

    if output_format is Format.json:
        return pages.render_rules_json(rules) if every else pages.render_rule_json(rules[0])
    if output_format is Format.markdown:
        return pages.render_rules_markdown(rules)
    return pages.render_rules_text(rules)
