"""The prompt of ``query`` without SQL: history, completion of tables and columns, timing."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from perftool.commands.statements import separated
from perftool.errors import PerfToolError
from perftool.store.catalog import names_in, no_table, public_tables

_FIRST, _MORE = "perftool> ", "     ...> "
GREETING = "SQL ends with a semicolon; .help lists the other commands."
_HELP = """\
Type SELECT statements, each ended by a semicolon. Tab completes names; the arrow keys recall earlier statements.
.tables          list the tables, with a sentence on each
.schema TABLE    list the columns of a table
.quit            leave (or exit, or Ctrl-D)"""
_LEAVE = (".quit", ".exit", "quit", "exit")
_DOTTED = (".help", ".tables", ".schema", ".quit")
# The word before the cursor, reversed. It may start with a dot only at the beginning of a line.
_WORD = re.compile(r"^(\w*\.$|\w*)")
_TABLE_NEXT = re.compile(r"(^\s*\.schema|\b(FROM|JOIN))\s+\w*$", re.IGNORECASE)
# On Windows, neither constant exists.
_NEITHER_LINK_NOR_WAIT = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "JOIN", "USING", "ASOF JOIN", "DESC", "WITH"),
    *("count(*)", "sum(", "median(", "avg(", "min(", "max(", "quantile_cont("),
)

Ask = Callable[[str], str]
"""Runs one SELECT and returns the text to print. Raises PerfToolError."""


def prompt(read: Callable[[str], str], ask: Ask, say: Callable[[str], object]) -> None:
    """Answer the statements in the lines that ``read`` returns, until it raises EOFError or the user quits."""
    for text in statements(read, say):
        for statement in separated(text):
            start = time.monotonic()
            answer, succeeded = _answer(ask, statement)
            say(f"{answer.rstrip()}\n({time.monotonic() - start:.2f} s)")
            if not succeeded:
                break


def _answer(ask: Ask, statement: str) -> tuple[str, bool]:
    """Return the text to print for ``statement``, and whether it succeeded."""
    try:
        return ask(statement), True
    except PerfToolError as error:
        return str(error), False
    except KeyboardInterrupt:
        return "interrupted", False


def statements(read: Callable[[str], str], say: Callable[[str], object]) -> Iterator[str]:
    """Yield the statements in the lines that ``read`` returns. ``say`` prints the answers to dot commands."""
    lines: list[str] = []
    while True:
        try:
            line = read(_MORE if lines else _FIRST)
        except KeyboardInterrupt:
            # As in a shell, Ctrl-C discards what was typed.
            lines = []
            continue
        except EOFError:
            return
        if not lines and line.strip() in _LEAVE:
            return
        if not lines and _is_dotted(line):
            say(_dotted(line.split()))
            continue
        lines.append(line)
        text = "\n".join(lines).strip()
        if not text:
            lines = []
        elif text.endswith(";"):
            lines = []
            yield text


def whole_entries(keep: Callable[[str], None]) -> tuple[Callable[[], None], Callable[[str], None]]:
    """Return two functions: one starts a history entry, the other adds a line to it and passes complete entries to
    ``keep``.

    A statement of several lines is one entry, so that the arrow keys recall all of it.
    """
    lines: list[str] = []

    def add(line: str) -> None:
        lines.append(line)
        text = "\n".join(lines)
        if _is_dotted(text) or text.rstrip().endswith(";"):
            keep(text)
            lines.clear()

    return lines.clear, add


def _is_dotted(line: str) -> bool:
    return line.lstrip().startswith(".")


def _dotted(words: Sequence[str]) -> str:
    tables = {table.name: table for table in public_tables()}
    if words == [".tables"]:
        widest = max(map(len, tables))
        return "\n".join(f"{table.name:{widest}}  {table.description.partition('. ')[0]}" for table in tables.values())
    if words[0] == ".schema" and len(words) == 2:
        table = tables.get(words[1])
        return f"{table.description}\n{table.schema}" if table else no_table(words[1])
    return _HELP


def terminal() -> Callable[[str], str]:
    """Return a function that shows a prompt and reads a line. Raise PerfToolError if prompt_toolkit is missing."""
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    except ImportError:
        raise PerfToolError(
            "a prompt needs prompt_toolkit: pip install 'habana-perf-tool[prompt]'; or give the SELECT as an argument"
        ) from None
    kept = _history_file()
    history: History = FileHistory(str(kept)) if kept else InMemoryHistory()
    begin, history.append_string = whole_entries(history.append_string)  # type: ignore[method-assign,assignment]
    session: Any = PromptSession(history=history, completer=_completer())

    def read(shown: str) -> str:
        if shown == _FIRST:
            begin()
        line: str = session.prompt(shown)
        return line

    return read


def fitting(before: str) -> list[str]:
    """List the completions after the text ``before``: tables after FROM or JOIN, commands after a dot, otherwise
    columns, keywords and tables."""
    tables = {table.name: table for table in public_tables()}
    if _TABLE_NEXT.search(before):
        return list(tables)
    if _is_dotted(before):
        return [*_DOTTED]
    named = [column.name for name in names_in(before) if name in tables for column in tables[name].columns]
    others = sorted({column.name for table in tables.values() for column in table.columns})
    return list(dict.fromkeys([*named, *_KEYWORDS, *tables, *others]))


def _completer() -> Any:
    from prompt_toolkit.completion import Completer, WordCompleter

    class Fitting(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Any:
            words = fitting(document.text_before_cursor)
            return WordCompleter(words, ignore_case=True, pattern=_WORD).get_completions(document, complete_event)

    return Fitting()


def _history_file() -> Path | None:
    """Create the history file, readable only by this user. Return None if it cannot be written, is not a regular file,
    or has several hard links.
    """
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        folder = Path(state) / "habana_perf_tool"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        opened = os.open(folder / "query_history", os.O_RDWR | os.O_CREAT | _NEITHER_LINK_NOR_WAIT, 0o600)
        try:
            found = os.fstat(opened)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                return None
            if hasattr(os, "fchmod"):
                os.fchmod(opened, 0o600)
        finally:
            os.close(opened)
    # Without a home directory, ``Path.home`` raises RuntimeError.
    except (OSError, RuntimeError):
        return None
    return folder / "query_history"
