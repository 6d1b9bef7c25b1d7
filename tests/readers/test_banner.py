"""Tests for reading the start-up banner."""

from __future__ import annotations

from scanning import read_banner

from perftool.model.inputs import ImportIssue
from perftool.model.records import ConfigEntry

TITLE = "============================= HABANA PT BRIDGE CONFIGURATION =========================== \n"
SETTINGS = " PT_HPU_LAZY_MODE = 1\n PT_HPU_RECIPE_CACHE_CONFIG = \n PT_HPU_MAX_COMPOUND_OP_SIZE = 9223372036854775807\n"
SYSTEM = (
    "---------------------------: System Configuration :---------------------------\n"
    "Num CPU Cores : 160\n"
    "CPU RAM       : 1056412772 KB\n"
    "------------------------------------------------------------------------------\n"
)
BANNER = TITLE + SETTINGS + SYSTEM
EXPECTED = [
    ("PT_HPU_LAZY_MODE", "1"),
    ("PT_HPU_RECIPE_CACHE_CONFIG", ""),
    ("PT_HPU_MAX_COMPOUND_OP_SIZE", "9223372036854775807"),
    ("Num CPU Cores", "160"),
    ("CPU RAM", "1056412772 KB"),
]


def settings(text: str) -> list[tuple[str, str]]:
    return [(entry.key, entry.value) for entry in read_banner(text.encode()).config]


def test_banner() -> None:
    assert read_banner(BANNER.encode()).config == tuple(
        ConfigEntry("banner", key, value, line=line)
        for line, (key, value) in zip((2, 3, 4, 6, 7), EXPECTED, strict=True)
    )


def test_settings_end_with_the_banner() -> None:
    assert settings("LR = 0.1\n" + BANNER + "LR = 0.1\n") == EXPECTED


def test_version_before_the_banner() -> None:
    version = "======HABANA SW VERSION================= \n HB_BUILD_VER = 1.19\n"
    assert settings(version + BANNER) == [("HB_BUILD_VER", "1.19"), *EXPECTED]


def test_crlf_colour_and_foreign_lines() -> None:
    mixed = BANNER.replace("\n PT_HPU_MAX", "\nloading the data\n\x1b[32m PT_HPU_MAX").replace("\n", "\r\n")
    assert settings(mixed) == EXPECTED


def test_every_process_prints_it() -> None:
    assert settings(BANNER + BANNER) == EXPECTED
    ranked = "".join(f"[1,{rank}]<stderr>:{line}\n" for line in BANNER.splitlines() for rank in (0, 1))
    entries = read_banner(ranked.encode()).config
    assert [(entry.key, entry.value) for entry in entries if entry.rank == 1] == EXPECTED
    assert len(entries) == 2 * len(EXPECTED)


def test_cut_banner_does_not_swallow_the_log() -> None:
    reading = read_banner((TITLE + " PT_HPU_LAZY_MODE = 1\n" + "text\n" * 70 + "LR = 0.1\n").encode())
    assert [(entry.key, entry.value) for entry in reading.config] == [("PT_HPU_LAZY_MODE", "1")]
    assert reading.issues == (ImportIssue("cut banner", 1, "the start-up banner has no end, first in line 63"),)
