"""``demo``: the answer about a sample that comes with the program."""

from __future__ import annotations

import os
import sys
import tempfile
import webbrowser
from pathlib import Path

from perftool.commands import options
from perftool.commands.analyze import run
from perftool.commands.options import Color, Given, Ranks
from perftool.commands.output import is_file, said, write_document
from perftool.commands.prepare import note, prepare
from perftool.commands.report import make_document

_SAMPLE = "gaudi2_unoptimised"


def demo(
    output_file: options.OutputFile = None,
    color: options.ColorOption = Color.auto,
    quiet: options.Quiet = False,
) -> None:
    """Analyse a sample and show its report

    The sample is made by hand: three steps on a Gaudi 2 with most of what can go wrong. Its HTML report opens in the
    browser when a person is at the terminal; with -o it is written to a file instead.

    Examples:

      habana_perf_tool demo

      habana_perf_tool demo -o demo.html
    """
    sample = [str(sample_folder())]
    prepared = prepare(sample, [], True, Given())
    run(sample, [], prepared, color, quiet)
    if is_file(output_file):
        target: str | None = output_file
    elif sys.stdout.isatty() and not os.environ.get("CI"):
        # It must outlive the program: the browser reads it when it likes.
        target = str(Path(tempfile.mkdtemp(prefix="perftool-demo-")) / "demo.html")
    else:
        return
    document, _ = make_document(sample, [], prepared, False, quiet, Ranks())
    write_document(document, target)
    note([] if quiet else said(target), color)
    if target and target != output_file:
        webbrowser.open(Path(target).as_uri())


def sample_folder() -> Path:
    """The folder of the sample: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "sample"
    return installed if installed.is_dir() else package.parent / "sample_traces" / _SAMPLE
