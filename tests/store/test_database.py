"""Databases are opened so that old versions of DuckDB do not fail."""

from __future__ import annotations

import duckdb
import pytest

from perftool.store import database


@pytest.mark.parametrize(
    ("version", "disabled"), [("1.5.6", "top_n_window_elimination"), ("2.0.0", ""), ("10.1.0", "")]
)
def test_an_optimizer_that_fails_before_2_is_not_used_there(
    version: str, disabled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb, "__version__", version)
    with database.open_database(":memory:") as opened:
        assert opened.execute("SELECT current_setting('disabled_optimizers')").fetchall() == [(disabled,)]
