"""Builds the options of commands from the table of configuration keys and the rows below.

In a command's signature, a parameter of type CliSettings is replaced by all these options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any

import typer

from perftool.engine.settings.table import (
    CONFIG,
    CONFIGURED,
    KEYS,
    OUTPUT,
    RANKS,
    ROOT,
    SPREAD,
    Row,
    row,
    rows_of,
)
from perftool.errors import PerfToolError
from perftool.model.choices import Color, one_of

# Without a metavar, typer shows a flag as if it took a value.
NO_VALUE = ""
_DAY_S = 86_400
_REPORTS = ("analyze", "merge")


@dataclass(frozen=True)
class CliSettings:
    """The options of a command line. ``keys`` contains those that are configuration keys, spelled as in a configuration
    file.
    """

    top: int | None = row(
        None, "Findings to show; by default, as many as fit on the screen",
        panel=OUTPUT, metavar="N", on=_REPORTS, least=1,
    )  # fmt: skip
    full: bool = row(False, "Print every table, not just the short report", panel=OUTPUT, on=(*_REPORTS, ROOT))
    summary_jsonl: str | None = row(
        None, "Append the metrics to FILE, for trend: one line for the run and one per rank",
        panel=OUTPUT, metavar="FILE", on=_REPORTS,
    )  # fmt: skip
    redact: bool = row(
        False, "Leave out what looks like a token or a password",
        panel=OUTPUT, on=("report", "annotate"),
    )  # fmt: skip
    color: Color = row(
        Color.auto, "When to colour the output: auto, always, never",
        panel=OUTPUT, metavar="WHEN", on=(*CONFIGURED, ROOT),
    )  # fmt: skip
    quiet: bool = row(
        False,
        "Print only the report, without progress and notes",
        "--quiet",
        "-q",
        panel=OUTPUT,
        on=(*CONFIGURED, ROOT),
    )
    silent: bool = row(
        False, "Print nothing; only set the exit code", "--silent", "-s", panel=OUTPUT, on=("lint", "diff")
    )
    part: str | None = row(
        None, "Write the analysed ranks to FILE (*.part) instead of a report, for merge",
        panel=RANKS, metavar="FILE", on=_REPORTS,
    )  # fmt: skip
    scheduler: str | None = row(
        None, "Where ranks are analysed: local (the default), dask://HOST:PORT, tls://..., or a scheduler file",
        panel=RANKS, metavar="WHERE", env=True, on=SPREAD,
    )  # fmt: skip
    config: tuple[str, ...] = row(
        (), "Use this configuration file, or set one key: 'fail-on = \"error\"'; repeatable",
        panel=CONFIG, metavar="FILE|PAIR", env=True, on=CONFIGURED,
    )  # fmt: skip
    isolated: bool = row(False, "Ignore all configuration files", panel=CONFIG, on=CONFIGURED)
    trust_config: bool = row(
        False, "Let a discovered configuration write files, name any file, and set jobs",
        panel=CONFIG, on=(*CONFIGURED, ROOT),
    )  # fmt: skip
    show_settings: bool = row(False, "Print the settings in use and where they come from", panel=CONFIG, on=CONFIGURED)
    command: str = "analyze"
    keys: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_quiet(self) -> bool:
        """Whether to suppress progress and notes."""
        return self.quiet or self.silent


ROWS = (*KEYS, *rows_of(CliSettings))
BY_NAME = {one.name: one for one in ROWS}


def complete_code(incomplete: str) -> list[str]:
    """List the shipped rules whose code starts with ``incomplete``, for shell completion."""
    from perftool.engine.rules.pack import builtin_folder

    return sorted(path.stem for path in builtin_folder().rglob("*.toml") if path.stem.startswith(incomplete))


def option(name: str, command: str = "") -> Any:
    """Build the typer option of the row ``name``, with the help text for ``command``."""
    made = BY_NAME[name]
    return typer.Option(
        *(made.flags or (made.flag,)), metavar=made.metavar or NO_VALUE, envvar=made.variable,
        help=made.sentence(command), rich_help_panel=made.panel, min=made.least,
        autocompletion=complete_code if made.metavar == "RULE" else None,
    )  # fmt: skip


def time_option(least: float, text: str, metavar: str = "SECONDS", panel: str | None = None) -> Any:
    """Build an option for a time from ``least`` seconds to a day; the system's timers reject much longer times."""
    return typer.Option(metavar=metavar, min=least, callback=_at_most_a_day, help=text, rich_help_panel=panel)


def _at_most_a_day(value: float) -> float:
    # NaN fails this comparison, but some versions of click let it through any range check.
    if not value <= _DAY_S:
        raise typer.BadParameter(f"expected at most {_DAY_S} (a day)")
    return value


def format_of(formats: Any, document: str) -> Any:
    """Build the option for the format of ``document``; the default is text."""
    return typer.Option("--output-format", metavar="FORMAT", help=f"Format of {document}: {one_of(formats, 'text')}.")


Paths = Annotated[list[str] | None, typer.Argument(metavar="PATHS", help="Files, folders, globs, or '-' for stdin.")]
# For commands that read neither a run nor a configuration.
OutputFile = Annotated[str | None, option("output_file")]
ColorOption = Annotated[Color, option("color")]
Quiet = Annotated[bool, option("quiet")]
Silent = Annotated[bool, option("silent")]
RulePacks = Annotated[list[str] | None, option("rule_packs")]


def with_options(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """Replace the CliSettings parameter of ``command`` with one option for each of ROWS that applies to the command
    ``name``."""
    own = signature(command, eval_str=True).parameters.values()
    settings = next((one.name for one in own if one.annotation is CliSettings), None)
    if settings is None:
        return command
    rows = [one for one in ROWS if name in one.on]

    @wraps(command)
    def call(**values: Any) -> None:
        chosen = {one.name: value for one in rows if _is_given(one, value := values.pop(one.name))}
        command(**values, **{settings: _settings(name, chosen)})

    made = [Parameter(one.name, Parameter.KEYWORD_ONLY, **_typed(one, name)) for one in rows]
    kept = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own if one.name != settings]
    call.__signature__ = signature(command).replace(parameters=[*made, *kept])  # type: ignore[attr-defined]
    call.__annotations__ = {}
    return call


def _typed(made: Row, command: str) -> dict[str, Any]:
    """Return the annotation and the default of the typer parameter for a row."""
    # An option that precedes the command accepts any format, because an environment variable may name one that only
    # some commands support.
    words = None if command == ROOT else made.formats.get(command)
    switch = made.kind == "bool" and "/" not in made.flag
    kind = bool if switch else words or _KINDS.get(made.kind, str)
    default = made.default if switch or kind is Color else None
    return {"annotation": Annotated[kind if switch or kind is Color else kind | None, option(made.name, command)],
            "default": default}  # fmt: skip


_KINDS: dict[str, Any] = {
    "bool": bool, "int | None": int, "Color": Color, **dict.fromkeys(
        ("tuple[str, ...]", "tuple[Path, ...]", "Mapping[str, Sequence[str]]"), list[str]
    ),
}  # fmt: skip


def _is_given(made: Row, value: Any) -> bool:
    """Whether the option was given. A pair such as --preview/--no-preview is None if neither was."""
    return value not in (None, []) and (value is not False or "/" in made.flag)


def _settings(command: str, chosen: Mapping[str, Any]) -> CliSettings:
    keys = {BY_NAME[name].key: _as_key(BY_NAME[name], value) for name, value in chosen.items() if BY_NAME[name] in KEYS}
    others = {name: value for name, value in chosen.items() if BY_NAME[name] not in KEYS}
    return CliSettings(**{name: _frozen(value) for name, value in others.items()}, command=command, keys=keys)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _as_key(made: Row, value: Any) -> Any:
    """Convert ``value`` to the form it has in a configuration file."""
    if made.kind == "Mapping[str, Sequence[str]]":
        return _per_file(value)
    return getattr(value, "value", value)


def _per_file(values: Sequence[str]) -> dict[str, list[str]]:
    """Parse ``GLOB:RULE,RULE,GLOB:RULE`` into the rules per file pattern. Raise PerfToolError for a rule without a
    pattern."""
    rules: dict[str, list[str]] = {}
    for value in values:
        pattern = ""
        for part in value.split(","):
            head, colon, rule = part.rpartition(":")
            pattern = head.strip() if colon else pattern
            if not pattern or not rule.strip():
                raise PerfToolError(f"per-file ignore {value!r}: expected GLOB:RULE, such as 'old/*.json:GAP'")
            rules.setdefault(pattern, []).append(rule.strip())
    return rules
