"""The settings of a run, merged from defaults, files, --config pairs and options."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from perftool.engine.rules.selection import ALL, COMMAND_LINE, Selection, Selector, selectors
from perftool.engine.settings.settings_file import Layer, discover, file_layers, inline_layer
from perftool.engine.settings.table import BY_KEY, Keys, check_values, typed
from perftool.errors import SettingsError
from perftool.model.choices import SEVERITIES, Severity
from perftool.model.rule import Param, Rule
from perftool.model.toml_text import parse_toml

DEFAULTS = "the defaults"

# The number of per-file-ignores patterns is limited, because each is compared with every input.
_MOST_PER_FILE = 1000


@dataclass(frozen=True)
class Override:
    """The changes that a ``[rules.CODE]`` table makes to a rule. ``origin`` is the file of the table."""

    rule: str
    severity: str | None
    params: Mapping[str, Any]
    origin: str


@dataclass(frozen=True)
class BudgetText:
    """An unparsed budget: a limit on the metric ``name`` or on the result of ``query``. ``origin`` says who set it."""

    name: str
    limit: str
    query: str | None
    origin: str


@dataclass(frozen=True)
class Settings(Keys):
    """The settings of a run: the values of the keys, with selections and tables merged from all places.

    ``values`` contains the keys that are set, as written, and ``origins`` says where each of them was set. ``files``
    lists the configuration files.
    """

    selection: Selection = field(default_factory=Selection)
    overrides: tuple[Override, ...] = ()
    file_ignores: tuple[tuple[str, tuple[Selector, ...]], ...] = ()
    limits: tuple[BudgetText, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = field(default=(), compare=False)


def load_settings(
    paths: Sequence[str],
    config: Sequence[str] = (),
    isolated: bool = False,
    options: Mapping[str, Any] | None = None,
    trust: bool = False,
    gate: bool = False,
) -> Settings:
    """Load the settings for the inputs ``paths``.

    ``config`` contains the values of --config: at most one file, and any number of ``key = value`` pairs. ``options``
    are keys set on the command line. ``trust`` allows a discovered file to set everything that a named file may set.
    With ``gate``, configuration files next to the inputs are ignored. Raise SettingsError, which states the file, the
    key and the expected type.
    """
    files = [text for text in config if _is_file(text)]
    pairs = [text for text in config if not _is_file(text)]
    if len(files) > 1:
        raise SettingsError(f"--config names {len(files)} files; only one is allowed")
    if files and isolated:
        raise SettingsError("--isolated ignores configuration files, so --config must not name one")
    found = Path(files[0]) if files else None if isolated else discover(paths, gate)
    set_options = {key: value for key, value in (options or {}).items() if value is not None}
    check_values(set_options, COMMAND_LINE)
    layers = [
        *(file_layers(found, bool(files) or trust) if found else []),
        *map(inline_layer, pairs),
        Layer(COMMAND_LINE, set_options),
    ]
    return merge(layers)


def merge(layers: Sequence[Layer]) -> Settings:
    """Merge ``layers`` into settings. The last layer wins, except that ``extend-`` keys, rules and budgets add up."""
    kept = [layer for layer in layers if layer.values]
    last = {key: (layer.values[key], layer.origin) for layer in kept for key in layer.values}
    value = {key: found for key, (found, _) in last.items()}
    keys = typed(value)
    if keys.get("run") and keys.get("as_one_run"):
        if last["run"][1] == last["as-one-run"][1]:
            raise SettingsError(f"{last['run'][1]}: --run and --as-one-run exclude each other")
        del keys["as_one_run" if _is_later("run", "as-one-run", kept) else "run"]
    select = _selected(kept, "select", "extend-select") or (Selector(ALL, DEFAULTS),)
    return Settings(
        **keys,
        selection=Selection(select, _selected(kept, "ignore", "extend-ignore"), keys.get("preview", False)),
        overrides=tuple(_overrides(kept)),
        file_ignores=tuple(_per_file(kept)),
        limits=tuple(_budgets(kept)),
        values=value,
        origins={key: origin for key, (_, origin) in last.items()},
        files=tuple(str(layer.file) for layer in layers if layer.file),
    )


def adjust(rules: Sequence[Rule], overrides: Iterable[Override]) -> list[Rule]:
    """Apply ``overrides`` to ``rules``. Raise SettingsError for an unknown rule, threshold or severity."""
    adjusted = {rule.code: rule for rule in rules}
    codes = {text: rule.code for rule in rules for text in (rule.code, rule.name, *rule.retired)}
    for override in overrides:
        if override.rule not in codes:
            raise SettingsError(f"{override.origin}: key rules.{override.rule}: there is no such rule")
        code = codes[override.rule]
        adjusted[code] = _adjusted(adjusted[code], override)
    return list(adjusted.values())


def _is_later(key: str, than: str, layers: Sequence[Layer]) -> bool:
    """Whether the last layer with ``key`` comes after the last one with ``than``."""
    return next(key in layer.values for layer in reversed(layers) if key in layer.values or than in layer.values)


def _is_file(text: str) -> bool:
    """Whether to take a value of --config as a file name. A valid KEY=VALUE pair is never taken as a file name,
    because someone else may have created a file with that name."""
    if "=" not in text:
        return True
    try:
        parse_toml(text)
    except ValueError:
        return os.path.isfile(text)
    return False


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
        if len(found) > _MOST_PER_FILE:
            raise SettingsError(f"{layer.origin}: per-file-ignores has more than {_MOST_PER_FILE:,} patterns")
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
            found[name] = BudgetText(name, str(written), query, _origin(layer, f"budgets.{name}"))
    return found.values()


def _adjusted(rule: Rule, override: Override) -> Rule:
    place = f"{override.origin}: key rules.{override.rule}"
    severity = override.severity
    if severity is not None and severity not in SEVERITIES:
        raise SettingsError(f"{place}.severity: {severity!r} is not one of {', '.join(SEVERITIES)}")
    params = {param.name: param for param in rule.params}
    for name, value in override.params.items():
        if name not in params:
            known = ", ".join(["severity", *params])
            raise SettingsError(f"{place}: unknown key {name}; {rule.code} has {known}")
        params[name] = _with_value(params[name], value, place)
    chosen: Severity = next(known for known in get_args(Severity) if known == (severity or rule.severity))
    is_set = rule.severity_is_set or severity is not None
    return replace(rule, severity=chosen, severity_is_set=is_set, params=tuple(params.values()))


def _with_value(param: Param, value: Any, place: str) -> Param:
    if isinstance(param.value, bool) or isinstance(value, bool):
        fits, expected = isinstance(param.value, bool) and isinstance(value, bool), "true or false"
    elif isinstance(param.value, str):
        fits, expected = isinstance(value, str), "a string"
    else:
        fits, expected = isinstance(value, (int, float)), f"a number ({param.unit})"
    if not fits:
        raise SettingsError(f"{place}.{param.name} must be {expected}")
    return replace(param, value=value)


def describe(settings: Settings) -> list[tuple[str, Any, str]]:
    """Return all keys with their values (None if not set) and where they were set."""
    return [(key, settings.values.get(key), settings.origins.get(key, DEFAULTS)) for key in BY_KEY]
