"""``query`` returns rows for other programs."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from builders.program import Run
from events import document, x

from perftool.commands import query
from perftool.store.sandbox.sandbox import Bounds, Result


@pytest.fixture(autouse=True)
def _trace(_outside: None) -> None:
    Path("run.json").write_bytes(document([x("a", 0, 1)]))


def test_numbers_of_the_database_are_numbers(run: Run) -> None:
    sql = "SELECT 1.5 AS d, [2.5] AS l, 2::HUGEINT ** 3 AS h, 9223372036854775808 AS big, 'NaN'::DOUBLE AS n, true AS b"
    assert run("query", "run.json", sql, "--output-format", "json") == 0
    assert json.loads(run.out) == [{"d": 1.5, "l": [2.5], "h": 8, "big": 2.0**63, "n": None, "b": True}]


def test_two_columns_of_one_name_are_refused(run: Run) -> None:
    assert run("query", "run.json", "SELECT 1 AS a, 2 AS a", "--output-format", "json") == 2
    assert (
        run.err == "habana_perf_tool: two columns are called a, but the keys of a JSON object must be unique; "
        "rename one with AS\n"
    )


def test_an_unknown_table_is_answered_with_similar_ones(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"traceEvents": []}')
    assert run("query", "run.json", "SELECT * FROM gap_cause") == 2
    assert run.err == "habana_perf_tool: there is no table 'gap_cause'; did you mean gap_causes or gaps?\n"
    assert run("query", "run.json", "SELECT * FROM xyz") == 2
    assert run.err == "habana_perf_tool: there is no table 'xyz'; query --tables lists the tables\n"


def test_statements_are_read_from_stdin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"SELECT 1 AS a; SELECT 2 AS b;")))

    assert run("query", "run.json", "-f", "-") == 0
    assert run.out == "a\n1\n\nb\n2\n"
    assert run("query", "-", "-f", "-") == 2
    assert run.err == "habana_perf_tool: stdin cannot be both the trace and the statements\n"


@pytest.mark.parametrize(
    ("rows", "cut", "note"),
    [(100, False, ""), (101, False, "the first 100 of 101 rows"), (101, True, "the first 100 of more than 101 rows")],
)
def test_a_prompt_shows_the_first_rows(rows: int, cut: bool, note: str) -> None:
    result = Result(["a"], [(at,) for at in range(rows)], cut)

    text = query._on_screen(result, query.Format.csv, Bounds(1.0))

    said = f"{note}; LIMIT and OFFSET select others" if note else ""
    assert text == "\n".join(["a", *map(str, range(100)), said])


def test_an_unknown_column_lists_the_known_ones(run: Run) -> None:
    assert run("query", "run.json", "SELECT nme FROM slices") == 2
    assert 'column "nme" not found' in run.err
    assert "; the columns are slices (" in run.err
    assert ", name, " in run.err


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names themselves")
def test_a_file_name_that_is_not_utf8_is_read_and_shown_with_escapes(run: Run) -> None:
    Path("r\udce4nk.json").write_bytes(document([x("aten::mm", 1, 5)]))

    assert run("lint", "r\udce4nk.json", "--select", "TRC", "--output-format", "json") == 0
    assert [read["path"].endswith("r\\xe4nk.json") for read in json.loads(run.out)["inputs"]] == [True]
    assert run("lint", "r\udce4nk.json", "--select", "TRC", "--output-format", "junit") == 0
    assert "r\\xe4nk.json" in run.out
    assert run("analyze", "r\udce4nk.json", "--select", "TRC", "--full") == 0
    assert "Read r\\xe4nk.json" in run.out
    assert run("query", "r\udce4nk.json", "SELECT path FROM inputs", "--output-format", "csv") == 0
    assert run.out == "path\nr\\xe4nk.json\n"


@pytest.mark.skipif(sys.platform != "linux", reason="needs a device without an end")
def test_a_file_of_statements_has_an_end(run: Run) -> None:
    assert run("query", "run.json", "-f", "/dev/zero") == 2
    assert run.err == "habana_perf_tool: /dev/zero: cannot read (larger than 1 MiB)\n"


def test_answers_to_several_statements_are_separated(run: Run) -> None:
    Path("asked.sql").write_text("SELECT 1 AS a; SELECT 2 AS b;")

    assert run("query", "run.json", "-f", "asked.sql") == 0
    assert run.out == "a\n1\n\nb\n2\n"
    assert run("query", "run.json", "-f", "asked.sql", "--output-format", "csv") == 0
    assert run.out == "a\n1\n\nb\n2\n"
    assert run("query", "run.json", "-f", "asked.sql", "--output-format", "json") == 0
    assert run.out == '[{"a":1}]\n[{"b":2}]\n'


def test_the_statement_of_a_file_that_fails_is_named(run: Run) -> None:
    Path("asked.sql").write_text("SELECT 1; SELECT 2; SELECT * FROM opps; SELECT 4")

    assert run("query", "run.json", "-f", "asked.sql") == 2
    assert run.err.startswith("habana_perf_tool: statement 3: there is no table 'opps'; ")
    assert run.out == ""


def test_a_select_and_a_file_exclude_each_other(run: Run) -> None:
    assert run("query", "run.json", "SELECT 1", "-f", "asked.sql") == 2
    assert run.err == "habana_perf_tool: query takes a SELECT or -f FILE, not both\n"


def test_a_column_named_like_a_keyword_suggests_quotes(run: Run) -> None:
    assert run("query", "run.json", "SELECT ts, end FROM slices") == 2
    assert run.err.endswith('syntax error at or near "end"; write the column as "end", with the quotes\n')


@pytest.mark.parametrize("sql", ["SHOW TABLES", "SHOW ALL TABLES"])
def test_a_list_of_tables_is_never_empty(run: Run, sql: str) -> None:
    assert run("query", "run.json", sql) == 2
    assert run.err == "habana_perf_tool: SHOW is not allowed; query --tables lists the tables\n"
