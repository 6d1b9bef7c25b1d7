"""If several rows qualify, every run chooses the same one, so that the same input yields the same bytes."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from each import of_each

from perftool.engine.analysis import analysed, report_on
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.readers.discover import find_inputs
from perftool.reporters.json import render_json
from perftool.store.catalog import catalog

SAMPLE = Path(__file__).parents[1] / "sample_traces" / "gaudi2_unoptimised" / "rank0.pt.trace.json.gz"
CHOICES = re.compile(r"\b(arg_max|arg_min|max_by|min_by|first|last|list|string_agg|any_value|mode)\(")
# Columns whose values are unique (such as positions in a list), or for which equal values give equal results.
UNIQUE = {"ordinal", "rowid", "first", "e.name", "s.op", "v.role"}


@cache
def queries() -> dict[str, str]:
    """Return the SQL of all rules and tables, without comments."""
    rules = {rule.code: rule.sql for rule in load_pack(builtin_folder()) if rule.sql}
    tables = {table.name: table.sql for table in catalog().values()}
    return {name: re.sub(r"--[^\n]*", "", sql) for name, sql in (rules | tables).items()}


def inside(text: str) -> str:
    """Return the part of ``text`` before the first unmatched closing parenthesis."""
    depth = 1
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[:place]
    raise AssertionError(f"unbalanced: {text}")


def arguments(text: str) -> list[str]:
    """Return ``text``, split at commas outside parentheses, brackets and braces."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def loose_choices(sql: str) -> Iterator[str]:
    """Yield the aggregates in ``sql`` that pick an arbitrary row if several are equal."""
    for call in CHOICES.finditer(sql):
        text = inside(sql[call.end() :])
        if call[1].startswith("arg_") or call[1].endswith("_by"):
            key = arguments(text)[1]
            total = key in UNIQUE or (key.startswith("(") and len(arguments(key[1:-1])) > 1)
        else:
            values, _, order = text.partition(" ORDER BY ")
            keys = arguments(order)
            # Equal values are interchangeable.
            itself = keys[0] == arguments(values.removeprefix("DISTINCT "))[0]
            # Values that are sorted afterwards may be collected in any order.
            sorted_after = sql[: call.start()].endswith("list_sort(")
            total = sorted_after or itself or keys[0] in UNIQUE or len(keys) > 1
        if not total:
            yield f"{call[1]}({text})"


@of_each(queries())
def test_every_query_chooses_rows_deterministically(sql: str) -> None:
    assert list(loose_choices(sql)) == []


@pytest.mark.parametrize(
    ("sql", "loose"),
    [
        ("arg_max(ts, dur)", 1),
        ("arg_max(ts, ordinal)", 0),
        ("arg_min({'ts': ts, 'dur': dur}, (-dur, ts), 5)", 0),
        ("arg_min(name, (-(a - b)))", 1),
        ("first(ts ORDER BY dur DESC)", 1),
        ("first(coalesce(a, b) ORDER BY dur DESC, ts)", 0),
        ("any_value(steps)", 1),
        ("list(name ORDER BY dur DESC)[:5]", 1),
        ("list_sort(list(DISTINCT name))", 0),
        ("list(DISTINCT rank ORDER BY rank)", 0),
    ],
)
def test_the_check_finds_ambiguous_choices(sql: str, loose: int) -> None:
    assert len(list(loose_choices(sql))) == loose


def test_the_report_does_not_depend_on_event_order_or_threads(tmp_path: Path) -> None:
    trace = json.loads(gzip.decompress(SAMPLE.read_bytes()))
    as_recorded = rendered(tmp_path, trace, threads=1)
    # Begin and end events keep their order, because the order decides which of them belong together.
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    others = [event for event in trace["traceEvents"] if event["ph"] != "X"]
    trace["traceEvents"] = others + random.Random(1).sample(complete, len(complete))

    assert rendered(tmp_path, trace, threads=3) == as_recorded


def rendered(folder: Path, trace: dict[str, Any], threads: int) -> bytes:
    """Return the JSON report on ``trace`` without its inputs, whose sizes depend on formatting."""
    path = folder / "rank0.pt.trace.json"
    path.write_text(json.dumps(trace), encoding="utf-8")
    with analysed(find_inputs([str(path)])) as run:
        store = run.whole
        store.limit(500, threads)
        return render_json(replace(report_on(store, load_pack(builtin_folder())), inputs=()))
