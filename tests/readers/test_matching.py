"""Patterns match as in a shell, and the cost of matching depends only on the folders that they visit."""

from __future__ import annotations

import glob
import os
from pathlib import Path

import pytest

from perftool.readers.files.matching import matches

PATTERNS = (
    "*", "**", "a/*", "a/**", "**/*.json", "a/**/x.json", "*/b/*.json", "**/b/**", "./a/*.json", "a/../a/*.json",
    ".hidden/*", "*/.secret", "[ab]/?.json", "none/*", "**/none", "a/b/x.json", "x*",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a/b/x.json", "a/b/c/y.json", "a/z.json", "b/x.json", "x.json", ".hidden/x.json", "a/.secret"):
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_like_pythons_glob(pattern: str, absolute: bool, tmp_path: Path) -> None:
    asked = str(tmp_path / pattern) if absolute else pattern
    expected = {os.path.normpath(found) for found in glob.glob(asked, recursive=True)} - {"."}
    assert {os.path.normpath(found) for found in matches(asked)} - {"."} == expected


def test_circular_links_and_repeated_stars_terminate(tmp_path: Path) -> None:
    for number in range(9):
        os.symlink(".", tmp_path / "a" / f"loop{number}")
    deep = tmp_path / Path(*"d" * 60)
    deep.mkdir(parents=True)
    (deep / "x.json").touch()
    assert len(matches("**/*.json")) == 6
    assert len(matches("**/" * 30 + "x.json")) == 4
    assert len(matches("**/d/" * 20 + "x.json")) == 1
    # Each part of the pattern reads a folder only once, so the number of paths does not multiply.
    assert len(matches("*/" * 40 + "*")) < 20


@pytest.mark.parametrize("pattern", ["?", "[-]", "**", "*"])
def test_a_matching_file_with_the_name_of_stdin_is_a_file(pattern: str) -> None:
    Path("./-").touch()
    found = matches(pattern)
    assert "./-" in found
    assert "-" not in found
