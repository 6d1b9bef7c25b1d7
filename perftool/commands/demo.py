"""``demo``: the report on a sample shipped with the program."""

from __future__ import annotations

import os
import sys
import tempfile
import webbrowser
from pathlib import Path

from perftool.commands.analyze import show_report
from perftool.commands.options import CliSettings, ColorOption, OutputFile, Quiet
from perftool.commands.output import is_file, write_document, written_note
from perftool.commands.report import make_document
from perftool.commands.session import Session
from perftool.model.choices import Color

_SAMPLE = "gaudi2_unoptimised"


def demo(
    output_file: OutputFile = None,
    color: ColorOption = Color.auto,
    quiet: Quiet = False,
) -> None:
    """Analyse a sample and show its report

    The sample is made by hand: three steps on a Gaudi 2 with many problems at once. On a terminal, its HTML report
    opens in the browser; with -o, it is written to a file instead.

    Examples:

      habana_perf_tool demo

      habana_perf_tool demo -o demo.html
    """
    sample = [str(sample_folder())]
    session = Session(CliSettings(isolated=True, color=color, quiet=quiet), sample)
    inputs = session.inputs(sample)
    show_report(session, inputs)
    if is_file(output_file):
        target: str | None = output_file
    elif sys.stdout.isatty() and not os.environ.get("CI"):
        # The file must outlive the program: the browser may read it later.
        target = str(Path(tempfile.mkdtemp(prefix="perftool-demo-")) / "demo.html")
    else:
        return
    document, _ = make_document(session, inputs, False, target)
    write_document(document, target, verbatim=True)
    session.note(written_note(target))
    if target and target != output_file:
        webbrowser.open(Path(target).as_uri())


def sample_folder() -> Path:
    """Find the sample: inside an installed package, or next to the package in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "sample"
    return installed if installed.is_dir() else package.parent / "sample_traces" / _SAMPLE
