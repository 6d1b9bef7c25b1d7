"""The choices of options, settings and rules."""

from __future__ import annotations

from enum import Enum
from typing import Literal

Severity = Literal["error", "warning", "info"]
Confidence = Literal["high", "medium", "low"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")
FAIL_ON = (*SEVERITIES, "never")


class LintFormat(str, Enum):
    """The formats in which ``lint`` writes findings; ``perftool.reporters.lint.formats`` lists their writers."""

    text = "text"
    json = "json"
    json_lines = "json-lines"
    sarif = "sarif"
    junit = "junit"
    github = "github"
    gitlab = "gitlab"


class ReportFormat(str, Enum):
    """The formats in which ``analyze`` and ``merge`` write the report."""

    text = "text"
    json = "json"
    openmetrics = "openmetrics"


class Color(str, Enum):
    """When to colour the output."""

    auto = "auto"
    always = "always"
    never = "never"


# The formats that a configuration may set. A command that does not support the configured format prints text.
FORMATS = tuple(dict.fromkeys(form.value for form in (*LintFormat, *ReportFormat)))


def one_of(words: tuple[str, ...] | type[Enum], default: str | None = None) -> str:
    """Join ``words`` into a list for a help message, and mark the default."""
    texts = words if isinstance(words, tuple) else tuple(str(member.value) for member in words)
    return ", ".join(f"{text} (the default)" if text == default else text for text in texts)
