"""Finds the lines that contain at least one of many strings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

# For at least this many characters, a DuckDB query, which takes 1 ms, is faster than one search per string.
_LONG = 512 << 10


class TextSearch:
    """Searches pieces of a log for strings. Use it as a context manager.

    Python searches for one string at a time, which is slow for dozens of strings. DuckDB's regular expressions (RE2)
    find all strings in one pass, so they are used for long pieces.
    """

    def __init__(self) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = None

    def __enter__(self) -> TextSearch:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def lines_with(self, texts: tuple[str, ...], piece: str, start: int) -> list[int]:
        """Return the offsets of the lines in ``piece`` that contain one of ``texts``, from ``start`` on, in order.

        ``piece`` must consist of whole lines, and ``start`` must be the beginning of a line.
        """
        if texts and len(piece) - start >= _LONG:
            return _begins_of(self._found(texts, piece[start:]), piece, start)
        begins: set[int] = set()
        for text in texts:
            at = piece.find(text, start)
            while at >= 0:
                begins.add(piece.rfind("\n", start, at) + 1 or start)
                at = piece.find(text, piece.find("\n", at))
        return sorted(begins)

    def _found(self, texts: tuple[str, ...], piece: str) -> list[str]:
        """Return the occurrences of ``texts`` in ``piece``, in order and without overlaps."""
        if self._connection is None:
            import duckdb

            self._connection = duckdb.connect(config={"threads": 1})
        pattern = "|".join(map(re.escape, texts))
        answer = self._connection.execute("SELECT regexp_extract_all(?, ?)", [piece, pattern])
        found: list[str] = answer.fetchall()[0][0]
        return found


def _begins_of(found: list[str], piece: str, start: int) -> list[int]:
    """Return the offsets of the lines that contain the strings ``found``, which must be in the order in which they
    occur in ``piece``."""
    begins: list[int] = []
    at, end = start, start
    for text in found:
        at = piece.index(text, at)
        if at >= end:
            begins.append(piece.rfind("\n", start, at) + 1 or start)
            end = piece.index("\n", at)
        at += len(text)
    return begins
