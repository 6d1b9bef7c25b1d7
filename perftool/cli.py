"""The command line. This is the only place that maps errors to exit codes."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from itertools import pairwise
from typing import Annotated

import typer

from perftool import __version__
from perftool.commands.ending import Ending, signals_as_interrupts
from perftool.commands.loading import Commands, closed_output_exits
from perftool.commands.options import NO_VALUE, CliSettings, with_options
from perftool.engine.settings.table import ROOT
from perftool.errors import OutputClosedError, PerfToolError, UnforeseenError, is_interrupt
from perftool.model.choices import ReportFormat
from perftool.reporters.escape import one_line, shown

app = typer.Typer(
    name="habana_perf_tool",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
_verbose = False
_NO_ROOM = {
    errno.ENOSPC: "no space is left on the device",
    errno.EFBIG: "the file would be larger than this system allows",
    errno.EDQUOT: "the disk quota is used up",
}
_SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")

_FORMATS = tuple(form.value for form in ReportFormat)
_Trace = Annotated[
    list[str] | None, typer.Option("--trace", metavar="FILE", help="Trace to analyse; repeat for several ranks.")
]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"habana_perf_tool {__version__}")  # noqa: T201
        raise typer.Exit


def root(
    cli: CliSettings,
    context: typer.Context,
    trace: _Trace = None,
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
    """Find out what slows a PyTorch run down, what each cause costs, and what to change.

    The tool reads the traces that PyTorch's profiler writes, on Gaudi, CUDA, ROCm, XPU, MTIA and CPU.

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
    if not trace and not {"log", "metrics"} & set(cli.keys):
        with closed_output_exits(2):
            print(context.get_help())  # noqa: T201
        raise typer.Exit(2)
    if cli.keys.get("output-format") not in (None, *_FORMATS):
        raise PerfToolError(f"--output-format {cli.keys['output-format']!r}: expected one of {', '.join(_FORMATS)}")
    from perftool.commands.analyze import analyze

    analyze(cli, trace)


app.callback(invoke_without_command=True)(with_options(ROOT, root))


def _require_unset(context: typer.Context) -> None:
    """Reject analysis options given before a command, where they would have no effect."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE" or name == "verbose":
            continue
        if name in ("trace", "log", "metrics"):
            raise PerfToolError(
                "--trace, --log and --metrics cannot be combined with a command; pass the files to the command"
            )
        option = f"--{name.replace('_', '-')}"
        raise PerfToolError(f"{option} belongs after the command: {context.invoked_subcommand} ... {option}")


def main() -> None:
    """Run the program and exit with 0, 1 if a check failed, 2 after an error, or 129, 130 or 143 after a signal."""
    _prepare_streams()
    _require_working_directory()
    _use_named_shell(sys.argv[1:])
    with signals_as_interrupts() as ending:
        _run(ending)


def _run(ending: Ending) -> None:
    try:
        _refuse_options_that_are_files(sys.argv[1:])
        try:
            app()
        finally:
            # If flushing failed at exit, Python would print its own error message.
            sys.stdout.flush()
    except (OutputClosedError, BrokenPipeError) as closed:
        _discard_stdout()
        sys.exit(closed.exit_code if isinstance(closed, OutputClosedError) else 0)
    except PerfToolError as error:
        _exit_if_signalled(ending)
        # A file name may contain a line feed, which must not split a line of the message.
        _fail("\n".join(one_line(str(line)) for line in error.args), error.exit_code)
    except KeyboardInterrupt:
        _fail(ending.word, ending.code)
    except SystemExit as left:
        # typer turns an interrupt into a silent SystemExit.
        answered = left.__context__.__cause__ if left.__context__ else None
        if (ending.signalled and left.code) or isinstance(answered, KeyboardInterrupt):
            _fail(ending.word, ending.code)
        raise
    except MemoryError:
        _fail("out of memory; give the process more memory, or analyse fewer or smaller files", 2)
    except Exception as error:  # noqa: BLE001 - users get a sentence, not a traceback
        _exit_if_signalled(ending)
        if is_interrupt(error):
            _fail(ending.word, ending.code)
        if (why := _full_disk_reason(error)) is not None:
            _discard_stdout()
            # Otherwise, Python would print a traceback for each file that cannot be closed.
            sys.unraisablehook = lambda _: None
            _fail(f"cannot write the output: {why}", 2)
        cause = error.cause if isinstance(error, UnforeseenError) else error
        # Show only the first line, because DuckDB adds lines that show the SQL.
        reason = str(cause).partition("\n")[0].strip()
        _fail(f"internal error: {type(cause).__name__}: {reason} (run with -v for a traceback)", 2)


def _full_disk_reason(error: BaseException | None) -> str | None:
    """Return the reason if ``error`` means that the disk is full; otherwise, return None. Libraries wrap or quote the
    system's error, so its causes and their messages are searched, too."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    for number, why in _NO_ROOM.items():
        if any(getattr(one, "errno", None) == number or os.strerror(number) in str(one) for one in seen):
            return why
    return None


def _exit_if_signalled(ending: Ending) -> None:
    """If a signal arrived, exit with its code. A library may have replaced the signal's exception with another."""
    if ending.signalled:
        _fail(ending.word, ending.code)


def _refuse_options_that_are_files(arguments: Sequence[str]) -> None:
    """Reject an option that is also the name of a file in the working directory: ``lint *`` and pre-commit do not put
    ``--`` before file names."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    for text in options:
        if text.startswith("-") and len(text) > 1 and os.path.lexists(text):
            raise PerfToolError(
                f"{text!r} is both an option and a file here; write -- before file names, or ./ before this one"
            )


def _use_named_shell(arguments: Sequence[str]) -> None:
    """Make typer use the shell that the user names, as in ``--show-completion zsh``, not the one that is running."""
    for option, shell in pairwise(arguments):
        if option in ("--show-completion", "--install-completion") and shell in _SHELLS:
            os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"


def _require_working_directory() -> None:
    """Exit with an error if the working directory no longer exists, because relative paths would not work."""
    try:
        os.getcwd()
    except OSError as error:
        _fail(f"the working directory cannot be read ({error.strerror}); change to another directory", 2)


def _prepare_streams() -> None:
    """Redirect closed streams (``>&-``) to the null device, and escape characters that cannot be encoded."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - stays open to the end
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_stdout() -> None:
    """Redirect stdout to the null device, so that Python can flush the rest of the output at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> None:
    if _verbose and code == 2:
        traceback.print_exc()
    # The terminal may be closed by now.
    with suppress(OSError):
        print(f"habana_perf_tool: {shown(message)}", file=sys.stderr)  # noqa: T201
    sys.exit(code)
