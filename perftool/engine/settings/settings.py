"""The settings of a run: the defaults, files, --config pairs and options, laid over one another."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from perftool.engine.rules.selection import ALL, COMMAND_LINE, Selection, Selector, selectors
from perftool.engine.settings.setting_keys import BY_KEY, check_values, default
from perftool.engine.settings.settings_file import Layer, discover, file_layers, inline_layer
from perftool.errors import SettingsError
from perftool.model.choices import SEVERITIES, Severity
from perftool.model.rule import Param, Rule

DEFAULTS = "the defaults"


@dataclass(frozen=True)
class Override:
    """What a ``[rules.CODE]`` table changes of one rule; ``origin`` is the file it stands in."""

    rule: str
    severity: str | None
    params: Mapping[str, Any]
    origin: str


@dataclass(frozen=True)
class BudgetText:
    """A budget as written: the limit of a number of the summary, or of what ``query`` gives."""

    name: str
    limit: str
    query: str | None
    origin: str


@dataclass(frozen=True)
class Settings:
    """What a run uses. ``origins`` names, for each key that is set, the place that set it."""

    selection: Selection = field(default_factory=Selection)
    rule_packs: tuple[Path, ...] = ()
    source_roots: tuple[Path, ...] = ()
    overrides: tuple[Override, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[Selector, ...]], ...] = ()
    exclude: tuple[str, ...] = ()
    output_format: str = default("output-format")
    output_file: str | None = None
    fail_on: str = default("fail-on")
    exit_zero: bool = False
    min_severity: str = default("min-severity")
    min_confidence: str = default("min-confidence")
    baseline: Path | None = None
    baseline_paths: bool = False
    budgets: tuple[BudgetText, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)


def load_settings(
    paths: Sequence[str],
    config: Sequence[str] = (),
    isolated: bool = False,
    options: Mapping[str, Any] | None = None,
    trust: bool = False,
) -> Settings:
    """The settings for the inputs ``paths``.

    ``config`` holds what --config got: at most one file, and ``key = value`` pairs. ``options`` are the keys that
    the command line sets itself. ``trust`` lets a file that was found do what one that was named may. Raises
    SettingsError naming file, key and expected type.
    """
    files = [text for text in config if _is_file(text)]
    pairs = [text for text in config if not _is_file(text)]
    if len(files) > 1:
        raise SettingsError(f"--config names {len(files)} files; it can name one")
    if files and isolated:
        raise SettingsError("--isolated ignores files, and --config names one")
    found = Path(files[0]) if files else None if isolated else discover(paths)
    given = {key: value for key, value in (options or {}).items() if value is not None}
    check_values(given, COMMAND_LINE)
    layers = [
        *(file_layers(found, bool(files) or trust) if found else []),
        *map(inline_layer, pairs),
        Layer(COMMAND_LINE, given),
    ]
    return merge(layers)


def merge(layers: Iterable[Layer]) -> Settings:
    """The settings that result from ``layers``, the last one winning; selections and tables add up."""
    kept = [layer for layer in layers if layer.values]
    last = {key: (layer.values[key], layer.origin) for layer in kept for key in layer.values}
    value = {key: found for key, (found, _) in last.items()}
    used = {key: value.get(key, known.default) for key, known in BY_KEY.items()}
    select = _selected(kept, "select", "extend-select") or (Selector(ALL, DEFAULTS),)
    return Settings(
        selection=Selection(select, _selected(kept, "ignore", "extend-ignore"), used["preview"]),
        rule_packs=tuple(Path(path) for path in used["rule-packs"]),
        source_roots=tuple(Path(path) for path in used["source-roots"]),
        overrides=tuple(_overrides(kept)),
        per_file_ignores=tuple(_per_file(kept)),
        exclude=tuple(used["exclude"]),
        output_format=used["output-format"],
        output_file=used["output-file"] or None,
        fail_on=used["fail-on"],
        exit_zero=used["exit-zero"],
        baseline_paths=used["baseline-paths"],
        min_severity=used["min-severity"],
        min_confidence=used["min-confidence"],
        baseline=Path(used["baseline"]) if used["baseline"] else None,
        budgets=tuple(_budgets(kept)),
        values=value,
        origins={key: origin for key, (_, origin) in last.items()},
    )


def adjust(rules: Sequence[Rule], overrides: Iterable[Override]) -> list[Rule]:
    """``rules`` with their overrides applied. Raises SettingsError for an unknown rule, threshold or severity."""
    adjusted = {rule.code: rule for rule in rules}
    codes = {text: rule.code for rule in rules for text in (rule.code, rule.name, *rule.retired)}
    for override in overrides:
        if override.rule not in codes:
            raise SettingsError(f"{override.origin}: key rules.{override.rule}: there is no such rule")
        code = codes[override.rule]
        adjusted[code] = _adjusted(adjusted[code], override)
    return list(adjusted.values())


def _is_file(text: str) -> bool:
    return "=" not in text or os.path.isfile(text)


def _selected(layers: Sequence[Layer], key: str, extension: str) -> tuple[Selector, ...]:
    chosen: tuple[Selector, ...] = ()
    base: tuple[Selector, ...] = (Selector(ALL, DEFAULTS),) if key == "select" else ()
    for layer in layers:
        if key in layer.values:
            base, chosen = selectors(layer.values[key], _origin(layer, key)), ()
        chosen += selectors(layer.values.get(extension, ()), _origin(layer, extension))
    return base + chosen


def _origin(layer: Layer, key: str) -> str:
    return layer.origin if layer.origin == COMMAND_LINE else f"{layer.origin}, key {key}"


def _per_file(layers: Sequence[Layer]) -> Iterable[tuple[str, tuple[Selector, ...]]]:
    found: list[tuple[str, tuple[Selector, ...]]] = []
    for layer in layers:
        if "per-file-ignores" in layer.values:
            found = []
        for key in ("per-file-ignores", "extend-per-file-ignores"):
            for pattern, codes in layer.values.get(key, {}).items():
                found.append((pattern, selectors(codes, _origin(layer, f"{key}.{pattern}"))))
    return found


def _overrides(layers: Sequence[Layer]) -> Iterable[Override]:
    for layer in layers:
        for rule, table in layer.values.get("rules", {}).items():
            params = {key.replace("-", "_"): value for key, value in table.items() if key != "severity"}
            yield Override(rule, table.get("severity"), params, layer.origin)


def _budgets(layers: Sequence[Layer]) -> Iterable[BudgetText]:
    found: dict[str, BudgetText] = {}
    for layer in layers:
        for name, limit in layer.values.get("budgets", {}).items():
            query = limit["query"] if isinstance(limit, dict) else None
            written = limit["limit"] if isinstance(limit, dict) else limit
            text = written if isinstance(written, str) else f"<= {written}"
            found[name] = BudgetText(name, text, query, _origin(layer, f"budgets.{name}"))
    return found.values()


def _adjusted(rule: Rule, override: Override) -> Rule:
    place = f"{override.origin}: key rules.{override.rule}"
    severity = override.severity
    if severity is not None and severity not in SEVERITIES:
        raise SettingsError(f"{place}.severity: {severity!r} is none of {', '.join(SEVERITIES)}")
    params = {param.name: param for param in rule.params}
    for name, value in override.params.items():
        if name not in params:
            known = ", ".join(["severity", *params])
            raise SettingsError(f"{place}: unknown key {name}; {rule.code} has {known}")
        params[name] = _with_value(params[name], value, place)
    chosen: Severity = next(known for known in get_args(Severity) if known == (severity or rule.severity))
    return replace(rule, severity=chosen, params=tuple(params.values()))


def _with_value(param: Param, value: Any, place: str) -> Param:
    if isinstance(param.value, bool) or isinstance(value, bool):
        fits, expected = isinstance(param.value, bool) and isinstance(value, bool), "true or false"
    elif isinstance(param.value, str):
        fits, expected = isinstance(value, str), "a text"
    else:
        fits, expected = isinstance(value, (int, float)), f"a number ({param.unit})"
    if not fits:
        raise SettingsError(f"{place}.{param.name} must be {expected}")
    return replace(param, value=value)


def describe(settings: Settings) -> list[tuple[str, Any, str]]:
    """Every key with the value in use (None: the default) and the place that set it."""
    return [(key, settings.values.get(key), settings.origins.get(key, DEFAULTS)) for key in BY_KEY]
