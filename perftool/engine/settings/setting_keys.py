"""Every key of the tool's configuration, with its type, and the check of a file against them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perftool.errors import SettingsError
from perftool.model.choices import CONFIDENCES, FAIL_ON, FORMATS, SEVERITIES


@dataclass(frozen=True)
class SettingKey:
    """One key: its type in words, its default, one line about it, and the values it may have."""

    key: str
    type: str
    default: Any
    summary: str
    choices: tuple[str, ...] = ()


KEYS: tuple[SettingKey, ...] = (
    SettingKey("extend", "text", "", "configuration file whose settings this one inherits"),
    SettingKey("select", "list of texts", ["ALL"], "rules to run: codes, names, prefixes of codes, ALL"),
    SettingKey("ignore", "list of texts", [], "rules not to run; the more specific selector wins"),
    SettingKey("extend-select", "list of texts", [], "rules to run besides those selected"),
    SettingKey("extend-ignore", "list of texts", [], "rules not to run besides those ignored"),
    SettingKey("per-file-ignores", "table of lists of texts", {}, "file pattern to rules that are quiet there"),
    SettingKey("extend-per-file-ignores", "table of lists of texts", {}, "the same, besides those inherited"),
    SettingKey("preview", "true or false", False, "run preview rules too"),
    SettingKey("rule-packs", "list of texts", [], "folders with rules of your own (codes x9xx)"),
    SettingKey("source-roots", "list of texts", [], "folders with source code that traces name, besides the project"),
    SettingKey("rules", "table of tables", {}, "per rule: severity, and thresholds by name"),
    SettingKey("exclude", "list of texts", [], "patterns of files to leave out"),
    SettingKey("output-format", "text", "text", "format of the findings", FORMATS),
    SettingKey("output-file", "text", "", "file to write instead of stdout"),
    SettingKey("fail-on", "text", "warning", "severity from which a finding fails the run", FAIL_ON),
    SettingKey("exit-zero", "true or false", False, "exit 0 even with findings"),
    SettingKey("min-severity", "text", "info", "hide findings below this severity", SEVERITIES),
    SettingKey("min-confidence", "text", "low", "hide findings below this confidence", CONFIDENCES),
    SettingKey("baseline", "text", "", "file of accepted findings"),
    SettingKey("baseline-paths", "true or false", False, "what is accepted is accepted in its file only"),
    SettingKey("budgets", "table of budgets", {}, 'limits of numbers, such as step_time_ms = "<= 120"'),
)
BY_KEY: Mapping[str, SettingKey] = {key.key: key for key in KEYS}


def default(key: str) -> Any:
    """What ``key`` is when nothing sets it."""
    return BY_KEY[key].default


def check_values(values: Mapping[str, Any], origin: str) -> None:
    """Raises SettingsError, naming ``origin``, the key and what is expected, when ``values`` do not fit."""
    for name, value in values.items():
        key = BY_KEY.get(name)
        if key is None:
            raise SettingsError(f"{origin}: unknown key {name}; there are {', '.join(BY_KEY)}")
        if not _TYPES[key.type](value):
            raise SettingsError(f"{origin}: key {name} must be a {key.type}")
        if _holds_zero(value):
            raise SettingsError(f"{origin}: key {name} holds a zero byte")
        if key.choices and value not in key.choices:
            raise SettingsError(f"{origin}: key {name}: {value!r} is none of {', '.join(key.choices)}")


def _holds_zero(value: Any) -> bool:
    """Whether a text anywhere in ``value`` has the one character that no path can have."""
    if isinstance(value, dict):
        return any(_holds_zero(part) for pair in value.items() for part in pair)
    return any(map(_holds_zero, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _budget(value: Any) -> bool:
    """A limit (``"<= 120"``, or a number, the most allowed), or a table of a query and its limit."""
    if isinstance(value, dict):
        return set(value) == {"query", "limit"} and _text(value["query"]) and _budget(value["limit"])
    return _text(value) or _number(value)


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "text": _text,
    "true or false": lambda value: isinstance(value, bool),
    "list of texts": _texts,
    "table of lists of texts": lambda value: isinstance(value, dict) and all(map(_texts, value.values())),
    "table of tables": lambda value: isinstance(value, dict) and all(isinstance(part, dict) for part in value.values()),
    "table of budgets": lambda value: isinstance(value, dict) and all(map(_budget, value.values())),
}
