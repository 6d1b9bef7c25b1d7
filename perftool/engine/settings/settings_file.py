"""Configuration files: which one applies, what it inherits, and where its values come from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perftool.engine.rules.pack import pack_files
from perftool.engine.settings.table import KEYS, check_values
from perftool.errors import SettingsError
from perftool.model.toml_text import parse_toml
from perftool.readers.files.matching import OutsideFolderError, matches
from perftool.readers.files.small_file import read_small
from perftool.readers.files.stream import as_file

# The names of configuration files, in the order in which they are looked for in a folder.
FILE_NAMES = (".habana_perf_tool.toml", "habana_perf_tool.toml", "pyproject.toml")
_TABLE = "habana_perf_tool"
# Limits per key of a discovered file, because each entry may be compared with every input.
_MOST_ENTRIES, _LONGEST_TEXTS = 1_000, 64 << 10
# The maximum number of character sets ([...]) in ``exclude``: each character of a name may be compared with each set.
_MOST_SETS = 100
# The longest chain of files that extend each other.
_MOST_FILES = 20


@dataclass(frozen=True)
class Layer:
    """Validated settings from one place, such as ``file`` or the command line; ``origin`` is its name. A later layer
    overrides an earlier one.
    """

    origin: str
    values: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None


def discover(paths: Sequence[str], gate: bool = False) -> Path | None:
    """Find the configuration file closest to the inputs ``paths``, or else to the working directory.

    With ``gate``, files next to the inputs are ignored, so that the author of the inputs cannot turn off a check.
    """
    places = [] if gate else [os.path.abspath(path) for path in paths if path != "-"]
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


def passed_over(paths: Sequence[str]) -> str | None:
    """Return the configuration file that ``discover`` ignores because of ``gate``, or None if there is none."""
    found = discover(paths)
    return _shown(found) if found and found != discover(paths, gate=True) else None


def file_layers(path: Path, trusted: bool = True, seen: tuple[Path, ...] = ()) -> list[Layer]:
    """Return the layers of the file ``path`` and, before them, those of the files that it extends. Raise SettingsError,
    which states the file and the key.

    A file that is not ``trusted``, because it was discovered, must not set output files or name files outside its
    folder.
    """
    real = _real(path)
    if real in seen:
        raise SettingsError(f"{_shown(path)}: key extend: the files extend each other in a cycle")
    if len(seen) == _MOST_FILES:
        raise SettingsError(f"{_shown(path)}: key extend: a chain of more than {_MOST_FILES} files")
    values = _read(path)
    check_values(values, _shown(path))
    if not trusted:
        _require_harmless(path, values)
    parent = values.pop("extend", None)
    inherited = file_layers(path.parent / parent, trusted, (*seen, real)) if parent else []
    return [*inherited, Layer(_shown(path), _resolved(values, path.parent), path)]


def inline_layer(pair: str) -> Layer:
    """Return the layer for a ``key = value`` pair given with --config."""
    try:
        values = parse_toml(pair)
    except ValueError as error:
        text = f"neither a file nor a TOML pair such as 'fail-on = \"error\"' ({error})"
        raise SettingsError(f"--config {pair!r}: {text}") from None
    origin = f"--config {pair!r}"
    check_values(values, origin)
    if "extend" in values:
        raise SettingsError(f"{origin}: key extend works only in a file")
    return Layer(origin, values)


def _require_harmless(path: Path, values: Mapping[str, Any]) -> None:
    """Raise SettingsError for keys that only a file named by the user may set. Anyone may have written this file."""
    remedy = f"name the file (--config {_shown(path)}) or pass --trust-config if you know who wrote it"
    folder = _real(path.parent)
    for row in KEYS:
        key, named = row.key, values.get(row.key) or []
        entries, letters = _amount(named)
        if entries > _MOST_ENTRIES or letters > _LONGEST_TEXTS:
            most = f"at most {_MOST_ENTRIES:,} entries and {_LONGEST_TEXTS >> 10} KiB of text"
            raise SettingsError(f"{_shown(path)}: key {key}: a discovered configuration may have {most} per key")
        if key == "exclude" and sum(text.count("[") for text in named) > _MOST_SETS:
            most = f"at most {_MOST_SETS} sets of characters ([...])"
            raise SettingsError(f"{_shown(path)}: key {key}: a discovered configuration may have {most}")
        if named and row.refused:
            raise SettingsError(f"{_shown(path)}: key {key}: a discovered configuration {row.refused}; {remedy}")
        if not row.path:
            continue
        for text in [named] if isinstance(named, str) else named:
            if not text.endswith(row.ending):
                continue
            if not _stays_in(folder, text):
                reason = "a discovered configuration may only name files in its own folder"
                raise SettingsError(f"{_shown(path)}: key {key}: {reason}, unlike {text!r}; {remedy}")
    for text in values.get("rule-packs") or ():
        for file in pack_files(folder / text):
            if not _real(file).is_relative_to(folder):
                reason = "a discovered configuration may only name files in its own folder"
                place = f"the rule {file.relative_to(folder)} is a link to a file elsewhere"
                raise SettingsError(f"{_shown(path)}: key rule-packs: {reason}, and {place}; {remedy}")


def _stays_in(folder: Path, text: str) -> bool:
    """Whether the path or pattern ``text`` matches only files in ``folder``. Other folders are not accessed."""
    try:
        selected = matches(str(folder / text), folder)
    except OutsideFolderError:
        return False
    return all(_real(place).is_relative_to(folder) for place in (folder / text, *map(Path, selected)))


def _amount(value: Any) -> tuple[int, int]:
    """Return the number of values in ``value``, and the number of characters in its strings and keys."""
    if isinstance(value, dict | list):
        parts = [part for pair in value.items() for part in pair] if isinstance(value, dict) else value
        amounts = list(map(_amount, parts))
        return sum(entries for entries, _ in amounts), sum(letters for _, letters in amounts)
    return 1, len(value) if isinstance(value, str) else 0


def _counts(path: Path) -> bool:
    # Unlike Path.is_file, this returns False if permission is denied. Reading the inputs reports the error later.
    if not os.path.isfile(path):
        return False
    # A pyproject.toml is used only if it contains our table, or if it is malformed, so that the error is reported.
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
    """Return the table ``tool`` of a pyproject.toml. The result is empty if it is not a table."""
    tools = data.get("tool")
    return tools if isinstance(tools, dict) else {}


def _load(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(read_small(path).decode())
    except OSError as error:
        raise SettingsError(f"{_shown(path)}: cannot read ({error.strerror or error})") from None
    except ValueError as error:
        raise SettingsError(f"{_shown(path)}: not valid TOML ({error})") from None


def _resolved(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make the paths in ``values``, which are relative to the file's folder, relative to the working directory."""
    return {
        **values,
        **{row.key: _from_here(folder, values[row.key], row.ending) for row in KEYS if row.path and row.key in values},
    }


def _from_here(folder: Path, path: Any, ending: str) -> Any:
    """Return the path or paths of a key. A string that is empty or lacks ``ending`` is not a path, and is returned
    unchanged."""
    if isinstance(path, list):
        return [_from_here(folder, part, ending) for part in path]
    return as_file(os.path.relpath(folder / path)) if path and path.endswith(ending) else path


def _real(path: Path) -> Path:
    """Resolve links in ``path``. Unlike Path.resolve, this does not raise for a link loop; reading the file will."""
    return Path(os.path.realpath(path))


def _shown(path: Path) -> str:
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
