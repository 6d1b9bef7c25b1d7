"""The command line: options and subcommands, and the one place where errors become exit codes."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated

import typer

from perftool import __version__
from perftool.commands.ending import TERMINATED, Ending, sigterm_as_interrupt
from perftool.commands.loading import Commands
from perftool.commands.options import (
    NO_VALUE,
    REPORT_FORMAT,
    Color,
    ColorOption,
    Full,
    Given,
    Logs,
    Metrics,
    OutputFile,
    Quiet,
    TrustConfig,
)  # fmt: skip
from perftool.errors import OutputClosedError, PerfToolError, is_interrupt
from perftool.model.choices import ReportFormat
from perftool.reporters.escape import no_commands

app = typer.Typer(
    name="habana_perf_tool",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
_verbose = False

_FORMATS = tuple(form.value for form in ReportFormat)
_Trace = Annotated[
    list[str] | None, typer.Option("--trace", metavar="FILE", help="Trace to analyse; repeat for several ranks.")
]
# A text, since the variable may name a format that only the command has which follows.
_AnyFormat = Annotated[str | None, REPORT_FORMAT]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"habana_perf_tool {__version__}")  # noqa: T201
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    trace: _Trace = None,
    log: Logs = None,
    metrics: Metrics = None,
    output_format: _AnyFormat = None,
    output_file: OutputFile = None,
    full: Full = False,
    trust_config: TrustConfig = False,
    color: ColorOption = Color.auto,
    quiet: Quiet = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", metavar=NO_VALUE, help="Show a traceback when something goes wrong.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", metavar=NO_VALUE, callback=_show_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Say what slows a PyTorch run down, what each cause costs, and what to change.

    Reads the traces that PyTorch's profiler leaves behind, on Gaudi, CUDA, ROCm, XPU, MTIA and CPU.

    Examples:

      habana_perf_tool --trace run.pt.trace.json

      habana_perf_tool --trace run.json --log console.log --metrics metrics.json

      habana_perf_tool analyze traces/ --output-format json -o report.json

      habana_perf_tool query run.json "SELECT cause, dur FROM gap_causes"
    """
    global _verbose
    _verbose = verbose
    if context.invoked_subcommand is not None:
        _require_unset(context)
        return
    texts = [*(log or ()), *(metrics or ())]
    if not trace and not texts:
        print(context.get_help())  # noqa: T201
        raise typer.Exit(2)
    if output_format not in (None, *_FORMATS):
        raise PerfToolError(f"--output-format {output_format!r}: is none of {', '.join(_FORMATS)}")
    given = Given(output_format=output_format, output_file=output_file)
    _analyze(trace or [], texts, given, full, trust_config, color, quiet)


def _analyze(
    traces: Sequence[str], texts: Sequence[str], given: Given, full: bool, trust: bool, color: Color, quiet: bool
) -> None:
    from perftool.commands.analyze import View, run
    from perftool.commands.prepare import prepare

    run(traces, texts, prepare(traces or texts, [], False, given, trust), color, quiet, View(full))


def _require_unset(context: typer.Context) -> None:
    """Refuse the options of the analysis before a command: there they would do nothing."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE" or name == "verbose":
            continue
        if name in ("trace", "log", "metrics"):
            raise PerfToolError(
                "--trace, --log and --metrics cannot be combined with a command; give the files to the command"
            )
        option = f"--{name.replace('_', '-')}"
        raise PerfToolError(f"{option} belongs after the command: {context.invoked_subcommand} ... {option}")


def main() -> None:
    """Run the program and exit: 0 done, 2 not run properly, 130 interrupted, 143 terminated."""
    _prepare_streams()
    with sigterm_as_interrupt() as ending:
        _run(ending)


def _run(ending: Ending) -> None:
    try:
        try:
            app()
        finally:
            # Here, where it can be told: at exit Python would complain in its own words.
            sys.stdout.flush()
    except (OutputClosedError, BrokenPipeError):
        _leave_stdout()
        sys.exit(OutputClosedError.exit_code)
    except PerfToolError as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        _fail(ending.word, ending.code)
    except SystemExit as left:
        # typer answers an interrupt by itself, without a word, and knows nothing of the signal behind it.
        answered = left.__context__.__cause__ if left.__context__ else None
        if ending.code == TERMINATED or isinstance(answered, KeyboardInterrupt):
            _fail(ending.word, ending.code)
        raise
    except MemoryError:
        _fail("out of memory; give the process more, or analyse fewer or smaller files at once", 2)
    except Exception as error:  # noqa: BLE001 - the last resort promised to users: a sentence, not a traceback
        if is_interrupt(error):
            _fail(ending.word, ending.code)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _leave_stdout()
            _fail("the output cannot be written: no space is left on the device", 2)
        _fail(f"internal error: {type(error).__name__}: {error} (run with -v for a traceback)", 2)


def _prepare_streams() -> None:
    """Let output go nowhere where it is closed (``>&-``), and show as escapes what the encoding lacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - open until the end, like what it stands for
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _leave_stdout() -> None:
    """Let what is still to be written to stdout go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> None:
    if _verbose and code == 2:
        traceback.print_exc()
    print(f"habana_perf_tool: {no_commands(message)}", file=sys.stderr)  # noqa: T201
    sys.exit(code)
