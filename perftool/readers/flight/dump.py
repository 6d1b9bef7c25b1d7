"""A dump of torch.distributed's flight recorder: what one rank knows of its collectives when it hangs.

A pickle (``nccl_trace_rank_3``) or JSON, of format 2.x: ``pg_config`` (the groups and their members), ``pg_status``
(numbers of the last collectives, by ``pg_id``) and ``entries`` (a ring of the latest collectives). An entry is finished
when its state is ``completed``, or it is ``retired``: backends that do not watch their work only say that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

import orjson

from perftool.errors import InputError
from perftool.model.records import FlightEntry, FlightGroup, LogReading
from perftool.readers.files.rank_name import rank_of
from perftool.readers.files.stream import ByteStream
from perftool.readers.flight.plain_pickle import load_plain
from perftool.readers.text.issue_tally import IssueTally

# Some kB an entry, and thousands of entries.
_MOST = 256 << 20
_HEAD = 64 << 10
_PICKLE = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
_TELLING = (b"collective_seq_id", b"pg_config")
# Frames of these say nothing about the program.
_LIBRARY = ("/torch/", "/contextlib.py", "/multiprocessing/", "/threading.py")
_MOST_SIZES = 8


def is_dump(path: str) -> bool:
    """Whether the file begins as a dump does. Raises InputError when it cannot be opened."""
    with ByteStream(path) as stream:
        head = next(stream.blocks(), b"")[:_HEAD]
    begins = head.startswith(_PICKLE) or head.lstrip()[:1] == b"{"
    return begins and b"traceEvents" not in head and any(word in head for word in _TELLING)


def read(path: str, rank: int | None = None) -> LogReading:
    """The groups and collectives of the dump at ``path``; its rank is that of the name, else the number at its end.

    Raises InputError for a dump that is damaged, is too large, tells no rank, or holds more than plain values.
    """
    known = rank_of(path) if rank is None else rank
    known = _number_at_end(path) if known is None else known
    if known is None:
        raise InputError(f"{path}: a flight-recorder dump needs its rank in its name, as nccl_trace_rank_3 has")
    try:
        found = _load(path)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    tally = IssueTally()
    entries = tuple(_entries(found.get("entries"), known, tally))
    groups = tuple(_groups(found, entries, known))
    return LogReading(flight=entries, flight_groups=groups, issues=tally.issues(), kind="flight_record")


def _number_at_end(path: str) -> int | None:
    name = PurePath(path).name.removesuffix(".json")
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits) if digits.isascii() and 0 < len(digits) <= 6 else None


def _load(path: str) -> Mapping[str, Any]:
    data = bytearray()
    with ByteStream(path) as stream:
        for block in stream.blocks():
            data += block
            if len(data) > _MOST:
                raise InputError(f"is longer than {_MOST >> 20} MB, which no dump is")
    try:
        found = load_plain(bytes(data)) if data.startswith(_PICKLE) else orjson.loads(data)
    except json.JSONDecodeError as error:
        raise InputError(f"is damaged JSON ({error})") from None
    if not isinstance(found, dict):
        raise InputError("is no flight-recorder dump")
    return found


def _entries(found: Any, rank: int, tally: IssueTally) -> Iterable[FlightEntry]:
    for entry in found if isinstance(found, list) else ():
        made = _entry(entry, rank) if isinstance(entry, dict) else None
        if made is None:
            tally.note("entry", "entries of the flight recorder without group, number or name were left out")
        elif not made.p2p:
            yield made


def _entry(entry: Mapping[str, Any], rank: int) -> FlightEntry | None:
    group, number, name = (
        entry.get("process_group"),
        _whole(entry.get("collective_seq_id")),
        entry.get("profiling_name"),
    )
    if not isinstance(group, list | tuple) or not group or not isinstance(group[0], str):
        return None
    if number is None or not isinstance(name, str):
        return None
    state = entry.get("state")
    finished = state == "completed" or entry.get("retired") is True
    return FlightEntry(
        rank, group[0], number, name, "completed" if finished else str(state or "unknown")[:40],
        _sizes(entry.get("input_sizes")), _whole(entry.get("time_created_ns")), _place(entry.get("frames")),
        entry.get("is_p2p") is True, _whole(entry.get("pg_id")),
        group[1] if len(group) > 1 and isinstance(group[1], str) else "",
    )  # fmt: skip


def _groups(found: Mapping[str, Any], entries: Iterable[FlightEntry], rank: int) -> Iterable[FlightGroup]:
    """Each group of which the dump has entries or members."""
    config, status = found.get("pg_config"), found.get("pg_status")
    configs = {str(facts.get("name", key)): facts for key, facts in _tables(config)}
    statuses = dict(_tables(status))
    by_name = {entry.group: entry for entry in entries}
    for name in sorted({*by_name, *(name for name in configs if name)}):
        entry, facts = by_name.get(name), configs.get(name, {})
        known = statuses.get(str(entry.pg_id), {}) if entry else {}
        done = [one.number for one in entries if one.group == name and one.state == "completed"]
        called = [one.number for one in entries if one.group == name]
        yield FlightGroup(
            rank, name, str(facts.get("desc") or (entry.description if entry else "")), _ranks(facts.get("ranks")),
            max([*called, _whole(known.get("last_enqueued_collective")) or 0]),
            max([*done, _whole(known.get("last_completed_collective")) or 0]),
        )  # fmt: skip


def _tables(found: Any) -> list[tuple[str, dict[str, Any]]]:
    return (
        [(str(key), facts) for key, facts in found.items() if isinstance(facts, dict)]
        if isinstance(found, dict)
        else []
    )


def _ranks(found: Any) -> tuple[int, ...]:
    """Members, which are a list or its text: ``[0, 1]``; empty when unknown."""
    if isinstance(found, str):
        try:
            found = orjson.loads(found)
        except orjson.JSONDecodeError:
            return ()
    whole = isinstance(found, list) and all(_whole(rank) is not None for rank in found)
    return tuple(sorted(set(found))) if whole else ()


def _sizes(found: Any) -> str | None:
    """``[3, 4] [5]``, of many the first; None when none are told."""
    if not isinstance(found, list) or not all(isinstance(size, list) for size in found):
        return None
    if not all(_whole(length) is not None for size in found for length in size[:_MOST_SIZES]):
        return None
    shown = [f"[{', '.join(map(str, size[:_MOST_SIZES]))}]" for size in found[:_MOST_SIZES]]
    return " ".join(shown) + (f" and {len(found) - _MOST_SIZES} more" if len(found) > _MOST_SIZES else "")


def _place(frames: Any) -> str | None:
    """``train.py:31 step``: the innermost frame outside the libraries."""
    for frame in frames if isinstance(frames, list) else ():
        file, line = (frame.get("filename"), _whole(frame.get("line"))) if isinstance(frame, dict) else (None, None)
        if isinstance(file, str) and line is not None and not any(part in file for part in _LIBRARY):
            return f"{PurePath(file).name}:{line} {frame.get('name') or ''}".rstrip()[:200]
    return None


def _whole(value: Any) -> int | None:
    """``value`` when it is a whole number that tables can hold."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 63 else None
