"""Tables as files for other tools."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from events import step, x
from stores import store_over

from perftool.errors import PerfToolError
from perftool.output_file import whole_folder
from perftool.store import export
from perftool.store.catalog import catalog, public_tables
from perftool.store.trace_store import TraceStore

EVENTS = [step(1, 0, 100), x('=HYPERLINK("http://a")', 10, 20), x("it's", 40, 5)]
NAMES = [table.name for table in public_tables()]


@pytest.fixture
def store() -> Iterator[TraceStore]:
    with store_over(EVENTS) as made:
        yield made


def rows_of(connection: duckdb.DuckDBPyConnection, source: str) -> list[tuple[Any, ...]]:
    return connection.execute(f"SELECT * FROM {source} ORDER BY ALL").fetchall()


def test_a_database_has_every_table_with_its_documentation(store: TraceStore, tmp_path: Path) -> None:
    assert store.export(NAMES, export.write_duckdb, tmp_path / "run.duckdb") == []

    assert [path.name for path in tmp_path.iterdir()] == ["run.duckdb"]
    with duckdb.connect(str(tmp_path / "run.duckdb"), read_only=True) as found:
        assert {name for (name,) in found.execute("SELECT table_name FROM duckdb_tables()").fetchall()} == set(NAMES)
        assert len(rows_of(found, "slices")) == len(store.rows("slices"))
        assert [name for (name,) in found.execute("SELECT name FROM ops ORDER BY ts").fetchall()] == [
            '=HYPERLINK("http://a")', "it's",
        ]  # fmt: skip
        comments = dict(
            found.execute("SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'slices'").fetchall()
        )
    assert comments == {column.name: column.meaning for column in catalog()["slices"].columns}


def test_a_folder_has_a_parquet_file_for_each_table(store: TraceStore, tmp_path: Path) -> None:
    with whole_folder(tmp_path / "run") as place:
        store.export(["slices", "steps"], export.write_parquet, place)

    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["slices.parquet", "steps.parquet"]
    file = f"'{tmp_path}/run/slices.parquet'"
    assert len(rows_of(duckdb.connect(), file)) == len(store.rows("slices"))
    pairs = duckdb.connect().execute(f"SELECT key, value FROM parquet_kv_metadata({file})").fetchall()
    assert {column.name.encode() for column in catalog()["slices"].columns} < set(dict(pairs))


def test_a_name_that_looks_like_a_formula_stays_text_in_a_workbook(store: TraceStore, tmp_path: Path) -> None:
    pytest.importorskip("xlsxwriter")

    assert store.export(["ops", "gaps"], export.write_workbook, tmp_path / "run.xlsx") == []

    with zipfile.ZipFile(tmp_path / "run.xlsx") as book:
        sheets = {name: book.read(name).decode() for name in book.namelist() if "worksheets/sheet" in name}
    # One sheet documents the tables, and one contains the ops. There is no sheet for gaps, which have no rows.
    assert len(sheets) == 2
    assert not any("<f>" in sheet or "<hyperlink" in sheet for sheet in sheets.values())
    assert any("=HYPERLINK(" in sheet for sheet in sheets.values())
    assert all('state="frozen"' in sheet for sheet in sheets.values())


def test_rows_beyond_a_sheet_are_left_out_with_a_note(
    store: TraceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xlsxwriter")
    monkeypatch.setattr(export, "_SHEET_ROWS", 1)

    said = store.export(["ops"], export.write_workbook, tmp_path / "run.xlsx")

    assert said == ["ops: 1 row was left out, because a sheet holds at most 1"]


def test_text_beyond_a_cell_is_cut_with_a_note(tmp_path: Path) -> None:
    pytest.importorskip("xlsxwriter")
    # 32,768 characters: a reader keeps them all, but a cell cannot hold them.

    with store_over([*EVENTS, x("n", 60, 5, **{"Input Dims": [[10] + [1] * 16_381]})]) as store:
        said = store.export(["ops"], export.write_workbook, tmp_path / "run.xlsx")

    assert said == ["ops: 1 text was truncated to the 32,767 characters that a cell holds"]


def test_a_failed_export_leaves_no_folder_and_replaces_none(tmp_path: Path) -> None:
    def broken() -> None:
        with whole_folder(tmp_path / "run") as place:
            place.mkdir()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert list(tmp_path.iterdir()) == []

    with pytest.raises(PerfToolError, match="already exists"), whole_folder(tmp_path):
        pass
