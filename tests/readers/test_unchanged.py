"""The cached reading of a file is used until the file changes."""

from __future__ import annotations

import os
from pathlib import Path

from perftool.readers.files.unchanged import once_per_file


def test_a_file_is_read_again_only_after_it_changed(tmp_path: Path) -> None:
    read: list[str] = []

    @once_per_file
    def length(path: str) -> int:
        read.append(path)
        return len(Path(path).read_bytes())

    file = tmp_path / "rank0.json"
    file.write_text("[]", encoding="ascii")
    assert (length(str(file)), length(str(file))) == (2, 2)
    file.write_text("[1]", encoding="ascii")
    assert length(str(file)) == 3
    assert len(read) == 2


def test_inputs_that_are_not_files_are_read_each_time() -> None:
    read: list[str] = []
    once = once_per_file(lambda path: read.append(path) or len(read))
    assert [once(os.devnull), once(os.devnull), once("s3://bucket/x"), once("s3://bucket/x")] == [1, 2, 3, 4]
