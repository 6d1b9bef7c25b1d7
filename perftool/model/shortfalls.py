"""Attainable shares of a device's peak, and reasons why an op falls short of them, from ``shortfalls.toml``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

import tomli

_FILE = Path(__file__).parent.parent / "shortfalls.toml"
# A number with more digits is not a tile size.
_MOST_DIGITS = 6


@dataclass(frozen=True)
class Attainable:
    """The ``share`` of the peak that ops of these ``kinds`` reach on good shapes, on ``devices`` (name patterns).

    For the kind ``memory``, ``share`` is a share of the memory bandwidth. If ``dtypes`` is empty, the entry applies to
    all data types.
    """

    devices: tuple[str, ...]
    kinds: tuple[str, ...]
    share: float
    source: str
    dtypes: tuple[str, ...] = ()
    estimate: bool = False


@dataclass(frozen=True)
class Tile:
    """A pattern for the tile size in a kernel name. If ``counts_threads`` is set, the kernel's grid counts threads
    instead of blocks. If ``persistent`` is set, one block computes several tiles."""

    pattern: str
    counts_threads: bool = False
    persistent: bool = False


@dataclass(frozen=True)
class Split:
    """A pattern for kernel names that state the number of parts into which the kernel splits the inner dimension."""

    pattern: str


@dataclass(frozen=True)
class Generation:
    """A pattern for the names of kernels built for one compute capability. ``capability`` is that capability times 10
    (90 for 9.0), or None if the name itself states it."""

    pattern: str
    capability: int | None = None


@dataclass(frozen=True)
class Reason:
    """A reason why an op is slow. ``when`` is a condition on columns of op_shortfalls; the messages can show any of
    these columns.

    ``on`` limits the reason to CPUs or to accelerators. If ``reshapes`` is set, the fix does the same operations on
    other shapes, which may be faster than what is attainable on the current shapes, so only the peak itself limits the
    gain.
    """

    name: str
    when: str
    because: str
    fix: str
    short_fix: str
    on: Literal["accelerator", "cpu", "any"] = "accelerator"
    reshapes: bool = False

    @property
    def condition(self) -> str:
        """``when``, limited to CPUs or accelerators by ``on``. On a CPU, the "kernel" of an op is the op itself."""
        where = {"any": "", "cpu": " AND kernel = name", "accelerator": " AND kernel IS DISTINCT FROM name"}
        return f"({self.when}){where[self.on]}"


@dataclass(frozen=True)
class Unexplained:
    """Advice for ops with this ``bound`` that are slow for an unknown reason."""

    bound: str
    fix: str
    short_fix: str


@dataclass(frozen=True)
class Shortfalls:
    """The contents of ``shortfalls.toml``."""

    attainable: tuple[Attainable, ...]
    tile: tuple[Tile, ...]
    split: tuple[Split, ...]
    generation: tuple[Generation, ...]
    reason: tuple[Reason, ...]
    unexplained: tuple[Unexplained, ...]


@cache
def shortfalls() -> Shortfalls:
    """Load ``shortfalls.toml``."""
    read = tomli.loads(_FILE.read_text(encoding="utf-8"))
    return Shortfalls(
        tuple(map(_attainable, read["attainable"])),
        tuple(Tile(**row) for row in read["tile"]),
        tuple(Split(**row) for row in read["split"]),
        tuple(Generation(**row) for row in read["generation"]),
        tuple(Reason(**row) for row in read["reason"]),
        tuple(Unexplained(**row) for row in read["unexplained"]),
    )


def _attainable(row: dict[str, Any]) -> Attainable:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    return Attainable(**values)


def attainable(device: str, kind: str, dtype: str | None = None) -> Attainable | None:
    """Return the first entry for ops of ``kind`` with operands of ``dtype`` on ``device`` (a name in devices.toml)."""
    for entry in shortfalls().attainable:
        if (
            kind in entry.kinds
            and (not entry.dtypes or dtype in entry.dtypes)
            and any(fnmatchcase(device, pattern) for pattern in entry.devices)
        ):
            return entry
    return None


def tile_of(kernel: str) -> tuple[Tile, int, int] | None:
    """Return the pattern that matches the name of ``kernel``, and the rows and columns of the tile according to the
    name.
    """
    for tile in shortfalls().tile:
        if (found := re.search(tile.pattern, kernel)) and (rows := _size(found[1])) and (columns := _size(found[2])):
            return tile, rows, columns
    return None


def parts_of(kernel: str) -> int:
    """Return the number of parts into which ``kernel`` splits the inner dimension, according to its name, or 1 if not
    stated.
    """
    matches = (re.search(split.pattern, kernel) for split in shortfalls().split)
    return next((_size(found[1]) or 1 for found in matches if found), 1)


def _size(digits: str) -> int | None:
    """Return a tile size or a number of parts, or None for 0 and for implausible values."""
    return (int(digits) or None) if len(digits) <= _MOST_DIGITS else None


def generation_of(kernel: str) -> int | None:
    """Return the compute capability (times 10) that ``kernel`` was built for, according to its name, or None if
    unknown.
    """
    for generation in shortfalls().generation:
        if found := re.search(generation.pattern, kernel):
            return generation.capability or int(found[1])
    return None
