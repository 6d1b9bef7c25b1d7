"""Reads run configuration from JSON files: DeepSpeed's, ``gaudi_config.json``, or any other object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from perftool.model.records import ConfigEntry, ConfigSource, LogReading
from perftool.model.valid_text import valid_json
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.quoted import keys_in
from perftool.readers.text.text_lines import Source, read_lines

# Real configurations are far smaller. Larger files are ignored.
MAX_CHARACTERS = 8 << 20
_MAX_DEPTH = 32
_MAX_ENTRIES = 10_000
# The longest dotted key, in characters. Nested keys repeat the names of their parents, which could exhaust the memory.
_MAX_NAME = 1000


@dataclass(frozen=True, slots=True)
class _Flavour:
    """A kind of configuration file, recognised by any of ``keys`` at its top level."""

    source: ConfigSource
    keys: frozenset[str]


_FLAVOURS = (
    _Flavour(
        "gaudi_config",
        frozenset(
            {
                "use_fused_adam",
                "use_fused_clip_norm",
                "use_torch_autocast",
                "use_dynamic_shapes",
                "use_habana_mixed_precision",
                "autocast_bf16_ops",
                "autocast_fp32_ops",
            }
        ),
    ),
    _Flavour(
        "deepspeed",
        frozenset(
            {
                "zero_optimization",
                "train_micro_batch_size_per_gpu",
                "train_batch_size",
                "zero_allow_untested_optimizer",
                "bf16",
                "fp16",
                "steps_per_print",
                "activation_checkpointing",
                "wall_clock_breakdown",
                "tensor_parallel",
                "replace_with_kernel_inject",
            }
        ),
    ),
)


def json_flavour(keys: frozenset[str]) -> ConfigSource | None:
    """Return the kind of configuration that has ``keys`` at its top level, or None if it is unknown."""
    return next((flavour.source for flavour in _FLAVOURS if flavour.keys & keys), None)


def read(source: Source) -> LogReading:
    """Read the settings in a JSON file, with dotted keys.

    Values keep their JSON form (``true``, ``2``, whole lists), but strings lose their quotes. A file that is too large
    or not a JSON object yields only an issue. Raise InputError if the file cannot be opened or read.
    """
    tally = IssueTally()
    entries: tuple[ConfigEntry, ...] = ()
    text = _text(source, tally)
    value = _parsed(text, tally) if text.strip() else None
    if isinstance(value, dict):
        kind = json_flavour(frozenset(value)) or "json"
        entries = tuple(_entries(value, kind, _key_lines(text), tally))
    elif value is not None:
        tally.note("not a configuration", "the file contains no object with settings")
    return LogReading(config=entries, issues=tally.issues(), kind="config")


def _text(source: Source, tally: IssueTally) -> str:
    parts: list[str] = []
    size = 0
    for line in read_lines(source, tally, MAX_CHARACTERS):
        size += len(line.text) + 1
        if size > MAX_CHARACTERS:
            tally.note("too large", "the file is too large for a configuration and is not used")
            return ""
        parts.append(line.text)
    return "\n".join(parts)


def _parsed(text: str, tally: IssueTally) -> object:
    try:
        return json.loads(valid_json(text))
    except json.JSONDecodeError as error:
        tally.note("bad JSON", f"the file is not valid JSON: {error.msg} in line {error.lineno}")
    except (ValueError, RecursionError):
        tally.note("bad JSON", "the file is not usable JSON: a number is too long or the nesting too deep")
    return None


def _entries(
    value: dict[str, object], source: ConfigSource, lines: dict[str, int], tally: IssueTally
) -> Iterator[ConfigEntry]:
    for number, (path, leaf) in enumerate(_leaves(value, ())):
        if number == _MAX_ENTRIES:
            tally.note("too large", f"only the first {_MAX_ENTRIES} settings are used")
            return
        if sum(map(len, path)) > _MAX_NAME:
            tally.note("long name", f"settings with names longer than {_MAX_NAME:,} characters are left out")
            continue
        yield ConfigEntry(source, ".".join(path), _spelled(leaf), line=lines.get(path[-1]))


def _leaves(value: dict[str, object], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, item in value.items():
        here = (*path, key)
        if isinstance(item, dict) and item and len(here) < _MAX_DEPTH:
            yield from _leaves(item, here)
        else:
            yield here, item


def _spelled(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _key_lines(text: str) -> dict[str, int]:
    """Return the line number of each key that occurs only once; for other keys, it would be ambiguous."""
    lines: dict[str, int] = {}
    repeated: set[str] = set()
    for number, line in enumerate(text.split("\n"), 1):
        for key in keys_in(line):
            if key in lines:
                repeated.add(key)
            lines[key] = number
    return {key: number for key, number in lines.items() if key not in repeated}
