"""Configuration files: which one counts, what it inherits, and its values with their origin."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perftool.engine.rules.pack import pack_files
from perftool.engine.settings.setting_keys import check_values
from perftool.engine.settings.toml_text import parse_toml
from perftool.errors import SettingsError
from perftool.readers.files.small_file import read_small

# In the order in which one folder is searched.
FILE_NAMES = (".habana_perf_tool.toml", "habana_perf_tool.toml", "pyproject.toml")
_TABLE = "habana_perf_tool"
# A file may extend one that extends another; nobody stacks more.
_MOST_FILES = 20
_READ_PATHS = ("extend", "baseline")
_PATHS = ("output-file", "baseline")
_PATH_LISTS = ("rule-packs", "source-roots")


@dataclass(frozen=True)
class Layer:
    """Settings from one place, checked; ``origin`` names it. A later layer wins over an earlier one."""

    origin: str
    values: Mapping[str, Any] = field(default_factory=dict)


def discover(paths: Sequence[str]) -> Path | None:
    """The configuration file closest to the inputs ``paths``, or to the working directory when they have none."""
    places = [os.path.abspath(path) for path in paths if path != "-"]
    starts = [Path.cwd()]
    if places:
        common = Path(os.path.commonpath(places))
        starts.insert(0, common if os.path.isdir(common) else common.parent)
    for start in starts:
        for folder in (start, *start.parents):
            for name in FILE_NAMES:
                if _counts(folder / name):
                    return folder / name
    return None


def file_layers(path: Path, trusted: bool = True, seen: tuple[Path, ...] = ()) -> list[Layer]:
    """The layers of the file ``path``, those it extends first. Raises SettingsError with file and key.

    One that is not ``trusted``, as nobody named it, may not have anything written, nor name files outside its folder.
    """
    real = _real(path)
    if real in seen:
        raise SettingsError(f"{_shown(path)}: key extend: the files extend each other in a circle")
    if len(seen) == _MOST_FILES:
        raise SettingsError(f"{_shown(path)}: key extend: more than {_MOST_FILES} files extend each other")
    values = _read(path)
    check_values(values, _shown(path))
    if not trusted:
        _require_harmless(path, values)
    parent = values.pop("extend", None)
    inherited = file_layers(path.parent / parent, trusted, (*seen, real)) if parent else []
    return [*inherited, Layer(_shown(path), _resolved(values, path.parent))]


def inline_layer(pair: str) -> Layer:
    """The layer of one ``key = value`` pair given with --config."""
    try:
        values = parse_toml(pair)
    except ValueError as error:
        text = f"is neither a file nor a TOML pair such as 'fail-on = \"error\"' ({error})"
        raise SettingsError(f"--config {pair!r}: {text}") from None
    origin = f"--config {pair!r}"
    check_values(values, origin)
    if "extend" in values:
        raise SettingsError(f"{origin}: key extend is for files")
    return Layer(origin, values)


def _require_harmless(path: Path, values: Mapping[str, Any]) -> None:
    """Raises SettingsError for what a file may do only when it was named: whoever wrote it may be a stranger."""
    remedy = f"name the file (--config {_shown(path)}) or give --trust-config if you know who wrote it"
    if values.get("output-file"):
        raise SettingsError(f"{_shown(path)}: key output-file: a configuration that was found may not write; {remedy}")
    folder = _real(path.parent)
    for key in (*_READ_PATHS, *_PATH_LISTS):
        named = values.get(key) or []
        for text in [named] if isinstance(named, str) else named:
            if not _real(folder / text).is_relative_to(folder):
                reason = "a configuration that was found may name files of its own folder only"
                raise SettingsError(f"{_shown(path)}: key {key}: {reason}, and {text!r} is none; {remedy}")
    for text in values.get("rule-packs") or ():
        for file in pack_files(folder / text):
            if not _real(file).is_relative_to(folder):
                reason = "a configuration that was found may name files of its own folder only"
                place = f"the rule {file.relative_to(folder)} is a link that leads elsewhere"
                raise SettingsError(f"{_shown(path)}: key rule-packs: {reason}, and {place}; {remedy}")


def _counts(path: Path) -> bool:
    # Unlike Path.is_file this does not fail where nobody may look; the inputs there will say so.
    if not os.path.isfile(path):
        return False
    # A pyproject.toml without our table is somebody else's; one that cannot be read would hide a typo.
    return path.name != "pyproject.toml" or _TABLE in _tools(_load(path))


def _read(path: Path) -> dict[str, Any]:
    data = _load(path)
    if path.name == "pyproject.toml":
        table = _tools(data).get(_TABLE, {})
        if not isinstance(table, dict):
            raise SettingsError(f"{_shown(path)}: key tool.{_TABLE} must be a table")
        return table
    return data


def _tools(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table ``tool`` of a pyproject.toml; others complain about one that is not a table."""
    tools = data.get("tool")
    return tools if isinstance(tools, dict) else {}


def _load(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(read_small(path).decode())
    except OSError as error:
        raise SettingsError(f"{_shown(path)}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise SettingsError(f"{_shown(path)}: is not valid TOML ({error})") from None


def _resolved(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """``values`` with their paths, which are relative to the file's folder, made usable from anywhere."""
    paths = {key: _from_here(folder, values[key]) for key in _PATHS if values.get(key)}
    lists = {key: [_from_here(folder, part) for part in values[key]] for key in _PATH_LISTS if key in values}
    return {**values, **paths, **lists}


def _from_here(folder: Path, path: str) -> str:
    return os.path.relpath(folder / path)


def _real(path: Path) -> Path:
    """Where links lead. Unlike Path.resolve this does not fail for one that leads to itself; who reads it says so."""
    return Path(os.path.realpath(path))


def _shown(path: Path) -> str:
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
