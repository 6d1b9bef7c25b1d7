"""``query``: rows as other programs get them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.program import Run
from events import document, x


@pytest.fixture(autouse=True)
def _trace(_outside: None) -> None:
    Path("run.json").write_bytes(document([x("a", 0, 1)]))


def test_numbers_of_the_database_are_numbers(run: Run) -> None:
    sql = "SELECT 1.5 AS d, [2.5] AS l, 2::HUGEINT ** 3 AS h, 9223372036854775808 AS big, 'NaN'::DOUBLE AS n, true AS b"
    assert run("query", "run.json", sql, "--output-format", "json") == 0
    assert json.loads(run.out) == [{"d": 1.5, "l": [2.5], "h": 8, "big": 2.0**63, "n": None, "b": True}]


def test_two_columns_of_one_name_are_refused(run: Run) -> None:
    assert run("query", "run.json", "SELECT 1 AS a, 2 AS a", "--output-format", "json") == 2
    assert run.err == "habana_perf_tool: two columns are called a, which an object cannot have; rename one with AS\n"


def test_an_unknown_table_is_answered_with_those_there_are(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"traceEvents": []}')
    assert run("query", "run.json", "SELECT * FROM opps") == 2
    assert run.err.startswith("habana_perf_tool: there is no table 'opps'; there are ")
    assert " ops, " in run.err
