"""Files of analysed ranks that can be merged on any machine: ``analyze RANK --part``, ``merge PARTS``.

A part is a zip archive. ``part.json`` contains the format, the version of the program, digests of the rules, the ranks
and the findings. ``tables/`` contains the tables about whole ranks as Parquet. A part contains no code.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import InvalidOperation
from functools import cache
from hashlib import sha256
from typing import Any, TypeVar

from perftool import __version__
from perftool.engine.ranks.part import Part
from perftool.engine.ranks.part_check import (
    LARGEST_HEAD,
    LARGEST_TABLE,
    content,
    require_few_values,
    require_possible,
    require_reasons,
    require_size,
)
from perftool.engine.ranks.plain import from_plain, to_plain
from perftool.errors import LONGEST_REASON, InputError, PerfToolError
from perftool.model.inputs import InputFile
from perftool.model.rule import Rule
from perftool.model.valid_text import valid_json
from perftool.readers.files.zip_layout import stray_bytes
from perftool.store.catalog import catalog
from perftool.store.rank_export import EXPORTED
from perftool.store.readings import Reading, with_one_dump_per_rank

# Identifies the format in every part.
FORMAT = "habana_perf_tool part"
VERSION = 1
_HEAD = "part.json"
_File = TypeVar("_File", Reading, InputFile)
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, KeyError, ValueError, TypeError, EOFError, OSError, RecursionError,
    InvalidOperation, NotImplementedError,
)  # fmt: skip


@dataclass(frozen=True)
class PartFile:
    """The contents of a part: ranks, readings of logs, and inputs that could not be read.

    ``rules`` maps the code of each rule that ran to its digest.
    """

    parts: tuple[Part, ...]
    readings: tuple[Reading, ...]
    failed: tuple[InputFile, ...]
    rules: Mapping[str, str]

    @property
    def is_blank(self) -> bool:
        """Whether the part contains neither a trace nor a record from another input."""
        return not self.parts and not any(reading.reading.records for reading in self.readings)


def digests(rules: Iterable[Rule]) -> dict[str, str]:
    """Return a digest for each per-rank rule, over everything that determines its rows."""
    rank_rules = (rule for rule in rules if rule.sql is not None and rule.scope == "rank")
    return {
        rule.code: _digest(
            rule.sql, rule.only_if, rule.params, rule.needs, rule.needs_names, rule.devices, rule.tags, rule.relieves,
            rule.explains, rule.whatif,
        )
        for rule in rank_rules
    }  # fmt: skip


def render_part(made: PartFile) -> bytes:
    """Render a part as the bytes of a file. Equal contents result in equal bytes."""
    head = {
        "format": FORMAT, "version": VERSION, "tool": __version__, "tables": _tables_digest(),
        "ranks": sorted(rank for part in made.parts for rank in _ranks(part)),
        "rules": dict(made.rules), "readings": to_plain(made.readings), "failed": to_plain(made.failed),
        "parts": [to_plain(replace(part, facts=part.facts and replace(part.facts, tables={}))) for part in made.parts],
    }  # fmt: skip
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(_HEAD), _head_text(head), zipfile.ZIP_DEFLATED)
        for number, part in enumerate(made.parts):
            for name, table in (part.facts.tables if part.facts else {}).items():
                archive.writestr(zipfile.ZipInfo(_entry(number, name)), table, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _head_text(head: Mapping[str, Any]) -> str:
    text = json.dumps(head)
    if len(text) > LARGEST_HEAD:
        raise PerfToolError(
            f"a part cannot contain this many ranks ({len(text) >> 20} MiB); write several parts and merge them"
        )
    return text


def read_part(path: str) -> PartFile:
    """Read the part at ``path``. Raise InputError if it is not a part, is corrupt, or has another version."""
    if os.path.exists(path) and not os.path.isfile(path):
        # Reading a device file or a pipe might never end.
        raise InputError(f"{path}: not a regular file, so not a part")
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            if stray := stray_bytes(file, archive):
                raise ValueError(stray)
            require_size(archive, os.path.getsize(path))
            text = content(archive, _HEAD, LARGEST_HEAD)
            require_few_values(text, os.path.getsize(path))
            head = json.loads(valid_json(text.decode()))
            if not isinstance(head, dict) or head.get("format") != FORMAT:
                raise InputError(f"{path}: not a part written by {FORMAT.split()[0]}")
            _require_ours(path, head)
            parts = tuple(_part(archive, number, plain) for number, plain in enumerate(head["parts"]))
            rules = from_plain(Mapping[str, str], head["rules"])  # type: ignore[type-abstract]
            for part in parts:
                require_possible(part, rules.keys())
            readings = from_plain(tuple[Reading, ...], head["readings"])
            failed = from_plain(tuple[InputFile, ...], head["failed"])
            require_reasons(failed)
            if not parts and not readings and not failed:
                raise ValueError("it contains no input")
            return PartFile(parts, readings, failed, rules)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except _DAMAGE as error:
        why = f"{type(error).__name__}: {error}"[:LONGEST_REASON]
        raise InputError(f"{path}: not a part, or corrupt ({why}); export it again with analyze --part") from None


def require_same_rules(path: str, made: PartFile, rules: Sequence[Rule]) -> None:
    """Raise InputError if the part ``made`` lacks a per-rank rule of ``rules``, or ran it with other thresholds."""
    wrong = sorted(code for code, digest in digests(rules).items() if made.rules.get(code) != digest)
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise InputError(
            f"{path}: exported with different rules or thresholds ({wrong[0]}{more}); merge with the --select, --rules "
            "and configuration of that export, or export it again"
        )


def together(files: Sequence[tuple[str | None, PartFile]]) -> PartFile:
    """Combine ``files`` (path and contents) into one part, sorted by trace. The path is None for traces analysed now.

    Raise InputError if two files contain the same rank, unless they are copies of the same part.
    """
    parts: dict[int, tuple[str, Part]] = {}
    lost: dict[tuple[InputFile, ...], Part] = {}
    # The more ranks two parts have, the longer it takes to compare them, so each pair is compared only once.
    copies: dict[tuple[int, int], bool] = {}
    for path, made in files:
        for part in made.parts:
            ranks = _ranks(part)
            own = {read.rank: read.path for read in reversed(part.inputs)}
            for rank in ranks:
                named = path or own[rank]
                other, before = parts.get(rank, (named, part))
                if (both := (id(before), id(part))) not in copies:
                    copies[both] = before == part
                if not copies[both]:
                    raise InputError(
                        f"{named} and {other} both contain rank {rank}; leave one out "
                        "(a trace that does not state its rank needs it in its name, as in rank3.json)"
                    )
                parts[rank] = named, part
            if not ranks and part.unreadable:
                lost[part.unreadable] = part
    once = {id(part): (path, part) for path, part in parts.values()}
    _require_one_world(once.values())
    every = [*(part for _, part in once.values()), *lost.values()]
    readings = _each_once(reading for _, made in files for reading in made.readings)
    failed = _each_once(read for _, made in files for read in made.failed)
    rules = dict(files[0][1].rules) if files else {}
    return PartFile(
        tuple(sorted(every, key=_first_path)),
        tuple(with_one_dump_per_rank(readings)),
        tuple(failed),
        {code: digest for code, digest in rules.items() if all(made.rules.get(code) == digest for _, made in files)},
    )


def _each_once(found: Iterable[_File]) -> list[_File]:
    """Return ``found`` without copies, sorted. Different hosts may have different files at the same path."""
    by_path: dict[str, list[_File]] = {}
    for one in found:
        alike = by_path.setdefault(one.path, [])
        if one not in alike:
            alike.append(one)
    every = (by_path[path] for path in sorted(by_path))
    return [one for alike in every for one in (sorted(alike, key=_plain_text) if alike[1:] else alike)]


def _plain_text(value: object) -> str:
    return json.dumps(to_plain(value))


def _require_one_world(parts: Iterable[tuple[str, Part]]) -> None:
    """Raise InputError if ``parts`` (path and contents, each once) state different world sizes."""
    sizes: dict[int, str] = {}
    for path, part in parts:
        for metadata in part.facts.metadata.values() if part.facts else ():
            info = metadata.get("distributedInfo")
            if isinstance(info, dict) and isinstance(size := info.get("world_size"), int):
                sizes.setdefault(size, path)
    if len(sizes) > 1:
        (one, first), (other, second), *_ = sizes.items()
        raise InputError(f"{first} and {second} are parts of different runs: their world sizes are {one} and {other}")


def _first_path(part: Part) -> str:
    return min((read.path for read in (*part.inputs, *part.unreadable)), default="")


def _ranks(part: Part) -> list[int]:
    return sorted(part.facts.metadata) if part.facts else []


def _require_ours(path: str, head: Mapping[str, Any]) -> None:
    version, tool = head.get("version"), head.get("tool")
    if not isinstance(version, int) or not isinstance(tool, str):
        raise ValueError("it does not state its versions")
    if version != VERSION:
        raise InputError(f"{path}: the part has version {version}; this program reads version {VERSION}")
    if tool != __version__ or head.get("tables") != _tables_digest():
        raise InputError(
            f"{path}: exported by habana_perf_tool {tool}, whose tables differ from those of this version "
            f"({__version__}); export and merge parts with the same version"
        )


def _part(archive: zipfile.ZipFile, number: int, plain: Any) -> Part:
    part = from_plain(Part, plain)
    if part.facts is None:
        return part
    tables = {name: content(archive, _entry(number, name), LARGEST_TABLE) for name in EXPORTED}
    return replace(part, facts=replace(part.facts, tables=tables, foreign=True))


def _entry(number: int, table: str) -> str:
    return f"tables/{number}/{table}.parquet"


@cache
def _tables_digest() -> str:
    """Return a digest that is equal for two versions of the program if they build the same tables."""
    return _digest([(name, catalog()[name].columns, catalog()[name].sql) for name in EXPORTED])


def _digest(*values: object) -> str:
    return sha256(repr(values).encode()).hexdigest()[:16]
