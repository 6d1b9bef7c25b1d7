"""Which lines hold one of many texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

# From here on one question to DuckDB, a thousandth of a second, is quicker than to look for each text by itself.
_LONG = 512 << 10


class TextSearch:
    """Looks for texts in pieces of a log; use as a context manager.

    Python looks for one text at a time, which for dozens of them is slower than all the rest of reading. The regular
    expressions of DuckDB (RE2) take one pass however many there are, so long pieces are given to these.
    """

    def __init__(self) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = None

    def __enter__(self) -> TextSearch:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def lines_with(self, texts: tuple[str, ...], piece: str, start: int) -> list[int]:
        """Where the lines of ``piece`` begin that hold one of ``texts``, from ``start`` on, in order.

        ``piece`` is made of whole lines, ``start`` the beginning of one.
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
        """The ``texts`` that ``piece`` holds, each as often as it does, in their order there, without overlap."""
        if self._connection is None:
            import duckdb

            self._connection = duckdb.connect(config={"threads": 1})
        pattern = "|".join(map(re.escape, texts))
        answer = self._connection.execute("SELECT regexp_extract_all(?, ?)", [piece, pattern])
        found: list[str] = answer.fetchall()[0][0]
        return found


def _begins_of(found: list[str], piece: str, start: int) -> list[int]:
    """Where the lines begin that hold ``found``. Each is the next that there is: else another would come before it."""
    begins: list[int] = []
    at, end = start, start
    for text in found:
        at = piece.index(text, at)
        if at >= end:
            begins.append(piece.rfind("\n", start, at) + 1 or start)
            end = piece.index("\n", at)
        at += len(text)
    return begins
