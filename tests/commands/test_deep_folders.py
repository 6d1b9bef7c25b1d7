"""Folders nested so deeply that recursion fails, or that their paths are too long for the system."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.program import Run
from events import document, step, x

from perftool.readers.discover import find_inputs
from perftool.readers.discovery.folder import parts_below
from perftool.readers.discovery.names import is_trace_name
from perftool.readers.files.finished import files_below
from perftool.readers.files.walk import DEEPEST, walk

TRACE = document([step(1, 0, 1000), x("aten::mm", 10, 30)])


@pytest.fixture(params=[("a", 1200), ("a" * 200, 30)], ids=["many folders", "a long path"])
def deep(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that contains a trace, and subfolders that are nested too deeply to read."""
    name, depth = request.param
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "b.json").write_bytes(TRACE)
    monkeypatch.chdir(tmp_path / "run")
    for _ in range(depth):
        os.mkdir(name)
        os.chdir(name)
    os.chdir(tmp_path)
    yield Path("run")
    os.chdir(tmp_path)
    # Python's own functions fail at this depth, too.
    os.system("rm -rf run")


def test_what_is_nested_too_deep_is_not_read_and_a_note_says_so(deep: Path, run: Run) -> None:
    found = find_inputs([str(deep)])
    assert found.traces == ("run/b.json",)
    (note,) = found.notes
    assert note.endswith("so nothing in it was read")
    assert run("lint", "run", "--select", "GAP101") == 0
    assert note in run.err
    assert run("analyze", "run/**/*.json", "--select", "GAP101") == 0
    unread: list[str] = []
    assert parts_below(deep, unread) == []
    assert [state.path for state in files_below("run", is_trace_name, unread)] == ["b.json"]
    assert len(unread) == 2
    assert run("rule", "--rules", "run", "GAP101") == 2
    assert "so nothing in it was read" in run.err


def test_folders_are_listed_in_order_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "a").symlink_to("b")
    for name in ("b/z", "b/y", "x"):
        (tmp_path / name).touch()
    unread: list[str] = []
    assert [(os.path.relpath(place, tmp_path), *names) for place, *names in walk(tmp_path, unread)] == [
        (".", ["a", "b"], ["x"]), ("b", ["c"], ["y", "z"]), ("b/c", [], []),
    ]  # fmt: skip
    assert unread == []


def test_the_deepest_folders_are_read(tmp_path: Path) -> None:
    deepest = tmp_path.joinpath(*["a"] * DEEPEST)
    deepest.mkdir(parents=True)
    unread: list[str] = []
    assert [place for place, _, _ in walk(tmp_path, unread)][-1] == str(deepest)
    (deepest / "a").mkdir()
    assert list(walk(tmp_path, unread))[-1][0] == str(deepest)
    assert unread == [f"{deepest}/a is more than {DEEPEST} folders deep, so nothing in it was read"]
    shutil.rmtree(tmp_path / "a")
