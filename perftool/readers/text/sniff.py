"""Which reader a text input belongs to, told by its first lines and, in doubt, by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from perftool.readers.config.run_config import json_flavour
from perftool.readers.logs.banner import TITLES
from perftool.readers.logs.bridge_patterns import BRIDGE_PATTERNS
from perftool.readers.logs.environment_dump import ASSIGNMENT, is_relevant
from perftool.readers.logs.fallback_log import HEADERS
from perftool.readers.logs.framework_patterns import FRAMEWORK_PATTERNS
from perftool.readers.metrics.compilation_stats import START as COMPILATION_STEP
from perftool.readers.text.log_lines import split_prefix
from perftool.readers.trace.profiler_csv import is_profiler_header

TextKind = Literal["fallback_log", "metrics", "runtime_log", "config", "csv", "flight_record", "unknown"]
TextForm = Literal[
    "metrics", "compilation_stats", "json_config", "environment", "profiler_csv", "flight_record", "log", "unknown"
]

# How much of an input is worth a look: a console log can begin with pages of package installation.
HEAD_CHARACTERS = 256 << 10


@dataclass(frozen=True, slots=True)
class Sniffed:
    """``kind`` is what the input is to a user, ``form`` which reader takes it.

    One console log may hold fallback tables, the banner and runtime lines: its kind is the first that
    applies, its form is ``log`` either way.
    """

    kind: TextKind
    form: TextForm


UNKNOWN = Sniffed("unknown", "unknown")


def sniff(lines: Sequence[str], name: str = "") -> Sniffed:
    """Decide from the first lines of a text and the file's name; a trace is not a text and stays unknown."""
    filled = [line for line in lines if line.strip()]
    if not filled:
        return UNKNOWN
    return next((sniffed for test, sniffed in _TESTS if test(filled, name)), UNKNOWN)


_METRIC = re.compile(r'\[?\s*\{\s*"metric_name"\s*:')
_TOP_KEY = re.compile(r'"([^"\\]+)"\s*:')
_TRACE_KEYS = frozenset({"traceEvents", "schemaVersion", "deviceProperties", "displayTimeUnit", "ph"})
_CONFIG_NAME = re.compile(r"(?i)(?:^|[._-])(?:config|ds|deepspeed|zero\d?)(?:[._-]|$)")
_ENVIRONMENT_NAME = re.compile(r"(?i)(?:^|\.)env(?:ironment|iron)?(?:\.|$)")


def _is_json_metrics(lines: list[str], _name: str) -> bool:
    return _METRIC.match("\n".join(lines[:3]).lstrip()) is not None


def _is_compilation_stats(lines: list[str], _name: str) -> bool:
    return COMPILATION_STEP.match("\n".join(lines[:3]).lstrip("[ \t\n")) is not None


def _is_text_metrics(lines: list[str], _name: str) -> bool:
    return lines[0].startswith("Metric name: ")


def _is_profiler_csv(lines: list[str], _name: str) -> bool:
    return is_profiler_header(lines[0])


def _is_json_config(lines: list[str], name: str) -> bool:
    if not lines[0].lstrip().startswith("{"):
        return False
    keys = frozenset(key for line in lines for key in _TOP_KEY.findall(line))
    if keys & _TRACE_KEYS:
        return False
    return json_flavour(keys) is not None or _CONFIG_NAME.search(PurePath(name).name) is not None


def is_trace(lines: Sequence[str]) -> bool:
    """Whether a text begins as a trace does."""
    begins = next((line.lstrip()[:1] for line in lines if line.strip()), "")
    return begins in ("{", "[") and any(key in _TRACE_KEYS for line in lines for key in _TOP_KEY.findall(line))


def _is_environment(lines: list[str], name: str) -> bool:
    settings = [line for line in "\n".join(lines).replace("\0", "\n").split("\n") if line.lstrip()[:1] not in "#"]
    matches = [match for line in settings if (match := ASSIGNMENT.match(line))]
    # Values of several lines and shell functions are part of many environments.
    if not matches or len(matches) * 2 < len(settings):
        return False
    return bool(_ENVIRONMENT_NAME.search(PurePath(name).name)) or any(is_relevant(match["key"]) for match in matches)


def _is_fallback_log(lines: list[str], _name: str) -> bool:
    return any(text in line for text in (*HEADERS, "CPU fallback ") for line in lines)


_RUNTIME_CORES = (
    *TITLES,
    *(known.core for known in (*BRIDGE_PATTERNS, *FRAMEWORK_PATTERNS) if len(known.core) > 9),
)


def _is_runtime_log(lines: list[str], _name: str) -> bool:
    return any(split_prefix(line)[0].is_logger for line in lines) or any(
        core in line for core in _RUNTIME_CORES for line in lines
    )


_TESTS: tuple[tuple[Callable[[list[str], str], bool], Sniffed], ...] = (
    (_is_json_metrics, Sniffed("metrics", "metrics")),
    (_is_compilation_stats, Sniffed("metrics", "compilation_stats")),
    (_is_text_metrics, Sniffed("metrics", "metrics")),
    (_is_profiler_csv, Sniffed("csv", "profiler_csv")),
    (_is_json_config, Sniffed("config", "json_config")),
    (_is_environment, Sniffed("config", "environment")),
    (_is_fallback_log, Sniffed("fallback_log", "log")),
    (_is_runtime_log, Sniffed("runtime_log", "log")),
)
