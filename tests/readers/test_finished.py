"""Finished files in a folder, detected by polling twice."""

from __future__ import annotations

import os
from pathlib import Path

from perftool.readers.discovery.names import is_trace_name
from perftool.readers.files.finished import FileState, Watched, files_below


def state(path: str, size: int = 10, changed: int = 1) -> FileState:
    return FileState(changed, path, size)


def test_a_file_is_reported_once_when_two_scans_find_it_unchanged() -> None:
    watched = Watched()
    assert watched.finished([state("a.json")]) == []
    assert watched.finished([state("a.json", 20), state("b.json")]) == []
    assert watched.finished([state("a.json", 20), state("b.json", 10, 2)]) == [state("a.json", 20)]
    assert watched.finished([state("a.json", 20), state("b.json", 10, 2)]) == [state("b.json", 10, 2)]
    assert watched.finished([state("a.json", 20), state("b.json", 10, 2)]) == []


def test_a_rewritten_file_is_reported_again_but_a_reappearing_one_is_not() -> None:
    watched = Watched()
    looks: list[list[FileState]] = [[state("a")], [state("a")], [], [state("a")], [state("a")]]
    assert [watched.finished(look) for look in looks] == [[], [state("a")], [], [], []]
    # Another file was renamed over the first file.
    assert [watched.finished([state("a", 10, 7)]) for _ in range(3)] == [[], [state("a", 10, 7)], []]


def test_files_done_before_are_skipped_and_the_oldest_comes_first() -> None:
    watched = Watched([state("a")])
    found = [state("c", 1, 5), state("a"), state("b", 1, 6)]
    assert [watched.finished(found) for _ in range(2)] == [[], [state("c", 1, 5), state("b", 1, 6)]]


def test_only_complete_visible_regular_files_count(tmp_path: Path) -> None:
    for name in ("run.json", "node1/rank0.json.gz", ".hidden.json", ".part/run.json", "notes.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"{}")
        os.utime(tmp_path / name, ns=(5, 5))
    (tmp_path / "empty.json").touch()
    (tmp_path / "gone.json").symlink_to("nowhere")
    (tmp_path / "folder.json").mkdir()

    unread: list[str] = []
    found = files_below(str(tmp_path), is_trace_name, unread)

    assert sorted(found) == [FileState(5, "node1/rank0.json.gz", 2), FileState(5, "run.json", 2)]
    assert unread == [f"{tmp_path}/gone.json is a broken link, and was not read"]
    unread.clear()
    assert files_below(str(tmp_path / "nowhere"), is_trace_name, unread) == []
    assert unread == [f"{tmp_path}/nowhere cannot be opened (No such file or directory), so nothing in it was read"]
