"""SQL text is split into statements as DuckDB reads it."""

from __future__ import annotations

import duckdb
import pytest

from perftool.commands.statements import separated


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"]),
        ("SELECT 'é;', \"a;b\"; SELECT $$;$$", ["SELECT 'é;', \"a;b\"", "SELECT $$;$$"]),
        ("SELECT 1 -- ;\n; /* ; */ ;;", ["SELECT 1 -- ;"]),
        ("-- nothing", []),
        ("SELECT 'a; SELECT 1", ["SELECT 'a; SELECT 1"]),
        ("", []),
    ],
)
def test_statements_end_at_semicolons(text: str, statements: list[str]) -> None:
    assert separated(text) == statements


def test_text_is_split_without_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    # For unclosed parentheses, the parser takes quadratic time and memory: 8 kB took 24 s and 6.4 GB.
    monkeypatch.setattr(duckdb, "extract_statements", None)
    assert len(separated("SELECT " + "(" * 20_000)) == 1
