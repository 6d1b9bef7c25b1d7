"""Secrets are removed from JSON and from other values, both where they are found and wherever else they appear."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perftool.engine.rules.pack import builtin_folder
from perftool.readers.secrets import Found, secrets_in
from perftool.readers.text.nested_json import as_json
from perftool.readers.text.redaction import Redactor

A, B = "hf_AAAAAAAAAAAAAAAAAAAA", "hf_BBBBBBBBBBBBBBBBBBBB"


def redacted(*pieces: bytes) -> list[Any]:
    redactor = Redactor()
    redactor.learn(pieces)
    return [json.loads(redactor.json(piece)) for piece in pieces]


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ({"args": {"apiToken": "abcdefgh1"}}, {"args": {"apiToken": "redacted"}}),
        ({"PGPASSWORD": 12345678, "dur": 12345678}, {"PGPASSWORD": "redacted", "dur": 12345678}),
        ({"password": "x1"}, {"password": "redacted"}),
        (["run", "--api-key", "x1", "--lr", "0.1"], ["run", "--api-key", "redacted", "--lr", "0.1"]),
        (["--api-key", "--token", "abcdefgh1"], ["--api-key", "--token", "redacted"]),
        ({"name": "run --token=abcdefgh1 -v"}, {"name": "run --token=redacted -v"}),
        ({"credentials": {"user": "bob", "n": [{"k": 4711}]}, "z": "bob"},
         {"credentials": {"user": "redacted", "n": [{"k": "redacted"}]}, "z": "bob"}),
        ({"TOKEN": ["listedsecret1", {"x": "y"}]}, {"TOKEN": ["redacted", {"x": "y"}]}),
        ({"token": {"password": "x1", "a": "b"}}, {"token": {"password": "redacted", "a": "b"}}),
        ({"a": f"{A} {B}", A: 1}, {"a": "redacted redacted", "redacted": 1}),
        ([["PATH", "/bin"], ["API_TOKEN", "abcdefgh1"], ["DB_PASSWORD", 4711]],
         [["PATH", "/bin"], ["API_TOKEN", "redacted"], ["DB_PASSWORD", "redacted"]]),
        ({"headers": [[ "Authorization", "x1" ]]}, {"headers": [["Authorization", "redacted"]]}),
        ({"required": ["password", "username"]}, {"required": ["password", "username"]}),
        ([["password", "username", "address"]], [["password", "username", "address"]]),
        ([["API_TOKEN", ["a"]], ["API_TOKEN"]], [["API_TOKEN", ["a"]], ["API_TOKEN"]]),
        ({"name": "k_abcdefgh1_x", "env": {"API_TOKEN": "abcdefgh1"}},
         {"name": "k_redacted_x", "env": {"API_TOKEN": "redacted"}}),
    ],
)  # fmt: skip
def test_secrets_are_left_out(value: object, left: object) -> None:
    assert redacted(json.dumps(value).encode()) == [left]


def test_measurements_are_kept() -> None:
    args = {"max_tokens": 12345678, "num_tokens": "12345678", "tokens_per_s": 1.5, "tokenizer": "bert-base-uncased-v2",
            "pass_id": "0123456789", "bypass": "0123456789a", "pad_token": "<|endoftext1|>",
            "Call stack": "a(1): b;c(2): d",
            "trace_id": "86C751132F8C435E82AD10821C260040", "token": "short", "Input Dims": [[1, 2], []]}  # fmt: skip
    text = json.dumps({"args": args}, indent=1).encode()
    redactor = Redactor()
    assert redactor.learn([text]) == set()
    assert redactor.json(text) is text


def test_hidden_members_and_escapes_are_read() -> None:
    text = rb'{"a": {"API_\u0054OKEN": "hidden-secret"}, "a": 1, "b": "x hidden-\u0073ecret", "c": "-\"hidden-secret"}'
    assert Redactor().learn([text]) == {"API_TOKEN"}
    redactor = Redactor()
    redactor.learn([text])
    assert (
        redactor.json(text) == b'{"a": {"API_\\u0054OKEN": "redacted"}, "a": 1, "b": "x redacted", "c": "-\\"redacted"}'
    )


def test_secrets_found_in_a_later_piece_are_left_out_of_an_earlier_one() -> None:
    assert redacted(b'["a hidden-secret"]', b'{"password": "hidden-secret"}') == [
        ["a redacted"],
        {"password": "redacted"},
    ]


# A secret contains no quotes, backslashes or control characters, but the text around it does.
PLAIN = "abcdeu0123/&\xe9\u4e2d\U0001d11e"
LETTERS = PLAIN + "\"\\<'\b\n\x01"
SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\n": "\\n"}
secrets = st.lists(st.text(PLAIN, min_size=8, max_size=12), min_size=1, max_size=3, unique=True)


@st.composite
def spelled(draw: st.DrawFn, text: str) -> str:
    """Return ``text`` as a JSON string, with or without an escape for each character."""
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
    """Yield all strings in ``value``, including keys."""
    if isinstance(value, dict):
        return [text for key, one in value.items() for text in (key, *texts_of(one))]
    return [text for one in value for text in texts_of(one)] if isinstance(value, list) else [value]


@settings(max_examples=50)
@given(st.data(), secrets)
def test_no_secret_is_left_in_any_spelling(data: st.DataObject, hidden: list[str]) -> None:
    pieces = st.one_of(st.sampled_from(hidden), st.text(LETTERS, max_size=4))
    texts = data.draw(st.lists(st.lists(pieces, max_size=5).map("".join), min_size=1, max_size=4))
    members = [f"{data.draw(spelled(text))}: [{data.draw(spelled(text))}]" for text in texts]
    document = ("{" + ", ".join(members) + "}").encode("utf-8")

    redactor = Redactor()
    redactor.learn([json.dumps({"password": secret}).encode() for secret in hidden])
    left = [*texts_of(json.loads(redactor.json(document))), *texts_of(redactor.value(texts))]
    assert not [secret for secret in hidden for text in left if secret in text]
    assert bool(redactor.left_out) == any(secret in text for secret in hidden for text in texts)


def test_a_long_secret_is_left_out_in_parts() -> None:
    secret = "".join(f"{number:03}" for number in range(70))
    redactor = Redactor()
    redactor.learn([json.dumps({"password": secret}).encode()])
    assert redactor.text(f"a{secret}b") == "aredactedb"
    assert redactor.text(secret[100:]).endswith("redacted")


@pytest.mark.parametrize("mark", [*"(<>;/\\'\"`", ": "])
def test_parts_of_a_secret_that_reports_cut_are_left_out(mark: str) -> None:
    redactor = Redactor()
    redactor.learn([json.dumps({"password": f"abcdefgh1{mark}ijklmnop2{mark}short"}).encode()])
    assert redactor.text("97 % of the time in abcdefgh1.") == "97 % of the time in redacted."
    assert redactor.text("in ijklmnop2, short") == "in redacted, short"


@pytest.mark.parametrize("name", ["DB_PASSWORD", "HF_TOKEN"])
@pytest.mark.parametrize("file", ["ZqTail55.py", "notes_55.py"])
def test_the_rest_of_a_windows_path_may_belong_to_a_secret(file: str, name: str) -> None:
    redactor = Redactor()
    frame = f"C:\\runs\\{name}=abcd1234\\{file}(12): decode"
    redactor.learn([json.dumps({"name": frame}).encode()])
    assert redactor.text(f"in decode ({file}:12)") == "in decode (redacted:12)"
    assert file not in redactor.text(frame)


def test_the_line_after_a_secret_is_kept_although_its_end_is_escaped() -> None:
    redactor = Redactor()
    redactor.learn([json.dumps({"name": "HF_TOKEN=abcd1234\\nHOST=long-name-55"}).encode()])
    assert redactor.text("HOST=long-name-55") == "HOST=long-name-55"


def test_a_secret_without_the_number_of_a_module_is_left_out() -> None:
    redactor = Redactor()
    redactor.learn([b'{"password": "abcdefgh1_27"}'])
    assert redactor.text("By module: abcdefgh1 97 %, abcdefgh1_27") == "By module: redacted 97 %, redacted"


def test_a_secret_whose_numbers_were_replaced_is_left_out() -> None:
    redactor = Redactor()
    redactor.learn([b'{"password": "abcdefgh1234ijkl"}'])
    assert redactor.text("most of them abcdefgh#ijkl") == "most of them redacted"


@pytest.mark.parametrize(
    "spelling",
    ["p%40ss%2Fw0rd%2B1e1Z", "p%2540ss/w0rd%252B1e1Z", r"p\u0040ss\/w0rd+1e1Z", "p&#64;ss&#x2f;w0rd+1e1Z",
     r"p@ss/w0rd\+1e1Z"],
)  # fmt: skip
def test_a_repeated_secret_is_left_out_in_any_encoding(spelling: str) -> None:
    redactor = Redactor()
    redactor.learn([b'{"DB_PASSWORD": "p@ss/w0rd+1e1Z"}'])
    assert redactor.text(f"connect {spelling} now") == "connect redacted now"
    assert redactor.left_out == {"DB_PASSWORD"}
    assert redactor.text("%2F…ss%2Fw0rd%2B1e1Z%2F") == "%2F…redacted%2F"


def test_a_secret_that_begins_at_every_letter_takes_little_memory() -> None:
    redactor = Redactor()
    redactor.learn([b'{"password":"aaaaaaaaaaaaaaaa"}'])
    text = "a" * 30_000
    tracemalloc.start()
    try:
        assert redactor.text(text) == "redacted"
        assert tracemalloc.get_traced_memory()[1] < 10 * len(text)
    finally:
        tracemalloc.stop()


def test_secrets_that_overlap_are_both_left_out() -> None:
    redactor = Redactor()
    redactor.learn([b'{"TOKEN": ["AAAABBBB1CCCC", "1CCCCDDDDEEEE"]}'])
    assert redactor.text("x AAAABBBB1CCCCDDDDEEEE y") == "x redacted y"


@dataclass(frozen=True)
class Row:
    name: str
    parts: tuple[Any, ...] = ()
    seen: dict[str, Any] = field(default_factory=dict)


def test_a_value_keeps_its_types() -> None:
    row = Row("k --token=abcdefgh1", (1, None, Row(A)), {B: [2.5, "x"]})
    assert Redactor().value(row) == Row("k --token=redacted", (1, None, Row("redacted")), {"redacted": [2.5, "x"]})


def test_strings_of_escapes_only_and_invalid_strings() -> None:
    escaped = b'["%b", "\\ud800 hf_AAAAAAAAAAAAAAAAAAAA", {"apiKey": "%b"}]' % (b"\\u0041" * 5000, b"\\n" * 5000)
    assert redacted(escaped) == [["A" * 5000, "\ud800 redacted", {"apiKey": "redacted"}]]


@pytest.mark.parametrize("levels", [0, 300, 5000])
def test_json_nests_as_deep_as_its_value(levels: int) -> None:
    value: Any = {"API_TOKEN": "hidden-secret", "b": [1, 2.5, None, True, float("nan")]}
    for _ in range(levels):
        value = {"a": [value, []]}
    text = b'{"a": [' * levels + b'{"API_TOKEN": "hidden-secret","b": [1,2.5,null,true,null]}' + b",[]]}" * levels
    assert as_json(value) == text.replace(b": ", b":")
    assert Redactor().learn([text]) == {"API_TOKEN"}


@pytest.mark.parametrize("big", [1, 10**30])
def test_numbers_that_json_lacks_become_null(big: int) -> None:
    assert as_json([float("inf"), -float("inf"), float("nan"), big]) == b"[null,null,null,%d]" % big


def test_secrets_with_equal_beginnings_take_few_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text is compared with one secret per length, no matter how many secrets begin with the same characters."""
    asked = 0

    class Counting(dict):  # type: ignore[type-arg]
        def __contains__(self, key: object) -> bool:
            nonlocal asked
            asked += 1
            return super().__contains__(key)

    redactor = Redactor()
    hidden = [f"{'a' * 9}{number:0{1 + number % 20}}z" for number in range(2000)]
    redactor.learn([json.dumps({"TOKEN": hidden}).encode()])
    search = redactor._search
    assert search is not None
    search._parts = Counting(search._parts)
    assert len([*search.found("a" * 10_000)]) == 0
    assert asked <= 10_000 * 32
    assert redactor.text(f"x{hidden[1234]}y") == "xredactedy"


SECRET = "Zq7Xw9Kp2Lm4Nv6Bt8Rc1Yd3Fh5Gj0"


@pytest.mark.parametrize("secret", [SECRET, SECRET[::-1] + "0" + SECRET])
@pytest.mark.parametrize("left", range(8, 30))
def test_the_rest_of_a_cut_secret_is_left_out(secret: str, left: int) -> None:
    redactor = Redactor()
    redactor.learn([json.dumps({"MY_PASSWORD": secret}).encode()])
    begin, end = secret[:left], secret[-left:]
    for text in (f"a_{begin}… > Linear", f"…{end}-b", f"a_{begin}…{end}-b", f"{begin}…", f"……{begin}…"):
        clean = redactor.text(text)
        pieces = {piece for at in range(len(secret) - 7) if (piece := secret[at : at + 8]) in clean}
        assert (pieces, "redacted" in clean) == (set(), True), clean
        assert json.loads(redactor.json(json.dumps([text]).encode())) == [clean]
    assert redactor.left_out == {"MY_PASSWORD"}


@pytest.mark.parametrize("form", ["|\n  {}", "\n  - {}", "[{}, other]", "!vault {}", "{}|X=1"])
def test_a_generated_secret_is_found_without_the_list_or_block_around_it(form: str) -> None:
    secret, redactor = "q7Wz2Kd9xT4bV8nM", Redactor()
    redactor.learn([json.dumps({"DB_PASSWORD": form.format(secret)}).encode()])
    assert redactor.text(f"aten::x {secret}") == "aten::x redacted"


def test_a_word_of_a_secret_is_kept_if_nothing_was_cut() -> None:
    redactor = Redactor()
    redactor.learn([b'{"PASSWORD": "transformer-17"}'])
    for text in ("transformer", "transformers… in transformer", "a … transformer", "trans…"):
        assert redactor.text(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [(f"k_{A[:10]}…", "k_redacted…"), ("AKIA0123456…AKIA0", "redacted…AKIA0"), ("hf_abc…", "hf_abc…"),
     ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIi…", "redacted…"), ("mask-learn-of-mine…", "mask-learn-of-mine…")],
)  # fmt: skip
def test_a_token_that_was_cut_is_recognised_by_its_beginning(text: str, left: str) -> None:
    assert Redactor().text(text) == left


def test_a_found_secret_is_replaced_by_its_name() -> None:
    assert [*secrets_in("x --token=abcdefgh1")] == [Found(10, 19, "--token")]
    assert [*secrets_in("x --password=abcdefgh1 y")] == [Found(13, 22, "--password", 24)]


def test_only_the_secret_of_a_line_is_left_out_where_it_is_repeated() -> None:
    redactor = Redactor()
    redactor.learn([b'["DB_PASSWORD=abcdefgh1 API_KEY=ijklmnop2 python /src/transformers/train_llama.py"]'])
    text = "transformers/train_llama.py(12): python"
    assert redactor.text(text) == text
    assert redactor.text("k_abcdefgh1, ijklmnop2") == "k_redacted, redacted"


@pytest.mark.parametrize(
    ("text", "repeated"),
    [("{'password': b'hunter22 abcvwxyz77'}", "hunter22 abcvwxyz77"), (r"password='it\'s secret99'", "s secret99"),
     ("api_keys: ['aaaaaaaa1', 'bbbbbbbb2']", "bbbbbbbb2"),
     ('Authorization: Digest username="bob", response="0123456789abcdef"', "0123456789abcdef")],
)  # fmt: skip
def test_a_secret_in_quotes_is_left_out_where_it_is_repeated(text: str, repeated: str) -> None:
    redactor = Redactor()
    redactor.learn([json.dumps([text]).encode()])
    assert redactor.text(f"k {repeated}.") == "k redacted."


def test_a_generated_secret_before_a_nul_is_left_out_where_it_is_repeated() -> None:
    redactor = Redactor()
    redactor.learn([json.dumps([f"--db-password\0pa{SECRET}\0--key-file\0{SECRET[::-1]}"]).encode()])
    assert redactor.text(f"{SECRET[::-1]}") == "redacted"


def test_no_text_of_a_rule_looks_like_a_secret() -> None:
    """Reports contain these strings. If one of them looked like a secret, every report would warn about it, and
    --redact would remove it.
    """
    texts = [path.read_text() for path in builtin_folder().rglob("*.toml")]
    assert [found for text in texts for found in secrets_in(text)] == []
