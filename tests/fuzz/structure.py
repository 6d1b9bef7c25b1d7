"""Structured damage: the result is still JSON, TOML, CSV, a log or SQL, but with different content."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from random import Random

import tomli

_VALUES = [
    None,
    True,
    -1,
    0,
    1.5,
    1e300,
    2**63,
    -(2**70),
    "",
    "x",
    "\x00",
    "\ud800",
    [],
    {},
    [1],
    {"a": 1},
    [[[]]],
    "9" * 40,
]
_NUMBERS = (
    b"0", b"-1", b"1e308", b"1e-320", b"9007199254740993", b"9223372036854775807", b"9223372036854775808",
    b"-9223372036854775809", b"18446744073709551616", b"NaN", b"-Infinity", b"0.1", b"00", b"1_0", b"9" * 500, b"",
)  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORD = re.compile(rb"\w+|[^\w\s]")
_LONGEST_CSV = 1 << 16


def events_on_lines(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Return the events as an array with one event per line, some of them twice."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return data
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list) or not events:
        return data
    return b"\n".join(
        json.dumps(event).encode("utf-8", "surrogatepass") for event in random.choices(events, k=len(events))
    )


def structure(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Change a value of a JSON or TOML document, or drop a key. Any other text is returned unchanged."""
    document: object
    try:
        document, write = json.loads(data), json.dumps
    except (ValueError, RecursionError):
        try:
            document, write = tomli.loads(data.decode()), _toml
        except (ValueError, RecursionError):
            return data
    for _ in range(random.randint(1, 3)):
        document = _changed(random, document)
    return write(document).encode("utf-8", "surrogatepass")


def _toml(document: object) -> str:
    """Return ``document`` as TOML, with a line for each key and everything below it inline."""
    if not isinstance(document, dict):
        return ""
    return "".join(f"{json.dumps(key)} = {_toml_value(value)}\n" for key, value in document.items())


def _toml_value(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml_value(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return json.dumps("" if value is None else value)


def _changed(random: Random, value: object) -> object:
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(list(value))
        if random.random() < 0.15:
            return {name: part for name, part in value.items() if name != key}
        return {**value, key: _changed(random, value[key])}
    if isinstance(value, list) and value and random.random() < 0.9:
        at = random.randrange(len(value))
        return [*value[:at], _changed(random, value[at]), *value[at + 1 :]]
    return random.choice(_VALUES)


def numbers(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Replace some numbers, in any format, with limits of ranges or with other numbers from the file."""
    found = list(_NUMBER.finditer(data))
    for match in sorted(random.sample(found, min(len(found), random.randint(1, 5))), key=lambda m: -m.start()):
        other = random.choice(found)[0] if random.random() < 0.3 else random.choice(_NUMBERS)
        data = data[: match.start()] + other + data[match.end() :]
    return data


def cells(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Reorder, drop or repeat columns of a CSV file, and mix cells of rows."""
    rows = list(csv.reader(io.StringIO(data[:_LONGEST_CSV].decode("utf-8", "replace").replace("\0", ""), newline="")))
    if not rows or len(rows[0]) < 2:
        return data
    columns = random.choices(range(len(rows[0])), k=len(rows[0]))
    if random.random() < 0.5:
        columns = list(range(len(rows[0])))
        row, other, at = random.choice(rows), random.choice(rows), random.choice(columns)
        if at < len(row) and at < len(other):
            row[at] = other[at] if random.random() < 0.5 else random.choice(_NUMBERS).decode()
    text = io.StringIO()
    csv.writer(text).writerows([row[at] for at in columns if at < len(row)] for row in rows)
    return text.getvalue().encode("utf-8", "replace")


def parts(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Replace the events of a trace with many that are drawn from them at random, or nest a value very deeply."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if random.random() < 0.5:
        depth = int(10 ** random.uniform(1, 3.5))
        inner = json.dumps(_changed(random, document)).encode("utf-8", "surrogatepass")
        return b'{"args":' * depth + inner + b"}" * depth if random.random() < 0.2 else _deepened(random, data, depth)
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list) or not events:
        return data
    many = random.choices(events, k=int(10 ** random.uniform(1, 3)))
    whole = {**document, "traceEvents": many} if isinstance(document, dict) else many
    return json.dumps(whole).encode("utf-8", "surrogatepass")


def _deepened(random: Random, data: bytes, depth: int) -> bytes:
    """Nest some value of ``data`` in ``depth`` lists or objects."""
    found = list(re.finditer(rb'(?<=:)\s*("[^"\\]*"|-?\d+)', data))
    if not found:
        return data
    match = random.choice(found)
    opened, closed = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return data[: match.start()] + opened * depth + match[0] + closed * depth + data[match.end() :]


def words(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Swap, drop or repeat words and symbols of some text (SQL or a log), or insert some from other text."""
    found = list(_WORD.finditer(data))
    if len(found) < 3:
        return data
    first, second = sorted(random.sample(found, 2), key=lambda match: match.start())
    head, tail = data[: first.start()], data[second.end() :]
    between = data[first.end() : second.start()]
    way = random.randrange(4)
    if way == 0:
        return head + second[0] + between + first[0] + tail
    if way == 1:
        return head + tail
    if way == 2:
        return head + (first[0] + between) * int(10 ** random.uniform(0.5, 2.5)) + second[0] + tail
    other = _WORD.findall(random.choice(seeds)[:_LONGEST_CSV])
    return head + first[0] + between + (random.choice(other) if other else b"") + tail
