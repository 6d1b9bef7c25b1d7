"""The errors that users can cause, with their exit codes."""

from __future__ import annotations

_INTERRUPTED = "Query interrupted"
# Error messages from libraries may quote a whole file; only this many characters are kept.
LONGEST_REASON = 200


class PerfToolError(Exception):
    """An error that the user can understand and act on. Each argument is a line of the message."""

    exit_code = 2

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


def is_interrupt(error: BaseException) -> bool:
    """Whether ``error`` was caused by Ctrl-C. During a query, DuckDB turns Ctrl-C into an ordinary error."""
    return isinstance(error, KeyboardInterrupt) or (isinstance(error, RuntimeError) and str(error) == _INTERRUPTED)


class UnforeseenError(Exception):
    """Wraps the internal error ``cause``, so that no library mistakes it for one of its own."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class OutputClosedError(PerfToolError):
    """The reader of the output has exited, as ``head`` does. The exit code is 0, unless a check has already failed."""

    def __init__(self, exit_code: int = 0) -> None:
        super().__init__("the reader of the output has exited")
        self.exit_code = exit_code


class InputError(PerfToolError):
    """A file that cannot be found, opened or recognised."""


# The exceptions that malformed contents can raise in a reader.
UNFORESEEN = (RecursionError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError)


def unexpected_input_error(path: str, error: Exception) -> InputError:
    """Turn an ``error`` raised while reading ``path`` into an InputError, so that other files are still
    analysed."""
    if isinstance(error, InputError):
        return error
    reason = str(error).partition("\n")[0][:LONGEST_REASON]
    return InputError(f"{path}: cannot read (internal error: {type(error).__name__}: {reason})")


class RuleError(PerfToolError):
    """A malformed rule file, or a selector that matches no rule."""


class QueryError(PerfToolError):
    """A query from a user or a rule failed, or its result is invalid."""


class QueryTimeoutError(QueryError):
    """A query that exceeded its time limit."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"the query took longer than {limit_s:g} s")


class OutOfMemoryError(PerfToolError):
    """The tables need more memory than they may use. ``limit_mb`` is the amount that they may use, if it is known. The
    machine lacks the memory to double it."""

    def __init__(self, limit_mb: int | None) -> None:
        text = "the tables need more memory than they may use"
        if limit_mb is not None:
            text = f"the tables need more memory than the {limit_mb:,} MB available to them, and this machine has too"
            text += " little free memory to double that"
        super().__init__(f"{text}; analyse a shorter recording")


class MissingExtraError(PerfToolError):
    """An optional package is needed; the message names the extra that installs it."""


class NoInputError(InputError):
    """No input is given, or an input contains nothing to analyse."""


class SettingsError(PerfToolError):
    """An unknown key or an invalid value in a configuration file or an option."""


class BaselineError(PerfToolError):
    """A baseline that is missing, corrupt, or from another version."""


class TerminatedError(KeyboardInterrupt):
    """SIGTERM or SIGHUP asked the program to end. Ctrl-C raises a plain KeyboardInterrupt instead."""
