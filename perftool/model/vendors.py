"""The names that traces use and what each says, from the files of ``vendors``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import tomli

FOLDER = Path(__file__).parent.parent / "vendors"
_FACTS = {"title", "type", "precedence", "lane"}


@dataclass(frozen=True)
class Name:
    """A pattern of names in lower case, of a ``subject`` (runtime, kernel, category), and the ``role`` it gives."""

    subject: str
    role: str
    pattern: str


@dataclass(frozen=True)
class LanePattern:
    """A lane shows ``engine`` when ``pattern``, a regular expression, fits its ``field``: process or base."""

    engine: str
    field: str
    pattern: str


@dataclass(frozen=True)
class Vendor:
    """One file of names. ``type`` is the device type in reports and rules, None for what is common to all devices."""

    title: str
    type: str | None
    precedence: int
    names: tuple[Name, ...]
    lanes: tuple[LanePattern, ...]


@cache
def vendors(folder: Path = FOLDER) -> tuple[Vendor, ...]:
    """Every vendor; of two that a run shows, the first one is the run's."""
    files = sorted(folder.glob("*.toml"))
    read = [_vendor(tomli.loads(file.read_text(encoding="utf-8"))) for file in files]
    return tuple(sorted(read, key=lambda vendor: vendor.precedence))


def accelerators() -> tuple[str, ...]:
    """The types of devices besides the CPU."""
    return tuple(vendor.type for vendor in vendors(FOLDER) if vendor.type)


def type_of_name(name: str) -> str | None:
    """The type of the device that the metadata of a trace calls ``name``."""
    for vendor in vendors(FOLDER):
        if any(known.subject == "device" and fnmatchcase(name.lower(), known.pattern) for known in vendor.names):
            return vendor.type
    return None


def _vendor(data: dict[str, Any]) -> Vendor:
    lanes = (LanePattern(entry["engine"], *_field(entry)) for entry in data.get("lane", ()))
    return Vendor(data["title"], data.get("type"), data.get("precedence", 0), tuple(_names(data)), tuple(lanes))


def _field(entry: dict[str, str]) -> tuple[str, str]:
    return ("process", entry["process"]) if "process" in entry else ("base", entry["base"])


def _names(data: dict[str, Any]) -> Iterator[Name]:
    for subject, roles in data.items():
        if subject not in _FACTS:
            for role, patterns in roles.items():
                yield from (Name(subject, role, pattern.lower()) for pattern in patterns)
