"""Splits SQL text into statements."""

from __future__ import annotations


def separated(text: str) -> list[str]:
    """Split ``text`` into statements, without the semicolons. Text that DuckDB cannot split stays whole: running it
    reports the error.

    Only tokens are read: DuckDB's parser takes quadratic time and memory for unclosed parentheses, and nothing limits
    it here.
    """
    import duckdb

    data = text.encode()
    try:
        tokens = duckdb.tokenize(text)
    except duckdb.Error:
        return [text]
    found: list[str] = []
    begin, empty = 0, True
    for at, kind in [*tokens, (len(data), None)]:
        ends = kind is None or (kind == duckdb.token_type.operator and data[at : at + 1] == b";")
        if not ends:
            empty = empty and kind == duckdb.token_type.comment
        elif not empty:
            found.append(data[begin:at].decode().strip())
        if ends:
            begin, empty = at + 1, True
    return found
