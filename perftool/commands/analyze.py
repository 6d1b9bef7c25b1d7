"""``analyze``: what was read, where the time goes, what to change."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from perftool.commands.output import leave_pipe, write_document
from perftool.commands.progress import progress
from perftool.reporters.console import ColorMode, make_console


class Format(str, Enum):
    """How to print the report."""

    text = "text"
    json = "json"


def run(
    paths: Sequence[str],
    logs: Sequence[str] = (),
    output_format: Format = Format.text,
    output_file: str | None = None,
    color: ColorMode = "auto",
    quiet: bool = False,
    exclude: Sequence[str] = (),
) -> None:
    """Analyse ``paths`` and the ``logs`` of the same run, and print or write the report."""
    from perftool.engine.analysis import analyze_inputs
    from perftool.engine.pack import builtin_folder, load_pack
    from perftool.readers.discover import find_inputs

    inputs = find_inputs(paths, logs, exclude)
    with progress(quiet) as show:
        report = analyze_inputs(inputs, load_pack(builtin_folder()), show)
    if output_format is Format.json:
        from perftool.reporters.json import render_json

        document = render_json(report)
        write_document(document, output_file)
    elif output_file not in (None, "-"):
        write_document(_as_text(report), output_file)
    else:
        _print(report, color)
    if output_file not in (None, "-") and not quiet:
        make_console(color, stderr=True).print(f"Wrote {output_file}", markup=False)


def _print(report: object, color: ColorMode) -> None:
    from perftool.model.report import Report
    from perftool.reporters.text import print_report

    assert isinstance(report, Report)
    try:
        print_report(report, make_console(color))
    except BrokenPipeError:
        leave_pipe()


def _as_text(report: object) -> bytes:
    import io

    from perftool.model.report import Report
    from perftool.reporters.text import print_report

    assert isinstance(report, Report)
    text = io.StringIO()
    print_report(report, make_console("never", file=text))
    return text.getvalue().encode()
