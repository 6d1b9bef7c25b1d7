"""Reads node data of Intel's trace analyzer: ``*_analyzed_nodes.csv``, or ``views/trace_analyzer.json`` in an .hltv.

The columns of both have the same names except for the unit in brackets. ``nan``, ``[Error]`` and empty cells mean that
a value is unknown. If a node ran several times, the number of the run follows its name: ``conv iter 2``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from os import PathLike, fspath

import orjson

from perftool.errors import InputError
from perftool.model.nodes import NodeRun
from perftool.model.records import LogReading
from perftool.readers.files.rank_name import rank_of
from perftool.readers.files.stream import whole
from perftool.readers.nodes.json_list import list_under
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.text_lines import Source, read_lines
from perftool.readers.trace import envelope

MOST_BYTES = 512 << 20
_HEAD = 64 << 10
_KEY = "analyzer_metadata"
# Column names without units.
_COLUMNS = {"unit", "node name", "op type", "duration", "active"}
_RUN = re.compile(r"^(.*) iter (\d{1,9})$", re.DOTALL)
_UNKNOWN = {"", "nan", "none", "[error]", "[]", "inf", "-inf"}
_NS_PER_US = 1000
_MOST_NS = 2**62
# A table may contain _FREE_ROWS rows, and one more per this many characters in its cells. The rows of real tables are
# longer.
_CHARACTERS_PER_ROW, _FREE_ROWS = 60, 10_000


def is_header(line: str) -> bool:
    """Whether ``line`` is the header of the analyzer's CSV."""
    return {_plain(column) for column in line.lstrip("\ufeff").split(",")} >= _COLUMNS


def begins_view(data: bytes) -> bool:
    """Whether ``data`` is the beginning of the analyzer's JSON."""
    head = data[:_HEAD]
    return _KEY.encode() in head and _KEY in envelope.top_keys(head)


def read_csv(source: Source, rank: int | None = None) -> LogReading:
    """Read the node runs in a CSV. Raise InputError if it cannot be read or has other columns."""
    path = fspath(source) if isinstance(source, (str, PathLike)) else "input"
    tally = IssueTally()
    lines = (line.text.replace("\0", "") for line in read_lines(source, tally))
    header = next(lines, "")
    if not is_header(header):
        raise InputError(f"{path}: the first line is not the header of a table of analyzed nodes")
    columns = list(map(_plain, header.lstrip("\ufeff").split(",")))
    rows = (dict(zip(columns, _cells(line), strict=False)) for line in lines if line)
    return LogReading(nodes=tuple(_runs(rows, rank, tally)), issues=tally.issues(), kind="nodes")


def read_file(path: str, rank: int | None = None) -> LogReading:
    """Read the node runs in the JSON file ``path``. The rank comes from its name unless it is given. Raise the errors
    of read_view."""
    return read_view(whole(path, MOST_BYTES), rank_of(path) if rank is None else rank, path)


def read_view(data: bytes, rank: int | None, path: str) -> LogReading:
    """Read the node runs in the JSON ``data`` of the file ``path``. Raise InputError if it is damaged or has other
    content."""
    rows = list_under(_KEY, data, path)
    if rows is None:
        raise InputError(f"{path}: not a table of analyzed nodes")
    tally = IssueTally()
    tables = (
        {_plain(key): value if isinstance(value, str) else orjson.dumps(value).decode() for key, value in row.items()}
        for row in rows
        if isinstance(row, dict)
    )
    return LogReading(nodes=tuple(_runs(tables, rank, tally)), issues=tally.issues(), kind="nodes")


def _runs(rows: Iterable[Mapping[str, str]], rank: int | None, tally: IssueTally) -> Iterator[NodeRun]:
    """Yield the node runs in ``rows``, whose column names come from ``_plain``."""
    kept = characters = 0
    for row in rows:
        characters += sum(map(len, row.values()))
        if kept >= _FREE_ROWS + characters // _CHARACTERS_PER_ROW:
            tally.note("too many nodes", "rows of nodes were left out: a real table of this size has fewer")
            continue
        made = _run({column: value.strip() for column, value in row.items()}, rank)
        if made is None:
            tally.note("node", "rows of nodes without an engine, a name or times were left out")
        else:
            kept += 1
            yield made


def _run(row: Mapping[str, str], rank: int | None) -> NodeRun | None:
    name, engine = row.get("node name"), row.get("unit")
    start, end, active = (_ns(row.get(key)) for key in ("start time of node", "end time of node", "active"))
    dur = _ns(row.get("duration"))
    if not name or not engine or dur is None:
        return None
    ts = start if start is not None else None if end is None else max(end - dur, 0)
    again = _RUN.match(name)
    node = again[1] if again else name
    own = row.get("mme origin node", "").lower() in (node.lower(), *_UNKNOWN)
    expected = _ns(row.get("mme expected compute"))
    return NodeRun(
        engine=engine.upper(),
        node=node,
        run=int(again[2]) if again else 1,
        node_id=_count(row.get("unique node id")) or None,
        op=_known(row.get("op type")) or node,
        ts_ns=ts,
        dur_ns=dur,
        active_ns=dur if active is None else active,
        exposed_ns=_ns(row.get(f"exposed {engine.lower()}")),
        activations=_count(row.get("num activations")),
        lanes=_count(row.get("parallel engines")),
        min_engine_ns=_ns(row.get("min single engine")),
        max_engine_ns=_ns(row.get("max single engine")),
        avg_engine_ns=_ns(row.get("avg single engine")),
        input_shapes=_known(row.get("input shapes")),
        output_shapes=_known(row.get("output shapes")),
        dtype=_known(row.get("output datatype")) or _known(row.get("input datatype")),
        # The estimate is for the whole op, so it does not apply to a node that is only a slice of it.
        expected_ns=expected or (_ns(row.get("mme origin expected")) if own else None) or None,
        utilisation=_share(row.get("mme compute utilization")),
        strategy=_known(row.get("mme node strategy")),
        rank=rank,
    )


def _plain(column: str) -> str:
    name = column.strip()
    before, bracket, unit = name.rpartition("(")
    # A regular expression would take quadratic time for many spaces.
    return (before.rstrip() if bracket and unit.find(")") == len(unit) - 1 else name).lower()


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _known(text: str | None) -> str | None:
    return None if text is None or text.lower() in _UNKNOWN else text


def _decimal(text: str | None) -> Decimal | None:
    known = _known(text)
    try:
        value = Decimal(known) if known is not None else None
    except InvalidOperation:
        return None
    return value if value is not None and value.is_finite() else None


def _ns(text: str | None) -> int | None:
    """Convert printed microseconds to nanoseconds exactly."""
    value = _decimal(text)
    return round(value * _NS_PER_US) if value is not None and 0 <= value < _MOST_NS // _NS_PER_US else None


def _count(text: str | None) -> int | None:
    value = _decimal(text)
    return int(value) if value is not None and 0 <= value < _MOST_NS else None


def _share(text: str | None) -> float | None:
    value = _decimal(text)
    return float(value) / 100 if value is not None and 0 < value <= 100 else None
