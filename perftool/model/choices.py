"""The choices of options, settings and rules."""

from __future__ import annotations

from enum import Enum
from typing import Literal

Severity = Literal["error", "warning", "info"]
Confidence = Literal["high", "medium", "low"]

# In descending order.
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")
# Values of the setting for the lowest severity that fails a run.
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
    """When output is in colour."""

    auto = "auto"
    always = "always"
    never = "never"


# The formats that a configuration may name. A command without the configured format prints text.
FORMATS = tuple(dict.fromkeys(form.value for form in (*LintFormat, *ReportFormat)))


def one_of(words: tuple[str, ...] | type[Enum], default: str | None = None) -> str:
    """``words`` as a list for help texts, with the default marked."""
    texts = words if isinstance(words, tuple) else tuple(str(member.value) for member in words)
    return ", ".join(f"{text} (the default)" if text == default else text for text in texts)
