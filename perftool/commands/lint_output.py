"""The output of ``lint``: targets and formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perftool.commands.output import is_file, print_document, write_document, written_note
from perftool.errors import PerfToolError
from perftool.model.choices import Color, LintFormat, one_of

if TYPE_CHECKING:
    from rich.console import Console

    from perftool.engine.settings.settings import Settings
    from perftool.model.lint import LintReport


@dataclass(frozen=True)
class Sink:
    """An output of ``lint``: its format and its file; None and '-' mean stdout."""

    format: LintFormat
    target: str | None

    @property
    def to_file(self) -> bool:
        return is_file(self.target)


def parse_sinks(settings: Settings, also: Sequence[str], statistics: bool) -> list[Sink]:
    """Return the sink from the settings, then those from --also. Raise PerfToolError if one is invalid."""
    known = settings.output_format in {form.value for form in LintFormat}
    first = Sink(LintFormat(settings.output_format) if known else LintFormat.text, settings.output_file)
    if statistics and first.format is not LintFormat.text:
        raise PerfToolError("--statistics works only with the text format")
    return [first, *map(_also, also)]


def emit(result: LintReport, sink: Sink, color: Color, quiet: bool, statistics: bool) -> list[str]:
    """Write ``result`` to ``sink``, and return notes to print."""
    if sink.format is LintFormat.text:
        print_document(lambda console: _print(result, console, quiet, statistics), sink.target, color.value)
    else:
        from perftool.reporters.lint.formats import renderer

        verbatim = sink.format is LintFormat.github
        write_document(renderer(sink.format)(result), sink.target, verbatim=verbatim)
    return written_note(sink.target)


def _also(text: str) -> Sink:
    name, colon, target = text.partition(":")
    known = [form.value for form in LintFormat]
    if not colon or not target or target == "-" or name not in known:
        raise PerfToolError(f"--also {text!r}: expected FORMAT:FILE, with FORMAT one of {one_of(LintFormat)}")
    return Sink(LintFormat(name), target)


def _print(result: LintReport, console: Console, quiet: bool, statistics: bool) -> None:
    from perftool.reporters.lint.text import print_lint, print_statistics

    if statistics:
        print_statistics(result, console)
    else:
        print_lint(result, console, quiet=quiet)
