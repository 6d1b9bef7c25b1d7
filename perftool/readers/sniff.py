"""Selects the reader for a text input by its first lines and, if in doubt, by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from perftool.readers.config.run_config import json_flavour
from perftool.readers.files.companions import is_named_like_metrics
from perftool.readers.logs.banner import TITLES
from perftool.readers.logs.bridge_patterns import BRIDGE_PATTERNS
from perftool.readers.logs.compiler_advice import is_advice
from perftool.readers.logs.environment_dump import ASSIGNMENT, is_relevant
from perftool.readers.logs.fallback_log import HEADERS
from perftool.readers.logs.framework_patterns import FRAMEWORK_PATTERNS
from perftool.readers.metrics.compilation_stats import START as COMPILATION_STEP
from perftool.readers.nodes.analyzed_nodes import is_header as is_nodes_header
from perftool.readers.serving.client_result import COMPLETED, is_result
from perftool.readers.serving.client_result import TITLE as RESULT_TITLE
from perftool.readers.serving.metrics_page import is_page
from perftool.readers.text.log_lines import split_prefix
from perftool.readers.trace.envelope import top_keys
from perftool.readers.trace.profiler_csv import is_profiler_header

TextKind = Literal[
    "fallback_log",
    "metrics",
    "runtime_log",
    "config",
    "csv",
    "flight_record",
    "nodes",
    "graph",
    "serving",
    "unknown",
]
TextForm = Literal[
    "metrics", "compilation_stats", "json_config", "environment", "profiler_csv", "flight_record", "analyzed_nodes",
    "nodes_view", "post_graph", "bundle", "compiler_advice", "client_result", "metrics_page", "log", "unknown",
]  # fmt: skip

# How much of an input to examine. A console log may begin with the output of a package installation.
HEAD_CHARACTERS = 256 << 10


@dataclass(frozen=True, slots=True)
class Sniffed:
    """The class of a text input: ``kind`` is the kind of input as users see it; ``form`` selects the reader.

    The kind of a console log depends on its contents (fallback tables, the banner, runtime lines), but its form is
    always ``log``.
    """

    kind: TextKind
    form: TextForm


UNKNOWN, METRICS = Sniffed("unknown", "unknown"), Sniffed("metrics", "metrics")


def sniff(lines: Sequence[str], name: str = "") -> Sniffed:
    """Classify an input by its first lines and the file's name. A trace is not a text input, so it stays unknown."""
    filled = [line for line in lines if line.strip()]
    if not filled:
        return METRICS if is_named_like_metrics(name) else UNKNOWN
    tests = _JSON_TESTS if _JSON.match(filled[0]) else _TESTS
    return next((sniffed for test, sniffed in tests if test(filled, name)), UNKNOWN)


# The bracket must be followed by JSON or by the end of the line, because a log line may also begin with a bracket,
# as in [INFO].
_JSON = re.compile(r'\s*(?:\{\s*(?:["}]|$)|\[\s*(?:[{"\]]|$))')
_METRIC = re.compile(r'\[?\s*\{\s*"metric_name"\s*:')
_METRIC_KEYS = frozenset({"metric_name", "triggered_by", "generated_on"})
_TOP_KEY = re.compile(r'"([^"\\]+)"\s*:')
_TRACE_KEYS = frozenset({"traceEvents", "schemaVersion", "deviceProperties", "displayTimeUnit", "ph"})
_CONFIG_NAME = re.compile(r"(?i)(?:^|[._-])(?:config|ds|deepspeed|zero\d?)(?:[._-]|$)")
_ENVIRONMENT_NAME = re.compile(r"(?i)(?:^|\.)env(?:ironment|iron)?(?:\.|$)")


def _is_json_metrics(lines: list[str], name: str) -> bool:
    """Whether ``lines`` begin like Gaudi's metrics. If the file is named like them, the first record may be damaged,
    and there may be none. Other programs use such names, too."""
    if _METRIC.match("\n".join(lines[:3]).lstrip()):
        return True
    return is_named_like_metrics(name) and (
        not any(line.strip("[] \t\r\n") for line in lines) or not _METRIC_KEYS.isdisjoint(_keys_of_first(lines))
    )


def _is_compilation_stats(lines: list[str], _name: str) -> bool:
    return COMPILATION_STEP.match("\n".join(lines[:3]).lstrip("[ \t\n")) is not None


def _is_text_metrics(lines: list[str], _name: str) -> bool:
    return lines[0].startswith("Metric name: ")


def _is_profiler_csv(lines: list[str], _name: str) -> bool:
    return is_profiler_header(lines[0])


def _is_analyzed_nodes(lines: list[str], _name: str) -> bool:
    return is_nodes_header(lines[0])


def _is_compiler_advice(lines: list[str], _name: str) -> bool:
    return is_advice(lines)


def _is_json_config(lines: list[str], name: str) -> bool:
    keys = frozenset(top_keys("\n".join(lines).encode(errors="replace")))
    if not keys or keys & _TRACE_KEYS:
        return False
    return json_flavour(keys) is not None or _CONFIG_NAME.search(PurePath(name).name) is not None


def _is_client_result(lines: list[str], _name: str) -> bool:
    return is_result(_keys_of_first(lines))


def may_be_result(lines: Sequence[str]) -> bool:
    """Whether an input that begins with ``lines`` may be a benchmark's result, perhaps with its times after long
    lists.
    """
    first = next((line for line in lines if line.strip()), "")
    return _JSON.match(first) is not None and COMPLETED in _keys_of_first(lines)


def _keys_of_first(lines: Sequence[str]) -> set[str]:
    """Return the keys of the first object in an input that begins with ``lines``, which may be an array."""
    return set(top_keys("\n".join(lines).lstrip("[ \t\n").encode(errors="replace")))


def _is_metrics_page(lines: list[str], _name: str) -> bool:
    return is_page(lines)


def is_trace(lines: Sequence[str]) -> bool:
    """Whether ``lines`` begin like a trace."""
    begins = next((line.lstrip()[:1] for line in lines if line.strip()), "")
    return begins in ("{", "[") and any(key in _TRACE_KEYS for line in lines for key in _TOP_KEY.findall(line))


def _is_environment(lines: list[str], name: str) -> bool:
    settings = [line for line in "\n".join(lines).replace("\0", "\n").split("\n") if line.lstrip()[:1] not in "#"]
    matches = [match for line in settings if (match := ASSIGNMENT.match(line))]
    # Many environments contain multi-line values and shell functions.
    if not matches or len(matches) * 2 < len(settings):
        return False
    # A log may begin with the environment of its job.
    others = [line for line in settings if not ASSIGNMENT.match(line)]
    if _is_fallback_log(others, name) or _is_runtime_log(others, name):
        return False
    return bool(_ENVIRONMENT_NAME.search(PurePath(name).name)) or any(is_relevant(match["key"]) for match in matches)


def _is_fallback_log(lines: list[str], _name: str) -> bool:
    return any(text in line for text in (*HEADERS, "CPU fallback ") for line in lines)


_RUNTIME_CORES = (
    *TITLES,
    RESULT_TITLE,
    *(known.core for known in (*BRIDGE_PATTERNS, *FRAMEWORK_PATTERNS) if len(known.core) > 9),
)


def _is_runtime_log(lines: list[str], _name: str) -> bool:
    return any(split_prefix(line)[0].is_logger for line in lines) or any(
        core in line for core in _RUNTIME_CORES for line in lines
    )


# JSON is classified by these tests only, because it may contain strings that identify a log.
_JSON_TESTS: tuple[tuple[Callable[[list[str], str], bool], Sniffed], ...] = (
    (_is_json_metrics, METRICS),
    (_is_compilation_stats, Sniffed("metrics", "compilation_stats")),
    (_is_client_result, Sniffed("serving", "client_result")),
    (_is_json_config, Sniffed("config", "json_config")),
)
_TESTS: tuple[tuple[Callable[[list[str], str], bool], Sniffed], ...] = (
    (_is_text_metrics, METRICS),
    (_is_profiler_csv, Sniffed("csv", "profiler_csv")),
    (_is_analyzed_nodes, Sniffed("nodes", "analyzed_nodes")),
    (_is_compiler_advice, Sniffed("runtime_log", "compiler_advice")),
    (_is_metrics_page, Sniffed("serving", "metrics_page")),
    (_is_environment, Sniffed("config", "environment")),
    (_is_fallback_log, Sniffed("fallback_log", "log")),
    (_is_runtime_log, Sniffed("runtime_log", "log")),
)
