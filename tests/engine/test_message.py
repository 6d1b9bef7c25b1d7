"""A rule's message can only show values."""

from __future__ import annotations

import pytest

from perftool.engine.rules.message import LONGEST, parse_message, show_message

VALUES = {
    "subject": "k",
    "wait_ns": 15000,
    "size_bytes": 2048,
    "idle_ratio": 0.25,
    "n": 1234567,
    "one": 1.0,
    "half": 0.5,
    "flag": True,
    "no": None,
}


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("{subject} waits {wait} or {wait_ns}", "k waits 15.0 us or 15.0 us"),
        ("{size}, {idle_ratio}, {n}, {flag}, {no}", "2.00 KiB, 25.0 %, 1,234,567, True, unknown"),
        ("{n:time} {n:bytes} {idle_ratio:count} {n:percent}", "1.23 ms 1.18 MiB 0.25 123456700.0 %"),
        ("{{subject}} }} {{", "{subject} } {"),
        (
            "{one} {one:call takes|calls take}, {n} {n:call|calls}, {no:call|calls}",
            "1 call takes, 1,234,567 calls, calls",
        ),
        ("{half} {half:call|calls a step}", "0.50 calls a step"),
        ("{one:times}, {n:times}", "once, 1,234,567 times"),
        ("", ""),
    ],
)
def test_messages_show_values_with_units(message: str, shown: str) -> None:
    assert show_message(message, VALUES) == shown


@pytest.mark.parametrize(
    "message",
    [
        "{subject:>1500000000}", "{subject.__class__.__mro__}", "{subject[0]}", "{subject!r}", "{subject:{n}}", "{}",
        "{0.__class__}", "{subject", "subject}", "{ subject }", "{subject:}", "{n:.2f}", "{n:,}", "{subject:x}", "{-}",
        "{n:a|b|c}", "{n:a|}", "{n:|b}", "{n:{one}|b}",
        "{" * 99_999,
    ],
)  # fmt: skip
def test_other_placeholders_do_not_parse(message: str) -> None:
    with pytest.raises(ValueError, match=r"is not a placeholder|there is no format"):
        parse_message(message)


def test_the_length_of_a_message_is_limited() -> None:
    long = show_message("{subject}{subject} and more", {"subject": "x" * 50_000_000})
    assert long == "x" * LONGEST + " ..."
    assert len(show_message("{subject}" * 100_000, {"subject": "xy"})) == LONGEST + len(" ...")


def test_a_name_without_a_value_is_an_error() -> None:
    with pytest.raises(KeyError, match="nothing"):
        show_message("{nothing}", VALUES)
