"""``config`` lists the settings; ``--show-settings`` shows their current values."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perftool.commands.output import write_document
from perftool.errors import SettingsError

if TYPE_CHECKING:
    from perftool.engine.settings.settings import Settings


def config(
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="Key to show; all by default.")] = None,
) -> None:
    """List the keys of the configuration

    Settings come from .habana_perf_tool.toml, habana_perf_tool.toml, or the table \\[tool.habana_perf_tool] of
    pyproject.toml, in the folder of the inputs or the nearest folder above it. lint looks in the working directory
    and above.

    Examples:

      habana_perf_tool config

      habana_perf_tool config fail-on
    """
    from perftool.engine.settings.table import BY_KEY, KEYS

    if key is not None and key not in BY_KEY:
        close = get_close_matches(key, BY_KEY, n=1)
        raise SettingsError(f"there is no key {key!r}{f'; did you mean {close[0]}?' if close else ''}")
    lines = []
    for known in KEYS if key is None else (BY_KEY[key],):
        choices = f" ({', '.join(known.choices)})" if known.choices else ""
        default = "none" if known.written_default is None else _toml(known.written_default)
        lines.append(f"{known.key}: {known.type}{choices}, default {default}\n  {known.help}\n")
    write_document("".join(lines).encode(), None)


def show_settings(settings: Settings) -> None:
    """Print every key as TOML, with the place where it was set."""
    from perftool.engine.settings.settings import describe
    from perftool.engine.settings.table import BY_KEY

    lines = []
    for key, value, origin in describe(settings):
        shown = BY_KEY[key].written_default if value is None else value
        # TOML has no null.
        lines.append(f"# {key} is not set\n" if shown is None else f"{key} = {_toml(shown)}  # {origin}\n")
    write_document("".join(lines).encode(), None)


def _toml(value: Any) -> str:
    import json

    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(part) for part in value) + "]"
    # JSON strings are valid TOML basic strings.
    return json.dumps(value, ensure_ascii=False)
