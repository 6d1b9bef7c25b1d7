"""Every error a user can cause. Each knows the exit code it ends the program with."""

from __future__ import annotations

_INTERRUPTED = "Query interrupted"


class PerfToolError(Exception):
    """A condition the user can understand and act on; its text is one sentence."""

    exit_code = 2


def is_interrupt(error: BaseException) -> bool:
    """Whether ``error`` is Ctrl-C: DuckDB turns one that comes during a query into an error like any other."""
    return isinstance(error, KeyboardInterrupt) or (isinstance(error, RuntimeError) and str(error) == _INTERRUPTED)


class OutputClosedError(PerfToolError):
    """Nobody reads the output any more, as after ``| head``: an end, and no failure."""

    exit_code = 0


class InputError(PerfToolError):
    """A file that cannot be found, opened or recognised."""


class RuleError(PerfToolError):
    """A rule file that is malformed, or a selector that names no rule."""


class QueryError(PerfToolError):
    """SQL from a user or a rule that does not run."""


class QueryTimeoutError(QueryError):
    """SQL that took longer than it may."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"the query took longer than {limit_s:g} s")


class OutOfMemoryError(PerfToolError):
    """Tables that do not fit in what memory this machine has left."""

    def __init__(self, limit_mb: int | None) -> None:
        had = "" if limit_mb is None else f" than the {limit_mb:,} MB they had"
        super().__init__(f"the tables need more memory{had}, and this machine has no more; analyse a shorter recording")


class MissingExtraError(PerfToolError):
    """An optional package is needed; the message names the extra that installs it."""


class NoInputError(InputError):
    """Paths that exist or are well-formed but hold nothing to read."""


class SettingsError(PerfToolError):
    """A configuration file, or an option, with an unknown key or a value of the wrong type."""


class BaselineError(PerfToolError):
    """A baseline that is missing, damaged, or of another version."""
