"""``benchmark``: every recommendation reproduced, applied, measured and shown to the rules."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perftool.commands import options
from perftool.commands.options import Color
from perftool.commands.output import is_file, print_document, said, write_document
from perftool.commands.prepare import note
from perftool.errors import PerfToolError
from perftool.reporters.console import make_console

if TYPE_CHECKING:
    from rich.console import Console

    from perftool.model.benchmark import BenchmarkResult


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


Names = Annotated[list[str] | None, typer.Argument(metavar="NAMES", help="Benchmarks; all without any.")]
OfRule = Annotated[
    list[str] | None, typer.Option("--for", metavar="CODE", help="Those that prove the advice of a rule.")
]
OfReport = Annotated[
    str | None, typer.Option("--from", metavar="FILE", help="Those of the findings in a saved JSON report.")
]
Device = Annotated[Target, typer.Option("--device", metavar="WHERE", help="Where to measure: auto, cpu, cuda, hpu.")]
Quick = Annotated[
    bool, typer.Option("--quick", metavar=options.NO_VALUE, help="The first size and few rounds: seconds for each.")
]
Validate = Annotated[
    bool, typer.Option("--validate", metavar=options.NO_VALUE, help="Print a table at the end: rules before and after.")
]
List = Annotated[bool, typer.Option("--list", metavar=options.NO_VALUE, help="List the benchmarks and run none.")]
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
    keep: Keep = None,
    output_format: FormatOption = Format.text,
    output_file: options.OutputFile = None,
    color: options.ColorOption = Color.auto,
    quiet: options.Quiet = False,
) -> None:
    """Prove advice: measure the naive and the advised form, and show both to the rules

    Each benchmark runs in processes of its own, one thread each. The rules must fire on the trace of the naive form and
    be quiet on the other; where that needs a Gaudi, a simulated one stands in and the row says so. Exit code 1 when a
    benchmark failed.

    Examples:

      habana_perf_tool benchmark --quick --validate

      habana_perf_tool benchmark fused_adamw sdpa

      habana_perf_tool benchmark --from report.json
    """
    from perftool.commands.benchmark_choice import choose, named_in

    chosen = choose(names or [], rule or [], None if report is None else named_in(report))
    if listed:
        _list(chosen, output_file)
        note([] if quiet else said(output_file), color)
        return
    to_terminal = output_format is Format.text and not is_file(output_file)
    shown = make_console(color.value) if to_terminal and not validate else None
    with _folder(keep) as folder, _progress(len(chosen), quiet) as advance:
        results = _run(chosen, device, quick, folder, advance, shown)
    if not chosen and not quiet:
        print("habana_perf_tool: no finding of the report has a benchmark", file=sys.stderr)  # noqa: T201
    if shown is None:
        _print(results, output_format, output_file, validate, color)
    note([] if quiet else said(output_file), color)
    if any(result.status == "failed" for result in results):
        raise typer.Exit(1)


def _run(
    names: Sequence[str],
    device: Target,
    quick: bool,
    folder: Path,
    advance: Callable[[str, str], None],
    console: Console | None,
) -> list[BenchmarkResult]:
    from perftool.bench import find_benchmark
    from perftool.bench.harness.devices import choose_device
    from perftool.proof import Request, prove
    from perftool.reporters.benchmark.text import print_result

    request = Request(choose_device(device.value), quick, folder)
    results = []
    for name in names:
        result = prove(find_benchmark(name), request, partial(advance, name))
        results.append(result)
        advance(name, "")
        if console is not None:
            print_result(result, console)
    return results


def _print(results: Sequence[BenchmarkResult], form: Format, target: str | None, validate: bool, color: Color) -> None:
    if form is Format.json:
        from perftool.reporters.benchmark.document import render_benchmarks_json

        write_document(render_benchmarks_json(results), target)
    elif form is Format.markdown:
        from perftool.reporters.benchmark.markdown import render_benchmarks_markdown

        write_document(render_benchmarks_markdown(results), target)
    else:
        from perftool.reporters.benchmark.text import print_results, print_validation

        print_document(partial(print_validation if validate else print_results, results), target, color.value)


def _list(names: Sequence[str], target: str | None) -> None:
    from perftool.bench import find_benchmark

    lines = []
    for name in names:
        found = find_benchmark(name)
        lines.append(f"{name:22} {', '.join(found.rules):16} {found.summary}\n")
    write_document("".join(lines).encode(), target)


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    if keep is not None:
        try:
            Path(keep).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PerfToolError(f"--keep {keep}: cannot be made ({error.strerror or error})") from None
        yield Path(keep)
        return
    with tempfile.TemporaryDirectory(prefix="habana_perf_tool-") as folder:
        yield Path(folder)


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Callable[[str, str], None]]:
    """Yields what to call with (benchmark, stage), stage "" when it has ended; shows the time left on a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda name, stage: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def advance(name: str, stage: str) -> None:
            bar.update(task, description=f"{name}: {stage}" if stage else name, advance=0 if stage else 1)

        yield advance
