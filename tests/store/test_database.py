"""Databases in DuckDB's older formats, and text inside SQL."""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb
import pytest
from events import step, x
from stores import store_over

from perftool.store import database
from perftool.store.rank_export import ExportedTables
from perftool.store.shift import Shift
from perftool.store.trace_store import TraceStore


@pytest.mark.parametrize(
    ("version", "disabled"), [("1.5.6", "top_n_window_elimination"), ("2.0.0", ""), ("10.1.0", "")]
)
def test_the_faulty_optimizer_of_duckdb_before_2_is_switched_off(
    version: str, disabled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb, "__version__", version)
    with database.open_database(":memory:") as opened:
        assert opened.execute("SELECT current_setting('disabled_optimizers')").fetchall() == [(disabled,)]


@pytest.mark.parametrize("text", ["", "it's", "''", 'a"b'])
def test_a_literal_is_the_text_again(text: str) -> None:
    assert duckdb.sql(f"SELECT {database.literal(text)}").fetchall() == [(text,)]


def test_temporary_files_may_have_a_quote_in_their_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "it's"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with store_over([step(1, 0, 100), x("aten::mm", 10, 20)]) as rank, TraceStore() as whole:
        whole.inputs += rank.inputs
        whole.import_ranks([ExportedTables(rank.export_ranks(), Shift(0, ()), frozenset({0}))])
        assert [row["name"] for row in whole.rows("steps")] == ["ProfilerStep#1"]
        assert rank.query("SELECT name FROM ops")[1] == [("aten::mm",)]
