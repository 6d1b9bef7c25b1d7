"""Skipping irrelevant lines does not change the result."""

from __future__ import annotations

from random import Random

import pytest

from perftool.readers.logs import console_log
from perftool.readers.text import text_lines
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.text_lines import Wanted, read_lines

LOGGER = b"[20:57:12.104233][PT_FALLBACK        ][debug][tid:398E] "
LINES = (
    *[b"nothing to see here %d" % number for number in range(8)],
    *[LOGGER + b"quiet %d" % number for number in range(8)],
    LOGGER + b"CPU fallback digamma : self=HPUBFloat16Type",
    LOGGER + b"step marker due to cpu fallback aten::digamma",
    b"[1,0]<stdout>:" + LOGGER + b"step marker due to local scalar",
    b"[12:00:00.000001][PT_A][PT_B][tid:1F] recipe cache miss :: 0x12",
    LOGGER + b"[CACHEFILE] adding new recipe to cache :: abc",
    b"\x1b[31mstep \x1b[0mmarker due to local scalar",
    b"CPU Fallback stats:",
    b"12\taten::nonzero",
    b"7\taten::digamma",
    b"",
    b"===== HABANA PT BRIDGE CONFIGURATION =====",
    b" PT_HPU_LAZY_MODE = 1",
    b"-" * 40,
    b"Training:  1%|#   | 1/100 [00:01<00:32,  3.01it/s]\rTraining:  9%|##  | 9/100 [00:02<00:32,  3.01it/s]\r",
    b"caf\xc3\xa9",
    b"caf\xe9 and local scalar",
    b"Total train batch size = 64",
    b"plain\r",
)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines, "_PIECE", 150)


@pytest.mark.parametrize("seed", range(40))
def test_skipping_lines_does_not_change_the_result_for_a_log(seed: int) -> None:
    random = Random(seed)
    text = b"\n".join(random.choices(LINES, k=120)) + random.choice([b"", b"\n"])
    tally = IssueTally()
    every = console_log.read(list(read_lines(text, tally)))
    some = console_log.read(text)

    assert (some.fallbacks, some.events, some.compilations, some.config) == (
        every.fallbacks, every.events, every.compilations, every.config,
    )  # fmt: skip
    assert sorted(map(str, some.issues)) == sorted(map(str, (*every.issues, *tally.issues())))


def test_lines_without_the_texts_are_counted_but_not_returned() -> None:
    wanted = Wanted(("b", "needle"))
    text = b"a\nb\n" + b"c\n" * 1000 + b"a needle\nd"

    assert [(line.number, line.text) for line in read_lines(text, IssueTally(), wanted=wanted)] == [
        (2, "b"), (1003, "a needle"), (1004, "d"),
    ]  # fmt: skip


def test_a_reader_may_ask_for_every_line_and_stop_again() -> None:
    wanted = Wanted(("on",))
    given = []
    for line in read_lines(b"x\non\nx\noff\nx\nx\n", IssueTally(), wanted=wanted):
        given.append(line.number)
        wanted.every = line.text != "off" and (wanted.every or line.text == "on")

    assert given == [2, 3, 4]
