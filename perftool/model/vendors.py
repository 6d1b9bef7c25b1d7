"""The names used in traces and their meanings, from the files in ``vendors``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import tomli

FOLDER = Path(__file__).parent.parent / "vendors"
_FACTS = {"title", "type", "precedence", "unsigned", "lane", "arguments"}


@dataclass(frozen=True)
class Name:
    """A lower-case ``pattern`` for names of one ``subject`` (such as runtime, kernel or category), and their
    ``role``."""

    subject: str
    role: str
    pattern: str


@dataclass(frozen=True)
class LanePattern:
    """A lane belongs to ``engine`` if the regular expression ``pattern`` matches ``field``: either the names of its
    process and thread (``process``), or its thread number divided by 1000 (``base``)."""

    engine: str
    field: str
    pattern: str


@dataclass(frozen=True)
class Vendor:
    """The names of one vendor. ``type`` is the device type in reports and rules, or None for names common to all.

    Device work that shows no sign of any vendor is attributed to the ``unsigned`` vendor. ``arguments`` maps an event
    argument to its names in the vendor's other profilers.
    """

    title: str
    type: str | None
    precedence: int
    unsigned: bool
    names: tuple[Name, ...]
    lanes: tuple[LanePattern, ...]
    arguments: Mapping[str, tuple[str, ...]]


@cache
def vendors(folder: Path = FOLDER) -> tuple[Vendor, ...]:
    """Return all vendors. If a run shows signs of several vendors, the first takes precedence."""
    files = sorted(folder.glob("*.toml"))
    read = [_vendor(tomli.loads(file.read_text(encoding="utf-8"))) for file in files]
    return tuple(sorted(read, key=lambda vendor: vendor.precedence))


def accelerators() -> tuple[str, ...]:
    """Return the device types other than the CPU."""
    return tuple(vendor.type for vendor in vendors(FOLDER) if vendor.type)


def type_of_unsigned() -> str | None:
    """Return the device type of work that shows no sign of a vendor."""
    return next((vendor.type for vendor in vendors(FOLDER) if vendor.unsigned), None)


@cache
def backends() -> frozenset[str]:
    """Return the process group backends that only support tensors on accelerators."""
    names = (name for vendor in vendors(FOLDER) for name in vendor.names)
    return frozenset(name.pattern for name in names if name.subject == "backend")


def type_of_name(name: str) -> str | None:
    """Return the type of the device called ``name`` in the metadata of a trace, or None if unknown."""
    for vendor in vendors(FOLDER):
        if any(known.subject == "device" and fnmatchcase(name.lower(), known.pattern) for known in vendor.names):
            return vendor.type
    return None


def _vendor(data: dict[str, Any]) -> Vendor:
    lanes = (LanePattern(entry["engine"], *_field(entry)) for entry in data.get("lane", ()))
    arguments = {key: tuple(names) for key, names in data.get("arguments", {}).items()}
    return Vendor(
        data["title"],
        data.get("type"),
        data.get("precedence", 0),
        data.get("unsigned", False),
        tuple(_names(data)),
        tuple(lanes),
        arguments,
    )


def _field(entry: dict[str, str]) -> tuple[str, str]:
    return ("process", entry["process"]) if "process" in entry else ("base", entry["base"])


def _names(data: dict[str, Any]) -> Iterator[Name]:
    for subject, roles in data.items():
        if subject not in _FACTS:
            for role, patterns in roles.items():
                yield from (Name(subject, role, pattern.lower()) for pattern in patterns)
