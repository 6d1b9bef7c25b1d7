"""Encodings, line endings and compression of text inputs."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from perftool.errors import InputError
from perftool.model.inputs import ImportIssue
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.text_lines import TextLine, read_lines

TWO_LINES = [TextLine(1, "Zeile eins: ü"), TextLine(2, "two")]
LATIN_1 = ImportIssue("not UTF-8", 1, "text that is not UTF-8 was read as Latin-1, first in line 1")


@pytest.mark.parametrize(
    ("content", "issues"),
    [
        ("Zeile eins: ü\ntwo\n".encode(), ()),
        ("Zeile eins: ü\ntwo\n".encode("utf-8-sig"), ()),
        ("Zeile eins: ü\r\ntwo\r\n".encode(), ()),
        ("Zeile eins: ü\ntwo\n".encode("utf-16"), ()),
        ("\ufeffZeile eins: ü\r\ntwo\r\n".encode("utf-16-be"), ()),
        ("Zeile eins: ü\ntwo\n".encode("utf-16-le"), ()),
        ("Zeile eins: ü\ntwo\n".encode("utf-32"), ()),
        ("Zeile eins: ü\ntwo\n".encode("latin-1"), (LATIN_1,)),
    ],
    ids=["utf-8", "utf-8 bom", "crlf", "utf-16 bom", "utf-16 be", "utf-16 no bom", "utf-32", "latin-1"],
)
def test_encodings(content: bytes, issues: tuple[ImportIssue, ...]) -> None:
    tally = IssueTally()
    assert list(read_lines(content, tally)) == TWO_LINES
    assert tally.issues() == issues


def test_last_line_without_end_is_marked() -> None:
    assert list(read_lines(b"a\nb", IssueTally())) == [TextLine(1, "a"), TextLine(2, "b", ended=False)]


def test_overwritten_parts_share_the_line_number() -> None:
    lines = list(read_lines(b"\r 1%\r 2%\nnext\n", IssueTally()))
    assert lines == [TextLine(1, ""), TextLine(1, " 1%"), TextLine(1, " 2%"), TextLine(2, "next")]


def test_of_many_short_parts_only_the_longer_ones_are_read() -> None:
    content = b"\r\r1\r\r\r 12% 1/8\r\r\r\rx\n\r\r\r\r1\n"
    assert list(read_lines(content, IssueTally())) == [TextLine(1, " 12% 1/8"), TextLine(2, "")]


def test_line_end_split_between_blocks(tmp_path: Path) -> None:
    path = f"{tmp_path}/log.txt"
    head = b"x" * ((256 << 10) - 1)  # the first block ends between CR and LF
    with open(path, "wb") as file:
        file.write(head + b"\r\nnext\r\n")
    assert [(line.number, len(line.text)) for line in read_lines(path, IssueTally())] == [
        (1, len(head)),
        (2, 4),
    ]


def test_too_long_line_is_cut() -> None:
    tally = IssueTally()
    assert list(read_lines(b"0123456789\nok\n", tally, max_line=4)) == [
        TextLine(1, "0123"),
        TextLine(2, "ok"),
    ]
    assert [(issue.kind, issue.count) for issue in tally.issues()] == [("long line", 1)]


def test_gzip_cut_off_keeps_what_came_before(tmp_path: Path) -> None:
    path, tally = f"{tmp_path}/log.txt.gz", IssueTally()
    with open(path, "wb") as file:
        file.write(gzip.compress(b"first\n" + bytes(range(256)) * 50)[:-20])
    assert next(read_lines(path, tally)) == TextLine(1, "first")
    assert TextLine(1, "first") in list(read_lines(path, tally))
    assert "damaged compression" in {issue.kind for issue in tally.issues()}


def test_a_missing_file_gives_one_sentence() -> None:
    with pytest.raises(InputError, match=r"^/nowhere/log\.txt: cannot open \(No such file or directory\)$"):
        list(read_lines("/nowhere/log.txt", IssueTally()))
