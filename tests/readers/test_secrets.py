"""Values that look like secrets, by name or by prefix, and their removal."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftool.readers.text.secrets import Secret, secrets_in, those_in, without

A, B = "hf_AAAAAAAAAAAAAAAAAAAA", "hf_BBBBBBBBBBBBBBBBBBBB"


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ({"env": {"HF_TOKEN": "abcdefgh1"}}, {("env.HF_TOKEN", "abcdefgh1")}),
        ({"args": ["--x", "ghp_0123456789abcdefghij"]}, {("args[1]", "ghp_0123456789abcdefghij")}),
        ({"WANDB_API_KEY": "0123456789"}, {("WANDB_API_KEY", "0123456789")}),
        ({"pad_token": "</s>", "bos_token": "<|begin_of_text|>", "max_tokens": 12345678, "tokenizer": "bert-base"}, {}),
        ({"trace_id": "86C751132F8C435E82AD10821C260040", "token": "short"}, {}),
        ({"cmd": f"run --a {A} --b {B}"}, {("cmd", A), ("cmd", B)}),
        ({"TOKEN": ["listedsecret1", {"x": "y"}]}, {("TOKEN[0]", "listedsecret1")}),
        ({"env.TOKEN": "onesecret", "env": {"TOKEN": A}}, {("env.TOKEN", "onesecret"), ("env.TOKEN", A)}),
        ({A: 1}, {("text", A)}),
        (json.loads('{"a":' * 900 + f'"{A}"' + "}" * 900), {("a" + ".a" * 899, A)}),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret(metadata: object, found: set[tuple[str, str]]) -> None:
    assert set(secrets_in(metadata)) == {Secret(*one) for one in found}


def test_a_secret_is_left_out_wherever_the_blocks_end() -> None:
    text = b'{"a": "sec\\\\ret-value", "b": "sec\\\\ret-value and more"}'
    for size in range(1, len(text)):
        blocks = [text[at : at + size] for at in range(0, len(text), size)]
        assert b"".join(without(blocks, ["sec\\ret-value"])) == b'{"a": "redacted", "b": "redacted and more"}'


# A secret has no quotes, backslashes or control characters; the text around it does.
PLAIN = "abcdeu0123/&\xe9\u4e2d\U0001d11e"
LETTERS = PLAIN + "\"\\<'\b\n\x01"
SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\n": "\\n"}
secrets = st.lists(st.text(PLAIN, min_size=8, max_size=12), min_size=1, max_size=3, unique=True)


@st.composite
def spelled(draw: st.DrawFn, text: str) -> str:
    """``text`` as JSON writes it, with escapes chosen for each letter."""
    written = ""
    for letter in text:
        codes = letter.encode("utf-16-be").hex()
        escape = "".join(f"\\u{codes[at : at + 4]}" for at in range(0, len(codes), 4))
        ways = [escape, escape[:-4] + escape[-4:].upper()]
        ways += [SHORT[letter]] if letter in SHORT else []
        ways += [letter] if letter not in '"\\' and letter >= " " else []
        written += draw(st.sampled_from(ways))
    return f'"{written}"'


def texts_of(value: Any) -> list[str]:
    """All texts in ``value``, including keys."""
    if isinstance(value, dict):
        return [text for key, one in value.items() for text in (key, *texts_of(one))]
    return [text for one in value for text in texts_of(one)] if isinstance(value, list) else [value]


@given(st.data(), secrets, st.integers(1, 40))
def test_no_secret_is_left_in_any_spelling(data: st.DataObject, hidden: list[str], size: int) -> None:
    pieces = st.one_of(st.sampled_from(hidden), st.text(LETTERS, max_size=4))
    texts = data.draw(st.lists(st.lists(pieces, max_size=5).map("".join), min_size=1, max_size=4))
    members = [f"{data.draw(spelled(text))}: [{data.draw(spelled(text))}]" for text in texts]
    document = ("{" + ", ".join(members) + "}").encode("utf-8")
    shown = "".join(f"<p>{html.escape(text)}</p>" for text in texts).encode()

    blocks = [document[at : at + size] for at in range(0, len(document), size)]
    left = texts_of(json.loads(b"".join(without(blocks, hidden))))
    page = html.unescape(b"".join(without([shown], hidden)).decode())

    assert not [secret for secret in hidden for text in [*left, page] if secret in text]
    assert those_in(document, hidden) or not any(secret in text for secret in hidden for text in texts)


def test_a_long_secret_is_left_out_in_parts() -> None:
    secret = "".join(f"{number:03}" for number in range(70))
    assert b"".join(without([f'["a{secret}b"]'.encode()], [secret])) == b'["a%bb"]' % (b"redacted" * 7)
    assert those_in(secret[100:].encode(), [secret, "x" * 40]) == {secret}


def test_secrets_that_overlap_are_both_left_out() -> None:
    assert b"".join(without([b"x AAAABBBBCCCCDDDDEEEE y"], ["AAAABBBBCCCC", "CCCCDDDDEEEE"])) == b"x redacted y"
