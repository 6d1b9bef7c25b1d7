"""The prompt of ``query``: what it accepts and what it answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from perftool.commands import query_prompt
from perftool.commands.query_prompt import prompt, statements
from perftool.errors import PerfToolError, QueryError


def typed(*lines: str | type[BaseException]) -> Callable[[str], str]:
    """Return a terminal where a user types ``lines`` and then quits. An exception in ``lines`` stands for a key such as
    Ctrl-C.
    """
    left = iter(lines)

    def read(_: str) -> str:
        line = next(left, EOFError)
        if isinstance(line, str):
            return line
        raise line

    return read


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["SELECT 1;"], ["SELECT 1;"]),
        (["SELECT", "", "  1;", "SELECT 2 ;"], ["SELECT\n\n  1;", "SELECT 2 ;"]),
        (["", "  ", "SELECT 1;"], ["SELECT 1;"]),
        (["SELECT", KeyboardInterrupt, "SELECT 2;"], ["SELECT 2;"]),
        (["SELECT 1;", ".quit", "SELECT 2;"], ["SELECT 1;"]),
        (["SELECT 1"], []),
        (["exit", "SELECT 1;"], []),
    ],
)
def test_a_statement_ends_with_a_semicolon(lines: Sequence[str | type[BaseException]], found: list[str]) -> None:
    assert list(statements(typed(*lines), lambda text: None)) == found


def test_dot_commands_describe_the_tables() -> None:
    said: list[str] = []

    assert not list(statements(typed(".tables", ".schema gaps", ".schema nothing", ".help"), said.append))

    tables, schema, unknown, usage = said
    assert any(line.startswith("gaps ") for line in tables.splitlines())
    assert "BIGINT" in schema
    assert unknown == "there is no table 'nothing'; query --tables lists the tables"
    assert ".schema TABLE" in usage


@pytest.mark.parametrize("kind", [QueryError, PerfToolError])
def test_the_prompt_continues_after_an_error(kind: type[PerfToolError]) -> None:
    said: list[str] = []

    def ask(sql: str) -> str:
        if "bad" in sql:
            raise kind("there is no table 'bad'")
        return "a\n1\n"

    prompt(typed("SELECT bad;", "SELECT 1;"), ask, said.append)

    assert [text.rpartition("\n(")[0] for text in said] == ["there is no table 'bad'", "a\n1"]


def test_statements_on_one_line_are_answered_until_one_fails() -> None:
    said: list[str] = []

    def ask(sql: str) -> str:
        if "bad" in sql:
            raise QueryError("there is no table 'bad'")
        return sql

    prompt(typed("SELECT ';'; SELECT 2;", "SELECT 3; SELECT bad; SELECT 4;", "SELEC 5; SELECT 6;"), ask, said.append)

    assert [text.rpartition("\n(")[0] for text in said] == [
        "SELECT ';'", "SELECT 2", "SELECT 3", "there is no table 'bad'", "SELEC 5", "SELECT 6"
    ]  # fmt: skip


def test_ctrl_c_ends_a_query_and_the_prompt_continues() -> None:
    said: list[str] = []

    def ask(sql: str) -> str:
        if "endless" in sql:
            raise KeyboardInterrupt
        return "a\n1\n"

    prompt(typed("SELECT endless;", "SELECT 1;"), ask, said.append)

    assert [text.rpartition("\n")[0] for text in said] == ["interrupted", "a\n1"]


def test_a_history_that_cannot_be_written_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    kept = query_prompt._history_file()
    assert kept is not None
    assert kept.stat().st_mode & 0o077 == 0

    kept.unlink()
    kept.mkdir()

    assert query_prompt._history_file() is None


def test_without_a_home_directory_there_is_no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    assert query_prompt._history_file() is None


def test_a_history_is_a_file_of_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    other = tmp_path / "other"
    other.write_text("mine")
    other.chmod(0o644)
    place = query_prompt._history_file()
    assert place is not None
    place.chmod(0o644)
    query_prompt._history_file()
    assert place.stat().st_mode & 0o777 == 0o600
    for put in (place.symlink_to, place.hardlink_to, lambda _: os.mkfifo(place)):
        place.unlink()
        put(other)
        assert query_prompt._history_file() is None
    assert other.stat().st_mode & 0o777 == 0o644


def test_a_statement_of_several_lines_is_one_entry_of_the_history() -> None:
    kept: list[str] = []
    begin, add = query_prompt.whole_entries(kept.append)

    begin()
    for line in ("SELECT 1", "FROM dropped by Ctrl-C"):
        add(line)
    begin()
    for line in ("SELECT count(*)", "FROM gaps;", ".schema gaps"):
        add(line)

    assert kept == ["SELECT count(*)\nFROM gaps;", ".schema gaps"]


@pytest.mark.parametrize(
    ("typed_so_far", "offered"),
    [
        (".sch", [".schema"]),
        (".schema gap_c", ["gap_causes"]),
        (".schema gaps", ["gaps"]),
        ("SELECT ts FROM rooflines JOIN ro", ["roles", "rooflines"]),
        ("SELECT gaps.cause FROM gaps WHERE caus", ["cause", "cause_ns"]),
        ("SELECT g.cause_", ["cause_ns"]),
        ("SELECT * FROM gap_causes WHERE proo", ["proof"]),
    ],
)
def test_words_are_completed(
    typed_so_far: str, offered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt_toolkit = pytest.importorskip("prompt_toolkit")
    document = pytest.importorskip("prompt_toolkit.document")
    sessions: list[dict[str, Any]] = []
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(prompt_toolkit, "PromptSession", lambda **options: sessions.append(options))

    query_prompt.terminal()

    found = sessions[0]["completer"].get_completions(document.Document(typed_so_far), None)
    assert [completion.text for completion in found] == offered
