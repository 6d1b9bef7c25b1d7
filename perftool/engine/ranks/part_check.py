"""Validates an untrusted part before its contents are used."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable, Mapping, Set
from typing import Any

from perftool.engine.ranks.part import Facts, Part
from perftool.engine.ranks.plain import from_plain
from perftool.engine.rules.row_check import checked
from perftool.errors import QueryError
from perftool.model.inputs import InputFile
from perftool.model.report import Source
from perftool.readers.files.stream import ZIP_METHODS
from perftool.store.ranks import LARGEST_RANK, LATEST_NS

# Limits on the unpacked size of part.json, of a table, and of the whole part. A rank needs about 10 kB of part.json and
# 30 kB of tables.
LARGEST_HEAD, LARGEST_TABLE, LARGEST_PART = 64 << 20, 256 << 20, 1 << 30
# The largest compression ratio (parts that we write have ratios of 3 to 10), and the size that is always allowed.
_MOST_TIMES, _ALWAYS = 100, 1 << 20
# The maximum number of JSON values per byte of a part (our parts have one per 16 bytes), and the number that is always
# allowed. Without a limit, a part could exhaust memory: an empty list takes three bytes in JSON, but 70 bytes in
# Python.
_VALUES_PER_BYTE, _FREE_VALUES = 1, 100_000


def require_size(archive: zipfile.ZipFile, packed: int) -> None:
    """Raise ValueError if ``archive``, of ``packed`` bytes, would unpack to more than a part may contain."""
    unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > LARGEST_PART:
        raise ValueError(f"it unpacks to more than {LARGEST_PART >> 30} GiB")
    if unpacked > _MOST_TIMES * packed + _ALWAYS:
        raise ValueError(f"it unpacks to {unpacked // max(packed, 1):,} times its size")


def content(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Read the member ``name``. Raise ValueError if it has more than ``most`` bytes or a compression we never use."""
    entry = archive.getinfo(name)
    if entry.file_size > most:
        raise ValueError(f"{name} has more than {most >> 20} MiB")
    if entry.compress_type not in ZIP_METHODS or entry.flag_bits & 1:
        raise ValueError(f"{name} uses encryption or a compression method that parts never use")
    with archive.open(entry) as file:
        # Without a limit, zipfile would unpack everything before it checks the size.
        return file.read(entry.file_size + 1)


def require_few_values(head: bytes, packed: int) -> None:
    """Raise ValueError if the values in ``head``, the JSON of a part of ``packed`` bytes, would exhaust memory."""
    if sum(map(head.count, (b",", b"[", b"{"))) > _VALUES_PER_BYTE * packed + _FREE_VALUES:
        raise ValueError("it contains more values than its size allows")


def require_reasons(unreadable: Iterable[InputFile]) -> None:
    """Raise ValueError unless each of the ``unreadable`` inputs has a reason."""
    for read in unreadable:
        if not any(issue.message for issue in read.issues):
            raise ValueError("it does not say why an input is unreadable")


def require_possible(part: Part, codes: Set[str]) -> None:
    """Raise ValueError for contents that no task exports. ``codes`` are the rules that ``part`` claims to have run."""
    require_reasons(part.unreadable)
    if not part.inputs and not part.unreadable:
        raise ValueError("it contains no analysed input")
    for read in (*part.inputs, *part.unreadable):
        if read.rank is not None:
            _require_rank(read.rank)
    if part.facts is not None:
        _require_facts(part.facts, codes)
        if lacking := part.facts.metadata.keys() - {read.rank for read in part.inputs}:
            raise ValueError(f"it does not say which input belongs to rank {min(lacking)}")


def _require_facts(facts: Facts, codes: Set[str]) -> None:
    if not facts.metadata:
        raise ValueError("it contains tables without a rank")
    for rank in facts.metadata:
        _require_rank(rank)
    if not 0 <= facts.base_ns <= LATEST_NS:
        raise ValueError(f"its times are relative to an impossible start, {facts.base_ns}")
    if missing := codes - {answer.code for answer in facts.answers}:
        raise ValueError(f"it has no result for {min(missing)}")
    for answer in facts.answers:
        for row in answer.rows:
            _require_row(answer.code, row, facts.metadata.keys())


def _require_rank(rank: int) -> None:
    if not 0 <= rank <= LARGEST_RANK:
        raise ValueError(f"it contains the impossible rank {rank}")


def _require_row(code: str, row: Mapping[str, Any], ranks: Set[int]) -> None:
    """Raise ValueError unless the rule ``code`` could have found ``row`` on one of ``ranks``."""
    try:
        (found,) = checked([row])
    except QueryError as error:
        raise ValueError(f"{code}: {error}") from None
    if found.get("rank") is not None and found["rank"] not in ranks:
        raise ValueError(f"{code} refers to rank {found['rank']}, which the part does not contain")
    for name in ("predicted_ns", "tried_ns"):
        gain = row.get(name)
        if gain is not None and (not isinstance(gain, int | float) or not math.isfinite(gain)):
            raise ValueError(f"{code}: {name} is {gain!r}")
    from_plain(tuple[Source, ...], row.get("sources") or [])
