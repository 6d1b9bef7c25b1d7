"""Lone surrogates, which Python can read but not write."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftool.model.valid_text import valid_json, valid_text

_PIECES = ["\\", "\\\\", "u", "ud800", "uD83d", "ude00", "\\udce4", "\\ud83d\\ude00", '\\"', "\\n", "a", "ä", "0041"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r"\ud800", r"\ud800"),
        (r"a\udfff b", r"a\udfff b"),
        (r"\udce4.json", r"\xe4.json"),
        (r"\ud800\ud83d\ude00", "\\ud800\N{GRINNING FACE}"),
        (r"\\ud800", r"\ud800"),
        (r"\\ud83d\ude00", r"\ud83d\ude00"),
        (r"\u00e4", "ä"),
    ],
)
def test_half_a_pair_becomes_text(text: str, said: str) -> None:
    assert json.loads(valid_json(f'"{text}"')) == said


@given(st.lists(st.sampled_from(_PIECES), max_size=8).map("".join))
def test_valid_json_is_parsed_as_valid_text(text: str) -> None:
    try:
        meant = json.loads(f'"{text}"')
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            json.loads(valid_json(f'"{text}"'))
    else:
        assert json.loads(valid_json(f'"{text}"')) == valid_text(meant)
        valid_text(meant).encode()
