"""Values that look like secrets, by their names and by how they begin, and their removal."""

from __future__ import annotations

import pytest

from perftool.readers.text.secrets import secrets_in, without


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ({"env": {"HF_TOKEN": "abcdefgh1"}}, {"env.HF_TOKEN": "abcdefgh1"}),
        ({"args": ["--x", "ghp_0123456789abcdefghij"]}, {"args[1]": "ghp_0123456789abcdefghij"}),
        ({"WANDB_API_KEY": "0123456789"}, {"WANDB_API_KEY": "0123456789"}),
        ({"pad_token": "</s>", "bos_token": "<|begin_of_text|>", "max_tokens": 12345678, "tokenizer": "bert-base"}, {}),
        ({"trace_id": "86C751132F8C435E82AD10821C260040", "token": "short"}, {}),
    ],
)
def test_what_looks_like_a_secret(metadata: object, found: dict[str, str]) -> None:
    assert secrets_in(metadata) == found


def test_a_secret_is_left_out_wherever_the_blocks_end() -> None:
    text = b'{"a": "sec\\\\ret-value", "b": "sec\\\\ret-value and more"}'
    for size in range(1, len(text)):
        blocks = [text[at : at + size] for at in range(0, len(text), size)]
        assert b"".join(without(blocks, ["sec\\ret-value"])) == b'{"a": "redacted", "b": "redacted and more"}'
