"""Reads a dump of torch.distributed's flight recorder: one rank's view of its collectives during a hang.

A dump is a pickle (``nccl_trace_rank_3``) or JSON in format 2.x, with the keys ``pg_config`` (the groups and their
members), ``pg_status`` (the numbers of the last collectives, by ``pg_id``) and ``entries`` (a ring buffer of the latest
collectives). A finished entry has the state ``completed``; some backends set only ``retired``, which NCCL also sets for
failed entries.

Sends and receives are numbered separately (``p2p_seq_id``). Those of a batch share a number with the entry
``coalesced`` that follows them, and only that entry has their state. A batch also uses up one of the group's numbers
for collectives, but not on every rank, so in a group with batches these numbers are not comparable between ranks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any

import orjson

from perftool.errors import InputError
from perftool.model.records import FlightEntry, FlightGroup, LogReading
from perftool.readers.files.rank_name import rank_of
from perftool.readers.files.stream import whole
from perftool.readers.flight.plain_pickle import load_plain
from perftool.readers.text.bounded_json import parsed
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.json_values import LONGEST_TEXT, integer, text
from perftool.readers.trace import envelope
from perftool.units import quantity

# Larger than any dump: a dump has thousands of entries of a few kB each.
_MOST = 256 << 20
_HEAD = 64 << 10
_PICKLE = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
_DUMP_KEYS = (b"collective_seq_id", b"pg_config")
_PEERS = re.compile(r"\d(?:->|<-)(\d{1,6})$")
_KEYS = {"pg_config", "pg_status", "entries"}
# Paths of frames that belong to libraries rather than to the program.
_LIBRARY = ("/torch/", "/contextlib.py", "/multiprocessing/", "/threading.py")
_MOST_SIZES = 8
_MOST_FRAMES = 200
_whole = partial(integer, below=2**62, signed=True)
# Entries of a pickle may share strings and lists, so two bytes of the file can become a long row. The rows may have
# _MOST_PER_BYTE characters per byte of the file, plus _MOST_FREE. An entry counts as the length of its strings plus
# _ENTRY. A real entry takes more than 80 bytes of the file, and its strings have about as many characters as it has
# bytes.
_MOST_PER_BYTE, _MOST_FREE = 8, 1_000_000
_ENTRY = 64
# A file may list one member per byte, plus this many, because 50 groups may share 4,000 ranks in a small file.
_FREE_MEMBERS = 200_000
# Enough for 1,000 groups of 4,000 ranks.
_MOST_MEMBERS = 4_000_000


def begins_dump(data: bytes) -> bool:
    """Whether ``data`` is the beginning of a dump. Traces may contain the same keys, but not at the top level."""
    head = data[:_HEAD]
    if head.startswith(_PICKLE):
        return any(word in head for word in _DUMP_KEYS)
    keys = set(envelope.top_keys(head)) if any(word in head for word in _DUMP_KEYS) else set()
    return "traceEvents" not in keys and bool(keys & _KEYS)


def read(path: str, rank: int | None = None) -> LogReading:
    """Read the groups and collectives in the dump at ``path``, whose name must contain the rank if ``rank`` is None.

    Raise InputError if the dump is damaged or too large, has no rank, or contains anything but plain values.
    """
    known = rank_of(path) if rank is None else rank
    known = _number_at_end(path) if known is None else known
    if known is None:
        raise InputError(f"{path}: a flight-recorder dump needs its rank in its name, as in nccl_trace_rank_3")
    data = whole(path, _MOST)
    try:
        found = _load(data)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    tally = IssueTally()
    texts = _Allowance(_MOST_PER_BYTE * len(data) + _MOST_FREE)
    configs = _configs(found, _Members(min(len(data) + _FREE_MEMBERS, _MOST_MEMBERS)), texts, tally)
    raw, batches = _without_batches(found.get("entries"))
    entries = tuple(_entries(raw, known, configs, texts, tally))
    groups = tuple(_groups(found, entries, known, configs, batches, tally))
    return LogReading(flight=entries, flight_groups=groups, issues=tally.issues(), kind="flight_record")


def _number_at_end(path: str) -> int | None:
    name = PurePath(path).name.removesuffix(".json")
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits) if digits.isascii() and 0 < len(digits) <= 6 else None


def _load(data: bytes) -> Mapping[str, Any]:
    pickled = data.startswith(_PICKLE)
    try:
        found = load_plain(data) if pickled else parsed(data)
    except ValueError as error:
        raise InputError(f"damaged JSON ({error})") from None
    if not isinstance(found, dict) or (not pickled and envelope.holds_events(data)):
        raise InputError("not a flight-recorder dump")
    return found


@dataclass(frozen=True, slots=True)
class _Config:
    """A process group, as a dump describes it."""

    description: str
    members: tuple[int, ...]


class _Allowance:
    """What is left of a limit that applies to a whole file."""

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self, count: int) -> bool:
        """Subtract ``count``, and return whether at least that much was left."""
        self._left -= count
        return self._left >= 0


def _configs(found: Mapping[str, Any], members: _Members, texts: _Allowance, tally: IssueTally) -> dict[str, _Config]:
    tables = _tables(found, "pg_config", tally)
    named = {text(facts.get("name")) or _cut(key): facts for key, facts in tables}
    configs = {}
    for name in sorted(filter(None, named)):
        description = text(named[name].get("desc")) or ""
        if not texts.take(len(description)):
            tally.note("texts", "groups with descriptions too long for the file's size are listed without them")
            description = ""
        configs[name] = _Config(description, members.of(named[name].get("ranks"), tally))
    return configs


def _without_batches(found: Any) -> tuple[list[Any], set[str]]:
    """Remove the entries that end batches, and copy their state to the sends and receives of the batch. Also return the
    groups with batches."""
    entries = found if isinstance(found, list) else []
    sends = {_batch(entry) for entry in entries if isinstance(entry, dict) and entry.get("is_p2p") is True}
    closing = {
        batch: entry
        for entry in entries
        if isinstance(entry, dict)
        and isinstance(name := entry.get("profiling_name"), str)
        and name.endswith(":coalesced")
        if (batch := _batch(entry)) in sends and batch is not None
    }
    kept = []
    for entry in entries:
        batch = _batch(entry) if isinstance(entry, dict) else None
        whole = closing.get(batch) if batch else None
        if whole is None:
            kept.append(entry)
        elif entry is not whole and entry.get("is_p2p") is True:
            kept.append({**entry, "state": whole.get("state"), "retired": whole.get("retired")})
    return kept, {_cut(batch[0]) for batch in closing}


def _batch(entry: Mapping[str, Any]) -> tuple[str, int, int] | None:
    """Return the key that the entries of a batch share with the entry that ends it: the group and both numbers."""
    name, numbers = _group_name(entry), [_whole(entry.get(key)) for key in ("collective_seq_id", "p2p_seq_id")]
    return None if name is None or numbers[0] is None or numbers[1] is None else (name, numbers[0], numbers[1])


def _entries(
    entries: list[Any], rank: int, configs: Mapping[str, _Config], texts: _Allowance, tally: IssueTally
) -> Iterable[FlightEntry]:
    for at, entry in enumerate(entries):
        made = _entry(entry, rank, configs) if isinstance(entry, dict) else None
        if made is None:
            tally.note("entry", "entries of the flight recorder without a group, number, name or peer were left out")
        elif texts.take(_length(made)):
            yield made
        else:
            of = "of the flight recorder"
            left_out = quantity(len(entries) - at, f"entry {of} was", f"entries {of} were")
            tally.note("texts of entries", f"the last {left_out} left out: the file repeats its contents too often")
            return


def _length(entry: FlightEntry) -> int:
    """Return the number of characters that ``entry`` adds towards the file's limit."""
    texts = (entry.group, entry.name, entry.sizes, entry.place, entry.description)
    return _ENTRY + sum(len(one) for one in texts if one)


def _entry(entry: Mapping[str, Any], rank: int, configs: Mapping[str, _Config]) -> FlightEntry | None:
    group, name, sends = _group_name(entry), entry.get("profiling_name"), entry.get("is_p2p") is True
    number = _whole(entry.get("p2p_seq_id" if sends else "collective_seq_id"))
    if group is None or number is None or not isinstance(name, str):
        return None
    peer = _peer(name, configs[_cut(group)].members) if sends and _cut(group) in configs else None
    if sends and peer is None:
        return None
    described = entry["process_group"][1:]
    return FlightEntry(
        rank, _cut(group), number, _cut(name), _state(entry, name),
        _sizes(entry.get("input_sizes")), _whole(entry.get("time_created_ns")), _place(entry.get("frames")),
        peer, _whole(entry.get("pg_id")), (described and text(described[0])) or "",
    )  # fmt: skip


def _group_name(entry: Mapping[str, Any]) -> str | None:
    group = entry.get("process_group")
    return group[0] if isinstance(group, list | tuple) and group and isinstance(group[0], str) else None


def _state(entry: Mapping[str, Any], name: str) -> str:
    state = text(entry.get("state")) or "unknown"
    if entry.get("retired") is True and state != "completed":
        return "failed" if name.startswith("nccl:") else "completed"
    return state[:40]


def _peer(name: str, members: tuple[int, ...]) -> int | None:
    """Return the rank of the peer in ``nccl:send 1->2`` or ``nccl:recv 1<-0``. The numbers are positions in the
    group.
    """
    found = _PEERS.search(name[:LONGEST_TEXT])
    at = int(found[1]) if found else len(members)
    return members[at] if at < len(members) else None


def _groups(
    found: Mapping[str, Any], entries: Iterable[FlightEntry], rank: int, configs: Mapping[str, _Config],
    batches: set[str], tally: IssueTally,
) -> Iterable[FlightGroup]:  # fmt: skip
    """Yield the groups that the entries or the configuration of the dump mention."""
    statuses = dict(_tables(found, "pg_status", tally))
    by_name: dict[str, FlightEntry] = {}
    called: dict[str, int] = defaultdict(int)
    done: dict[str, int] = defaultdict(int)
    failed: dict[str, int] = {}
    for entry in entries:
        by_name[entry.group] = entry
        if entry.peer is not None:
            continue
        called[entry.group] = max(called[entry.group], entry.number)
        if entry.state == "completed":
            done[entry.group] = max(done[entry.group], entry.number)
        if entry.state == "failed":
            failed[entry.group] = min(failed.get(entry.group, entry.number), entry.number)
    for name in sorted({*by_name, *configs}):
        of_group, facts = by_name.get(name), configs.get(name, _Config("", ()))
        known = statuses.get(str(of_group.pg_id), {}) if of_group else {}
        last = max(done[name], _last(known, "last_completed_collective", tally))
        yield FlightGroup(
            rank, name, facts.description or (of_group.description if of_group else ""), facts.members,
            None if name in batches else max(called[name], _last(known, "last_enqueued_collective", tally)),
            # The status also counts collectives that failed.
            None if name in batches else min(last, failed.get(name, last + 1) - 1),
        )  # fmt: skip


def _last(status: Mapping[str, Any], key: str, tally: IssueTally) -> int:
    number = _whole(status.get(key))
    if number is None and status.get(key) is not None:
        tally.note("status", "numbers of last collectives in pg_status that are not whole numbers were ignored")
    return number or 0


class _Members:
    """Parses the members of groups. A list that many groups share is parsed only once, and the total number of members
    is limited."""

    def __init__(self, most: int) -> None:
        self._read: dict[str, tuple[int, ...]] = {}
        self._most, self._allowed = most, _Allowance(most)

    def of(self, found: Any, tally: IssueTally) -> tuple[int, ...]:
        if isinstance(found, str):
            if found not in self._read:
                self._read[found] = _ranks(found, tally)
            ranks = self._read[found]
        else:
            ranks = _ranks(found, tally)
        if not self._allowed.take(len(ranks)):
            tally.note("members", f"after the first {self._most:,} members, groups are listed without their members")
            return ()
        return ranks


def _tables(dump: Mapping[str, Any], key: str, tally: IssueTally) -> list[tuple[str, dict[str, Any]]]:
    found = {} if dump.get(key) is None else dump[key]
    rows = list(found.items()) if isinstance(found, dict) else [("", None)]
    tables = [(str(name), facts) for name, facts in rows if isinstance(facts, dict)]
    if len(tables) < len(rows):
        tally.note(key, f"parts of {key} that are not objects were ignored")
    return tables


def _ranks(found: Any, tally: IssueTally) -> tuple[int, ...]:
    """Return the members in ``found``, a list or its text, such as ``[0, 1]``, or none if they are unknown."""
    if found is None or found == "":
        return ()
    if isinstance(found, str):
        with suppress(orjson.JSONDecodeError):
            found = orjson.loads(found)
    if isinstance(found, list) and all(_whole(rank) is not None for rank in found):
        return tuple(sorted(set(found)))
    tally.note("ranks", "lists of the members of groups could not be read")
    return ()


def _sizes(found: Any) -> str | None:
    """Return the first few shapes as text, such as ``[3, 4] [5]``, or None if ``found`` is not a list of shapes."""
    first = found[:_MOST_SIZES] if isinstance(found, list) else None
    if first is None or not all(isinstance(size, list) for size in first):
        return None
    if not all(_whole(length) is not None for size in first for length in size[:_MOST_SIZES]):
        return None
    shown = [f"[{', '.join(map(str, size[:_MOST_SIZES]))}]" for size in first]
    return " ".join(shown) + (f" and {len(found) - _MOST_SIZES} more" if len(found) > _MOST_SIZES else "")


def _place(frames: Any) -> str | None:
    """Return the innermost frame outside the libraries, in the form ``train.py:31 step``."""
    for frame in frames[:_MOST_FRAMES] if isinstance(frames, list) else ():
        file, line = (frame.get("filename"), _whole(frame.get("line"))) if isinstance(frame, dict) else (None, None)
        if isinstance(file, str) and line is not None and not any(part in file[-LONGEST_TEXT:] for part in _LIBRARY):
            return f"{PurePath(file[-LONGEST_TEXT:]).name}:{line} {text(frame.get('name')) or ''}".rstrip()[:200]
    return None


def _cut(name: str) -> str:
    """Limit the length of ``name``, because many entries of a pickle may share it, and a table would repeat it."""
    return name[:LONGEST_TEXT]
