"""Options that several commands share: the same name means the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Annotated, Any

import typer

from perftool.errors import PerfToolError
from perftool.model.choices import SEVERITIES, ReportFormat, one_of

_SELECTION = "Rule selection"
_CONFIG = "Configuration"
_FILES = "File selection"
_OUTPUT = "Output"
_RANKS = "Many ranks"
_GATE = "Gate"
# The metavar of a flag; without one typer shows <bool>, as if a value followed.
NO_VALUE = ""


class Color(str, Enum):
    """When to colour the output."""

    auto = "auto"
    always = "always"
    never = "never"


def format_of(formats: type[Enum], document: str) -> Any:
    """The option for the format of ``document``: one of ``formats``, of which text is the default."""
    return typer.Option("--output-format", metavar="FORMAT", help=f"Format of {document}: {one_of(formats, 'text')}.")


Paths = Annotated[list[str] | None, typer.Argument(metavar="PATHS", help="Files, folders, globs, or '-' for stdin.")]
OutputFile = Annotated[
    str | None,
    typer.Option(
        "--output-file", "-o", metavar="FILE", envvar="HABANA_PERF_TOOL_OUTPUT_FILE",
        help="Write the report here instead of to stdout.", rich_help_panel=_OUTPUT,
    ),
]  # fmt: skip
REPORT_FORMAT = typer.Option(
    "--output-format", metavar="FORMAT", envvar="HABANA_PERF_TOOL_OUTPUT_FORMAT", rich_help_panel=_OUTPUT,
    help=f"Format of the report: {one_of(ReportFormat, 'text')}.",
)  # fmt: skip
Full = Annotated[
    bool,
    typer.Option("--full", metavar=NO_VALUE, help="Print every table, not just the answer.", rich_help_panel=_OUTPUT),
]
ColorOption = Annotated[
    Color,
    typer.Option(metavar="WHEN", help="When to colour the output: auto, always, never.", rich_help_panel=_OUTPUT),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        metavar=NO_VALUE,
        help="Print the report only, no progress and no notes.",
        rich_help_panel=_OUTPUT,
    ),
]
Silent = Annotated[
    bool,
    typer.Option(
        "--silent", "-s", metavar=NO_VALUE, help="Print nothing; the exit code tells.", rich_help_panel=_OUTPUT
    ),
]
MinSeverity = Annotated[
    str | None,
    typer.Option(metavar="SEVERITY", help=f"Hide findings below: {one_of(SEVERITIES)}.", rich_help_panel=_OUTPUT),
]
Redact = Annotated[
    bool,
    typer.Option(
        "--redact", metavar=NO_VALUE, rich_help_panel=_OUTPUT,
        help="Leave out what looks like a token or a password in the metadata of the trace.",
    ),
]  # fmt: skip
Logs = Annotated[
    list[str] | None,
    typer.Option(
        "--log", metavar="FILE", rich_help_panel=_FILES,
        help="Console or fallback log of the run; globs and '-' too; repeatable.",
    ),
]  # fmt: skip
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metrics", metavar="FILE", rich_help_panel=_FILES,
        help="Metrics file (PT_HPU_METRICS_FILE); globs and '-' too; repeatable.",
    ),
]  # fmt: skip
Captures = Annotated[
    list[str] | None,
    typer.Option(
        "--capture", metavar="FILE", rich_help_panel=_FILES,
        help="Trace of the capture of device graphs, whose ops stand for the kernels of their replays; repeatable.",
    ),
]  # fmt: skip
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="GLOB", help="Leave out files that match; repeatable.", rich_help_panel=_FILES),
]


def complete_code(incomplete: str) -> list[str]:
    """The codes of the shipped rules that begin so, for the shell."""
    from perftool.engine.rules.pack import builtin_folder

    return sorted(path.stem for path in builtin_folder().rglob("*.toml") if path.stem.startswith(incomplete))


def _many(name: str, text: str, panel: str, metavar: str) -> Any:
    complete = complete_code if metavar == "RULE" else None
    return typer.Option(name, metavar=metavar, help=text, rich_help_panel=panel, autocompletion=complete)


Select = Annotated[
    list[str] | None,
    _many("--select", "Rules to run: codes, names, prefixes, ALL (the default).", _SELECTION, "RULE"),
]
Ignore = Annotated[
    list[str] | None,
    _many("--ignore", "Rules not to run; the more specific selector wins.", _SELECTION, "RULE"),
]
ExtendSelect = Annotated[
    list[str] | None,
    _many("--extend-select", "Rules to run besides those selected.", _SELECTION, "RULE"),
]
ExtendIgnore = Annotated[
    list[str] | None,
    _many("--extend-ignore", "Rules not to run besides those ignored.", _SELECTION, "RULE"),
]
PerFileIgnores = Annotated[
    list[str] | None,
    _many(
        "--per-file-ignores",
        "Quiet rules by file pattern: 'old/*.json:GAP,SYN101'.",
        _GATE,
        "GLOB:RULE",
    ),
]
ExtendPerFileIgnores = Annotated[
    list[str] | None,
    _many("--extend-per-file-ignores", "The same, besides those of the configuration.", _GATE, "GLOB:RULE"),
]
Preview = Annotated[
    bool | None,
    typer.Option("--preview/--no-preview", metavar=NO_VALUE, help="Run preview rules too.", rich_help_panel=_SELECTION),
]
RulePacks = Annotated[
    list[str] | None,
    _many("--rules", "Folder with rules of your own (codes x9xx); repeatable.", _SELECTION, "DIR"),
]
SourceRoots = Annotated[
    list[str] | None,
    typer.Option("--source-root", metavar="DIR", rich_help_panel=_FILES,
                 help="Folder with the source code that traces name, besides the project; repeatable."),
]  # fmt: skip
Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config", metavar="FILE|PAIR", envvar="HABANA_PERF_TOOL_CONFIG", rich_help_panel=_CONFIG,
        help="Use this configuration file, or set one key: 'fail-on = \"error\"'; repeatable.",
    ),
]  # fmt: skip
Isolated = Annotated[
    bool, typer.Option("--isolated", metavar=NO_VALUE, help="Ignore all configuration files.", rich_help_panel=_CONFIG)
]
TrustConfig = Annotated[
    bool,
    typer.Option(
        "--trust-config", metavar=NO_VALUE, rich_help_panel=_CONFIG,
        help="Let a configuration that was found write files, and name any.",
    ),
]  # fmt: skip
ShowSettings = Annotated[
    bool,
    typer.Option(
        "--show-settings",
        metavar=NO_VALUE,
        help="Print the settings in use and where they come from.",
        rich_help_panel=_CONFIG,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs", metavar="N", rich_help_panel=_RANKS,
        help="Worker processes for several ranks; the default suits cores, memory and files.",
    ),
]  # fmt: skip
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler", metavar="WHERE", envvar="HABANA_PERF_TOOL_SCHEDULER", rich_help_panel=_RANKS,
        help="Where ranks are analysed: local (the default), dask://HOST:PORT, tls://..., or a scheduler file.",
    ),
]  # fmt: skip


AsOneRun = Annotated[
    bool,
    typer.Option(
        "--as-one-run",
        metavar=NO_VALUE,
        help="Take all traces for ranks of one run, whatever they say.",
        rich_help_panel=_RANKS,
    ),
]


@dataclass(frozen=True)
class Ranks:
    """Which traces are ranks of a run and where they are analysed, as the command line says it."""

    jobs: int | None = None
    scheduler: str | None = None
    as_one_run: bool = False


@dataclass(frozen=True)
class Given:
    """What the command line sets itself; None where it says nothing. The fields are keys of the configuration."""

    select: list[str] | None = None
    ignore: list[str] | None = None
    extend_select: list[str] | None = None
    extend_ignore: list[str] | None = None
    preview: bool | None = None
    rule_packs: list[str] | None = None
    exclude: list[str] | None = None
    output_format: str | None = None
    output_file: str | None = None
    fail_on: str | None = None
    exit_zero: bool | None = None
    min_severity: str | None = None
    min_confidence: str | None = None
    baseline: str | None = None
    per_file_ignores: list[str] | None = None
    extend_per_file_ignores: list[str] | None = None
    source_roots: list[str] | None = None
    baseline_paths: bool | None = None

    def as_keys(self) -> Mapping[str, Any]:
        """What was given under the names that the configuration uses."""
        found = {field.name.replace("_", "-"): getattr(self, field.name) for field in fields(self)}
        given = {key: value for key, value in found.items() if value not in (None, [])}
        return {key: _per_file(value) if key.endswith("per-file-ignores") else value for key, value in given.items()}


def _per_file(values: Sequence[str]) -> dict[str, list[str]]:
    """The rules by file pattern of ``GLOB:RULE,RULE,GLOB:RULE``; raises PerfToolError for a rule without a pattern."""
    rules: dict[str, list[str]] = {}
    for value in values:
        pattern = ""
        for part in value.split(","):
            head, colon, rule = part.rpartition(":")
            pattern = head.strip() if colon else pattern
            if not pattern or not rule.strip():
                raise PerfToolError(f"per-file ignore {value!r}: must be GLOB:RULE, such as 'old/*.json:GAP'")
            rules.setdefault(pattern, []).append(rule.strip())
    return rules
