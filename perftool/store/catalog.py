"""The analysis tables, read from their SQL files.

Each table has one file below ``perftool/tables``, in the folder of its topic. A header comment describes the rows, the
tables it needs and its columns; one SELECT follows. For a table that SQL cannot derive, the header names a ``maker``
(makers.py) instead of the SELECT. Tables whose names begin with an underscore are internal.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perftool.model.words import KIND_LABELS

TABLES_DIR = Path(__file__).parent.parent / "tables"
_KEY = re.compile(r"(needs|absent|maker|drops|empty without): (.+)")
_TABLE_LIST_HINT = "query --tables lists the tables"
_TEXT = ("VARCHAR", "VARCHAR[]")
_COLUMN = re.compile(r"column (\w+): (\w+(?:\[\])?), (.+)")


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    meaning: str


@dataclass(frozen=True)
class Precondition:
    """A row that ``table`` must contain: any row, a row whose ``column`` is neither NULL nor false, or a row whose
    ``column`` equals ``value``."""

    table: str
    column: str | None = None
    value: str | None = None


@dataclass(frozen=True)
class Table:
    """One analysis table: its documentation, and the SELECT or the ``maker`` that creates it.

    ``absent`` says why the table may be empty; ``drops`` lists tables that are no longer used once this table exists.
    At least one precondition of each group in ``empty_without`` must be met. Otherwise, the table is created empty,
    without creating the other tables that it needs.
    """

    name: str
    summary: str
    needs: tuple[str, ...]
    columns: tuple[Column, ...]
    sql: str
    absent: str | None = None
    maker: str | None = None
    drops: tuple[str, ...] = ()
    empty_without: tuple[tuple[Precondition, ...], ...] = ()

    @property
    def definition(self) -> str:
        """The table's name and columns for ``CREATE TABLE``."""
        columns = ", ".join(f'"{column.name}" {column.type}' for column in self.columns)
        return f'"{self.name}" ({columns})'

    @property
    def as_text(self) -> str:
        """SQL that selects all rows; columns that the store keeps as ENUM numbers become text."""
        columns = (f'"{c.name}"::{c.type} AS "{c.name}"' if c.type in _TEXT else f'"{c.name}"' for c in self.columns)
        return f'SELECT {", ".join(columns)} FROM main."{self.name}"'

    @property
    def description(self) -> str:
        """The summary on one line."""
        return " ".join(self.summary.split())

    @property
    def schema(self) -> str:
        """The columns as text: one line each, with type and meaning."""
        return "\n".join(f"  {column.name:16} {column.type:8} {column.meaning}" for column in self.columns)

    @property
    def public(self) -> bool:
        return not self.name.startswith("_")


@cache
def catalog() -> dict[str, Table]:
    """Return every table by name, in alphabetical order."""
    files = sorted((path for path in TABLES_DIR.rglob("*.sql") if path.stem != "_macros"), key=lambda path: path.stem)
    return {path.stem: _parse(path) for path in files}


def public_tables() -> list[Table]:
    """Return the tables that users may query, in alphabetical order."""
    return [table for table in catalog().values() if table.public]


@cache
def macros() -> str:
    """Return SQL that defines the macros for tables, including ``kind_text``, which returns the label of a kind or
    cause.
    """
    labels = ", ".join(f"'{kind}': '{label}'" for kind, label in KIND_LABELS.items())
    kind_text = f"CREATE MACRO kind_text(kind) AS coalesce(MAP {{{labels}}}[kind], replace(kind, '_', ' '));\n"
    return (TABLES_DIR / "_macros.sql").read_text(encoding="utf-8") + kind_text


def no_table(name: str) -> str:
    """Say that there is no table ``name``, and suggest tables with similar names."""
    names = [table.name for table in public_tables()]
    similar = difflib.get_close_matches(name, names, 3)
    return f"there is no table {name!r}; " + (f"did you mean {' or '.join(similar)}?" if similar else _TABLE_LIST_HINT)


def names_in(sql: str) -> list[str]:
    """Return every table name that occurs in ``sql`` as a word, in any case."""
    return [name for name in re.findall(r"\w+", sql.lower()) if name in catalog()]


def _parse(path: Path) -> Table:
    header: list[str] = []
    sql: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        (header if not sql and line.startswith("--") else sql).append(line)
    summary: list[str] = []
    keys: dict[str, str] = {}
    columns: list[Column] = []
    for line in (line.removeprefix("--").strip() for line in header):
        if key := _KEY.fullmatch(line):
            keys[key[1]] = key[2]
        elif column := _COLUMN.fullmatch(line):
            columns.append(Column(*column.groups()))
        else:
            summary.append(line)
    return Table(
        path.stem, "\n".join(summary).strip(), _names(keys.get("needs", "")), tuple(columns), "\n".join(sql),
        keys.get("absent"), keys.get("maker"), _names(keys.get("drops", "")),
        tuple(map(_preconditions, _names(keys.get("empty without", "")))),
    )  # fmt: skip


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _preconditions(text: str) -> tuple[Precondition, ...]:
    return tuple(Precondition(*re.split("[.=]", name)) for name in text.split(" or "))
