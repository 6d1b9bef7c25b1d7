"""The table of options: a row for each configuration key, with its option and its environment variable.

Parsing, help, defaults, the command ``config``, the schema of the configuration and ``docs/options.md`` are based on
these rows. ``perftool.commands.options`` contains the rows of options that a configuration cannot set. Options of a
single command are parameters of its function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

from perftool.errors import SettingsError
from perftool.model.choices import CONFIDENCES, FAIL_ON, FORMATS, SEVERITIES, LintFormat, ReportFormat, one_of

# Commands that read the traces of a run.
RUNS = ("analyze", "lint", "report", "annotate", "whatif", "diff", "query", "export")
# Commands that read a single run, and therefore accept its logs.
ONE_RUN = tuple(name for name in RUNS if name != "diff")
# Commands that can use several processes to read ranks.
SPREAD = ("analyze", "lint", "report", "diff", "query", "export")
# Commands that evaluate rules.
RULED = ("analyze", "lint", "report", "annotate", "diff", "merge")
CONFIGURED = (*RUNS, "merge")
# Stands for options given before a command, or without a command.
ROOT = "habana_perf_tool"

SELECTION, CONFIG, FILES, OUTPUT = "Rule selection", "Configuration", "File selection", "Output"
RANKS, GATE = "Many ranks", "Gate"


@dataclass(frozen=True)
class Row:
    """An option, a configuration key, or both.

    ``on`` lists the commands that have the option. ``formats`` contains its choices by command if they differ.
    ``least`` is the smallest number allowed. Values of a ``path`` key that end in ``ending`` are relative to the
    configuration file. A discovered configuration is untrusted: it may only name files in its own folder, and
    ``refused`` says what it may not do with this key.
    """

    help: str
    flags: tuple[str, ...] = ()
    panel: str | None = None
    metavar: str = ""
    on: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    formats: Mapping[str, type[Enum]] = field(default_factory=dict)
    env: bool = False
    path: bool = False
    ending: str = ""
    refused: str = ""
    least: int | None = None
    name: str = ""
    kind: str = ""
    default: Any = None

    @property
    def key(self) -> str:
        """The key in a configuration file."""
        return self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        """The option, by default ``--`` and the key."""
        return self.flags[0] if self.flags else f"--{self.key}"

    @property
    def variable(self) -> str | None:
        """The environment variable that sets the option; None if there is none."""
        return f"HABANA_PERF_TOOL_{self.flag[2:].replace('-', '_').upper()}" if self.env else None

    @property
    def type(self) -> str:
        """The type in words, for messages."""
        return _TYPES[self.kind][0]

    @property
    def written_default(self) -> Any:
        """The default in TOML; None if TOML cannot express it."""
        if isinstance(self.default, tuple):
            return list(self.default)
        return "" if self.default is None and self.type == "string" else self.default

    def sentence(self, command: str) -> str:
        """Return the help text of the option in ``command``, with its choices and the default."""
        words = self.formats.get(command) or self.choices
        return f"{self.help}: {one_of(words, self.default)}." if words else f"{self.help}."


def row(default: Any, text: str, *flags: str, **more: Any) -> Any:
    """Declare a field of a table with its ``default``, help ``text`` and ``flags``. ``more`` are fields of Row."""
    made = Row(text, flags, **more)
    if isinstance(default, dict):
        return field(default_factory=dict, metadata={"row": made})
    return field(default=default, metadata={"row": made})


def rows_of(table: type) -> tuple[Row, ...]:
    """Return the rows of the dataclass ``table``, in the order of its fields."""
    found = []
    for one in fields(table):
        if "row" in one.metadata:
            default = {} if callable(one.default_factory) else one.default
            found.append(replace(one.metadata["row"], name=one.name, kind=str(one.type), default=default))
    return tuple(found)


@dataclass(frozen=True)
class Keys:
    """All configuration keys with their defaults. ``Settings`` merges the values from several places."""

    extend: str = row("", "Configuration file whose settings this one inherits", path=True)
    log: tuple[str, ...] = row(
        (), "Console or fallback log of the run, a glob, or '-' for stdin; repeatable",
        panel=FILES, metavar="FILE", on=(*ONE_RUN, ROOT), path=True,
    )  # fmt: skip
    metrics: tuple[str, ...] = row(
        (), "Metrics file (PT_HPU_METRICS_FILE), a glob, or '-' for stdin; repeatable",
        panel=FILES, metavar="FILE", on=(*ONE_RUN, ROOT), path=True,
    )  # fmt: skip
    capture: tuple[str, ...] = row(
        (), "Trace of a graph capture; it shows which ops launched the kernels of graph replays; repeatable",
        panel=FILES, metavar="FILE", on=ONE_RUN, path=True,
    )  # fmt: skip
    device: str | None = row(
        None, "Device of the traces, overriding what they state: a name such as MI300X, H100 or GAUDI2, or a peaks "
        "file (*.toml) from benchmark --peaks",
        panel=FILES, metavar="NAME", on=RUNS, path=True, ending=".toml",
    )  # fmt: skip
    exclude: tuple[str, ...] = row((), "Leave out files that match; repeatable", panel=FILES, metavar="GLOB", on=RUNS)
    run: str | None = row(
        None, "Run to read, if a folder has several: its name, a part of it, or 'newest'; by default the newest "
        "complete run, but gates require an explicit choice",
        panel=FILES, metavar="NAME", on=RUNS,
    )  # fmt: skip
    source_roots: tuple[Path, ...] = row(
        (), "Another folder, besides the project, with source files that traces refer to; repeatable", "--source-root",
        panel=FILES, metavar="DIR", on=("analyze", "lint", "report"), path=True,
    )  # fmt: skip
    select: tuple[str, ...] = row(
        ("ALL",), "Rules to run: codes, names, prefixes, ALL (the default)", panel=SELECTION, metavar="RULE", on=RULED
    )
    ignore: tuple[str, ...] = row(
        (), "Rules not to run; the more specific selector wins", panel=SELECTION, metavar="RULE", on=RULED
    )
    extend_select: tuple[str, ...] = row((), "Additional rules to run", panel=SELECTION, metavar="RULE", on=RULED)
    extend_ignore: tuple[str, ...] = row((), "Additional rules not to run", panel=SELECTION, metavar="RULE", on=RULED)
    preview: bool = row(False, "Run preview rules too", "--preview/--no-preview", panel=SELECTION, on=RULED)
    rule_packs: tuple[Path, ...] = row(
        (), "Folder with your own rules (codes x9xx); repeatable", "--rules",
        panel=SELECTION, metavar="DIR", on=(*RULED, "whatif"), path=True,
    )  # fmt: skip
    rules: Mapping[str, Mapping[str, Any]] = row({}, "Per rule: severity, and thresholds by name")
    per_file_ignores: Mapping[str, Sequence[str]] = row(
        {}, "Silence rules by file pattern: 'old/*.json:GAP,SYN101'", panel=GATE, metavar="GLOB:RULE", on=("lint",)
    )
    extend_per_file_ignores: Mapping[str, Sequence[str]] = row(
        {},
        "Like --per-file-ignores, in addition to the patterns of the configuration",
        panel=GATE,
        metavar="GLOB:RULE",
        on=("lint",),
    )
    fail_on: str = row(
        "warning",
        "Exit 1 on findings of at least this severity",
        panel=GATE,
        metavar="SEVERITY",
        choices=FAIL_ON,
        on=("lint",),
    )
    exit_zero: bool = row(False, "Exit 0 even with findings", "--exit-zero", "-e", panel=GATE, on=("lint",))
    min_confidence: str = row(
        "low", "Hide findings of lower confidence", panel=GATE, metavar="LEVEL", choices=CONFIDENCES, on=("lint",)
    )
    baseline: Path | None = row(
        None, "Hide findings that this baseline file accepts", panel=GATE, metavar="FILE", on=("lint",), path=True
    )
    baseline_paths: bool = row(
        False, "Accept a finding only in the file that its baseline entry names", panel=GATE, on=("lint",)
    )
    budgets: Mapping[str, Any] = row({}, 'Limits on metrics, such as step_time_ms = "<= 120"')
    min_severity: str = row(
        "info", "Hide findings of lower severity",
        panel=OUTPUT, metavar="SEVERITY", choices=SEVERITIES, on=("analyze", "lint", "merge"),
    )  # fmt: skip
    output_format: str = row(
        "text", "Format of the report", panel=OUTPUT, metavar="FORMAT", choices=FORMATS, env=True,
        on=("analyze", "merge", "lint", ROOT),
        formats={"analyze": ReportFormat, "merge": ReportFormat, "lint": LintFormat, ROOT: ReportFormat},
    )  # fmt: skip
    output_file: str | None = row(
        None, "Write the output here instead of to stdout", "--output-file", "-o",
        panel=OUTPUT, metavar="FILE", env=True, on=("analyze", "lint", "report", "merge", ROOT), path=True,
        refused="may not write files",
    )  # fmt: skip
    as_one_run: bool = row(False, "Treat all traces as ranks of one run, whatever they state", panel=RANKS, on=RUNS)
    jobs: int | None = row(
        None, "Worker processes for several ranks; the default depends on cores, memory and files",
        panel=RANKS, metavar="N", on=SPREAD, refused="may not start processes",
    )  # fmt: skip


KEYS = rows_of(Keys)
BY_KEY: Mapping[str, Row] = {key.key: key for key in KEYS}


def check_values(values: Mapping[str, Any], origin: str) -> None:
    """Raise SettingsError, which states ``origin``, the key and the expected type, if any of ``values`` is invalid."""
    for name, value in values.items():
        key = BY_KEY.get(name)
        if key is None:
            raise SettingsError(f"{origin}: unknown key {name}; the keys are {', '.join(BY_KEY)}")
        if not _TYPES[key.kind][1](value):
            raise SettingsError(f"{origin}: key {name} must be a {key.type}")
        if _holds_zero(value):
            raise SettingsError(f"{origin}: key {name} contains a zero byte")
        if key.choices and value not in key.choices:
            raise SettingsError(f"{origin}: key {name}: {value!r} is not one of {', '.join(key.choices)}")


def typed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the checked ``values`` of a configuration to fields of Keys."""
    return {key.name: _TYPES[key.kind][2](values[key.key]) for key in KEYS if key.key in values}


def _holds_zero(value: Any) -> bool:
    """Whether any string in ``value`` contains a zero byte, which no path can contain."""
    if isinstance(value, dict):
        return any(_holds_zero(part) for pair in value.items() for part in pair)
    return any(map(_holds_zero, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _budget(value: Any) -> bool:
    """Whether ``value`` is a limit (``"<= 120"`` or a number), or a table with a query and its limit."""
    if isinstance(value, dict):
        return set(value) == {"query", "limit"} and _text(value["query"]) and _budget(value["limit"])
    return _text(value) or _number(value)


def _table(value: Any, holds: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(map(holds, value.values()))


# By field type: its name in messages, a check of a value from a file, and the conversion of that value.
_TYPES: Mapping[str, tuple[str, Callable[[Any], bool], Callable[[Any], Any]]] = {
    "str": ("string", _text, str),
    "str | None": ("string", _text, lambda value: value or None),
    "Path | None": ("string", _text, lambda value: Path(value) if value else None),
    "bool": ("boolean", lambda value: isinstance(value, bool), bool),
    "int | None": ("whole number", _count, int),
    "tuple[str, ...]": ("list of strings", _texts, tuple),
    "tuple[Path, ...]": ("list of strings", _texts, lambda value: tuple(map(Path, value))),
    "Mapping[str, Sequence[str]]": ("table of lists of strings", lambda value: _table(value, _texts), dict),
    "Mapping[str, Mapping[str, Any]]": (
        "table of tables",
        lambda value: _table(value, lambda part: isinstance(part, dict)),
        dict,
    ),
    "Mapping[str, Any]": ("table of budgets", lambda value: _table(value, _budget), dict),
}
