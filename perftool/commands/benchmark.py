"""``benchmark``: measures code before and after the advice is applied, and runs the rules on traces of both forms."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perftool.commands import options
from perftool.commands.output import is_file, print_document, print_notes, write_document, written_note
from perftool.errors import PerfToolError
from perftool.model.choices import Color
from perftool.output_file import require_apart

if TYPE_CHECKING:
    from rich.console import Console

    from perftool.commands.benchmark_progress import Advance
    from perftool.model.benchmark import BenchmarkResult
    from perftool.reporters.benchmark.table import ValidationTable


class Format(str, Enum):
    """How to print the results."""

    text = "text"
    json = "json"
    markdown = "markdown"


class Target(str, Enum):
    """Where to measure."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    hpu = "hpu"


Names = Annotated[list[str] | None, typer.Argument(metavar="NAMES", help="Benchmarks to run; all by default.")]
OfRule = Annotated[
    list[str] | None,
    typer.Option("--for", metavar="CODE", help="Run the benchmarks that test the advice of this rule."),
]
OfReport = Annotated[
    str | None,
    typer.Option("--from", metavar="FILE", help="Run the benchmarks of the findings in a saved JSON report."),
]
Device = Annotated[Target, typer.Option("--device", metavar="WHERE", help="Where to measure: auto, cpu, cuda, hpu.")]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        metavar=options.NO_VALUE,
        help="Measure only the first size, with few rounds: about ten seconds per benchmark.",
    ),
]
Validate = Annotated[
    bool,
    typer.Option(
        "--validate", metavar=options.NO_VALUE, help="Print a table of the rules that fire before and after the fix."
    ),
]
List = Annotated[
    bool, typer.Option("--list", metavar=options.NO_VALUE, help="List the benchmarks without running them.")
]
Peaks = Annotated[
    bool,
    typer.Option(
        "--peaks", metavar=options.NO_VALUE,
        help="Measure the device's matmul and copy rates, and print them as a file that --device accepts.",
    ),
]  # fmt: skip
Keep = Annotated[str | None, typer.Option("--keep", metavar="DIR", help="Keep the traces of both forms in DIR.")]
FormatOption = Annotated[Format, options.format_of(Format, "the results")]


def benchmark(
    names: Names = None,
    rule: OfRule = None,
    report: OfReport = None,
    device: Device = Target.auto,
    quick: Quick = False,
    validate: Validate = False,
    listed: List = False,
    peaks: Peaks = False,
    keep: Keep = None,
    output_format: FormatOption = Format.text,
    output_file: options.OutputFile = None,
    color: options.ColorOption = Color.auto,
    quiet: options.Quiet = False,
) -> None:
    """Check advice: measure the naive and the advised form, and run the rules on both

    Each benchmark runs in separate processes, with one thread each. The rules must fire on the trace of the naive form
    but not on that of the advised form. If they need a Gaudi, it is simulated, and the row says so. Each row is printed
    when its benchmark finishes, so an interrupt keeps the earlier rows. The exit code is 1 if a benchmark fails.

    Examples:

      habana_perf_tool benchmark --quick --validate

      habana_perf_tool benchmark fused_adamw sdpa

      habana_perf_tool benchmark --from report.json

      habana_perf_tool benchmark --peaks -o peaks.toml
    """
    if peaks:
        _peaks(device, output_file)
        print_notes([] if quiet else written_note(output_file), color)
        return
    from perftool.commands.benchmark_choice import choose, left_out, named_in
    from perftool.commands.benchmark_progress import progress

    require_apart([output_file], [report] if report is not None else [])
    chosen = choose(names or [], rule or [], None if report is None else named_in(report))
    if listed:
        _list(chosen, output_file)
        print_notes([] if quiet else written_note(output_file), color)
        return
    shown = _Shown(output_format, output_file, validate, color)
    if quick and not (quiet and output_format is Format.text):
        shown.left_out = left_out(chosen)
    with _folder(keep) as folder, progress(len(chosen), quiet) as advance:
        results, whole = _run(chosen, device, quick, folder, advance, shown)
    if not chosen and not quiet:
        print("habana_perf_tool: no finding in the report has a benchmark", file=sys.stderr)  # noqa: T201
    shown.end(results)
    print_notes([] if quiet else written_note(output_file), color)
    if not whole:
        print(f"habana_perf_tool: {len(results)} of {len(chosen)} benchmarks finished", file=sys.stderr)  # noqa: T201
        raise KeyboardInterrupt
    if any(result.status == "failed" for result in results):
        raise typer.Exit(1)


def _peaks(device: Target, output_file: str | None) -> None:
    """Measure the peak rates of ``device``, and write them to a file that --device accepts."""
    from perftool.bench.harness.devices import choose_device
    from perftool.integrations.peaks_file import peaks_document

    write_document(peaks_document(choose_device(device.value)).encode(), output_file)


def _run(
    names: Sequence[str], device: Target, quick: bool, folder: Path, advance: Advance, shown: _Shown
) -> tuple[list[BenchmarkResult], bool]:
    """Run the benchmarks ``names``. Return the results, and False if an interrupt ended the run early."""
    from perftool.bench import find_benchmark
    from perftool.bench.harness.devices import choose_device
    from perftool.proof import Request, prove

    request = Request(choose_device(device.value), quick, folder)
    results: list[BenchmarkResult] = []
    try:
        shown.begin([(name, find_benchmark(name).rules) for name in names])
        for name in names:
            results.append(prove(find_benchmark(name), request, partial(advance.stage, name)))
            with advance.row():
                shown.add(results[-1])
    except KeyboardInterrupt:
        return results, False
    return results, True


class _Shown:
    """Prints results as text on stdout as they arrive. Otherwise, writes one document with all results at the end."""

    def __init__(self, form: Format, target: str | None, validate: bool, color: Color) -> None:
        self._form, self._target, self._validate, self._color = form, target, validate, color
        to_terminal = form is Format.text and not is_file(target)
        from perftool.reporters.console import make_console

        self._console: Console | None = make_console(color.value) if to_terminal else None
        self._table: ValidationTable | None = None
        self.left_out = ""

    def begin(self, expected: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Print the header of the validation table, if there is one."""
        from perftool.reporters.benchmark.table import ValidationTable

        if self._console is not None and self._validate:
            self._table = ValidationTable(self._console, expected)

    def add(self, result: BenchmarkResult) -> None:
        """Print ``result``, unless all results are printed at the end."""
        from perftool.reporters.benchmark.text import print_result

        if self._table is not None:
            self._table.add(result)
        elif self._console is not None:
            print_result(result, self._console)

    def end(self, results: Sequence[BenchmarkResult]) -> None:
        """Finish the table, or write the whole document."""
        if self._table is not None:
            self._table.end(results)
        elif self._console is None:
            self._document(results)
        if self._console is not None and self.left_out:
            self._console.print(self.left_out)

    def _document(self, results: Sequence[BenchmarkResult]) -> None:
        from perftool.bench.harness.machine import this_machine

        if self._form is Format.json:
            from perftool.reporters.benchmark.document import render_benchmarks_json

            write_document(render_benchmarks_json(results, this_machine()), self._target)
        elif self._form is Format.markdown:
            from perftool.reporters.benchmark.markdown import render_benchmarks_markdown

            write_document(render_benchmarks_markdown(results, this_machine(), self.left_out), self._target)
        else:
            from perftool.reporters.benchmark.text import print_results, print_validation

            show = print_validation if self._validate else print_results
            print_document(partial(show, results), self._target, self._color.value)


def _list(names: Sequence[str], target: str | None) -> None:
    from perftool.bench import find_benchmark

    lines = []
    for name in names:
        found = find_benchmark(name)
        lines.append(f"{name:22} {', '.join(found.rules) or '-':16} {found.summary}\n")
    write_document("".join(lines).encode(), target)


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    if keep is not None:
        try:
            Path(keep).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PerfToolError(f"--keep {keep}: cannot create the folder ({error.strerror or error})") from None
        yield Path(keep)
        return
    with tempfile.TemporaryDirectory(prefix="habana_perf_tool-") as folder:
        yield Path(folder)
