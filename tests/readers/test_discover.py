"""Paths of the command line become the files to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from perftool.errors import InputError
from perftool.readers.discover import find_inputs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("b.json", "a.json.gz", "sub/c.json.zst", "sub/[x].json"):
        path = tmp_path / "traces" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b'{"traceEvents": []}')
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["traces/b.json"], ["traces/b.json"]),
        (["traces/b.json", "traces/a.json.gz"], ["traces/b.json", "traces/a.json.gz"]),
        (["traces/b.json", "traces/b.json"], ["traces/b.json"]),
        (["traces/sub"], ["traces/sub/[x].json", "traces/sub/c.json.zst"]),
        (["traces/sub/[x].json"], ["traces/sub/[x].json"]),
        (["traces/*.json"], ["traces/b.json"]),
        (["traces/**/*.zst"], ["traces/sub/c.json.zst"]),
        (["-"], ["-"]),
    ],
)
def test_what_paths_mean(folder: Path, paths: list[str], found: list[str]) -> None:
    assert find_inputs(paths).traces == tuple(found)


def test_excluded_files_are_left_out(folder: Path) -> None:
    assert find_inputs(["traces/*"], exclude=["*.gz"]).traces == ("traces/b.json",)


@pytest.mark.parametrize(
    ("paths", "exclude", "sentence"),
    [
        (["none.json"], [], "none.json: no such file"),
        (["none*.json"], [], "none*.json: the pattern matches no file"),
        (["empty"], [], "empty: the folder holds no "),
        (["traces/b.json"], ["*"], "no input is left after --exclude"),
        (["-", "-"], [], "'-' can be given only once"),
    ],
)
def test_paths_that_mean_nothing(folder: Path, paths: list[str], exclude: list[str], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        find_inputs(paths, exclude=exclude)
    assert str(caught.value).startswith(sentence)


def test_what_lies_beside_a_trace_is_found_too(folder: Path) -> None:
    log = folder / "traces" / "run.log"
    log.write_text("Frequency of op and op name that were executed on CPU:\n3 aten::nonzero\n")
    assert find_inputs(["traces/b.json"]).texts == ("traces/run.log",)
    assert find_inputs(["traces/b.json"], companions=False).texts == ()
    assert find_inputs(["traces/b.json"], exclude=["*.log"]).texts == ()
    assert find_inputs(["traces/b.json", "traces/run.log"]).texts == ("traces/run.log",)
