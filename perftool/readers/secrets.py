"""Recognises passwords and tokens by their names, their places in text, or their prefixes.

All functions take time linear in the length of the text.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NoBase64
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from html import unescape
from typing import NamedTuple

from perftool.model.cut_text import CUT

# The forms of keys and tokens of well-known services.
_KINDS = {
    "AWS key": r"A(?:KIA|SIA)[0-9A-Z]{16}",
    "GitHub token": r"gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}",
    "GitLab token": r"gl(?:pat|dt|rt|oas|cbt|ptt|ft|imt|soat|agent)-[\w\-]{16,}",
    "Google key": r"AIza[\w\-]{30,}|ya29\.[\w\-]{20,}|GOCSPX-[\w\-]{20,}",
    "Hugging Face token": r"hf_[A-Za-z0-9]{16,}",
    "NVIDIA key": r"nvapi-[\w\-]{20,}",
    "OpenAI or Anthropic key": r"sk-(?=[\w\-]{0,40}\d)[\w\-]{20,}",
    "Slack token": r"xox[abeprs]-[\w\-]{10,}|hooks\.slack\.com/services/[\w/]{20,}",
    "Stripe key": r"[rs]k_live_[A-Za-z0-9]{16,}",
    "npm token": r"npm_[A-Za-z0-9]{30,}",
    "PyPI token": r"pypi-[\w\-]{20,}",
    # The limit on the header keeps failing matches from taking quadratic time.
    "signed token": r"eyJ[\w\-]{10,2000}\.[\w\-]{10,}\.[\w\-]*",
    "private key": r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]{0,20}-----|\Z)",
}
_BEGUN = re.compile(
    "(?<![A-Za-z0-9])(?:" + "|".join(f"(?P<k{at}>{form})" for at, form in enumerate(_KINDS.values())) + ")", re.DOTALL
)
_KIND_OF = {f"k{at}": kind for at, kind in enumerate(_KINDS)}

# A character as addresses, HTML, JSON, Python's ``repr`` or a shell encode it: ``%2F``, ``&#64;``, ``\u0026``, ``\n``,
# ``\$``. It may be encoded several times. A sequence that sets a colour in a terminal counts as one character.
_ENCODED = re.compile(
    r"(?:\x1b|\\{1,8}(?:x1[bB]|u001[bB]|033|e)|%(?:25)*1[bB])\[[\d;]{0,20}[A-Za-z]"
    r"|(?:%(?:25)*|\\{1,8}(?:x|u00))(?P<code>[0-9A-Fa-f]{2})"
    r"|\\{1,8}(?:(?P<letter>[abfnrtv0])|(?P<mark>[%+,\-./:;=?@~!#$&*^|<>]))"
    r"|&(?:amp;)*(?P<entity>#\d{1,6}|#[xX][0-9A-Fa-f]{1,5}|amp|quot|apos|lt|gt);"
)
_LINE_ENDS = {"n": "\n", "r": "\r"}

REPLACEMENT = "redacted"
# Characters that could continue a token that was truncated there.
_REST = f"{'0' * 40}.{'0' * 10}."

# Patterns for names that ``_certainty`` has divided into words. Counts of tokens or of passes are not secrets.
_CERTAIN = re.compile(
    r"pass_?(?:w(?:or)?d|phrase|code)|pswd|secret|credential|_(?:proxy_)?authorization_$|_(?:set_)?cookies?_$"
    r"|[a-z0-9]_pwd_$|(?:api|access|account|auth|encryption|licen[cs]e|master|private|service|signing|ssh|storage"
    r"|subscription)_?keys?_$|_api_key_[a-z0-9]+_$"
)
# The names of all secrets contain one of these. Most strings contain none, and need no further check.
_HINT = re.compile(r"pass|pwd|pswd|secret|credential|auth|cookie|key|token|sig", re.IGNORECASE)
_POSSIBLE = re.compile(r"token_$|(?:^|[a-z0-9])_?pass_$|^_pwd_$|_auth_")
# Any other key, such as KAGGLE_KEY, may be a secret if its value looks like a secret. Ordinary keys are the exception.
_KEY = re.compile(r"[a-z0-9]_keys?_$")
_ORDINARY_KEY = re.compile(
    r"_(?:cache|sort|primary|foreign|public|host|dict|state|group|partition|input|output|label|lookup|shard)_keys?_$"
)
_RANDOM = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9+/=_\-]{16,256}")
_UNIT = re.compile(
    r"_(?:per|each|first|next|last|prev|new|num|max|min|total|input|output|prompt|draft|generated|accepted|vision|image"
    r"|audio|video|text|pad|padding|eos|eot|bos|sos|unk|sep|cls|mask|special|start|end|stop|think|sub)_token_$"
    r"|_(?:forward|backward|fwd|bwd|first|second|last|pre|post|graph|fusion|compiler|optimizer)_pass_$"
    r"|(?:com|by|sur|tres|over|under|low|high|band|all|one|two|single|multi)_?pass_$"
)
# A name that ends in one of these words only describes a secret or says where it is. Vault's secret id is a password,
# though.
_ABOUT = re.compile(
    r"_(?:file|path|dir|name|(?<!_secret_)id|type|count|len|length|size|ttl|url|hint|policy|enabled|env|per_s)_$"
)
_IN_ADDRESS = re.compile(r"(?:x-[a-z]{3,4}-)?(?:sig|signature|key)", re.IGNORECASE)
# Names may end in a number or in a word for their use: HF_TOKEN_1, api-key2, API_KEY_PROD_2.
_PLACE = (
    "prod|production|staging|stage|dev|test|live|old|new|backup|main|read|write|ro|rw|admin|team|user|ci|value"
    "|header|pem"
)
_VARIANT = re.compile(rf"(?:_?v?\d+)?(?:_(?:{_PLACE})(?:_?v?\d+)?)?_$")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")
# Only the end of a longer name is examined.
_LONGEST_NAME = 100

# Shorter strings do not count as secrets, because they could occur in other words.
SHORTEST = 8
# Longer strings do not count as tokens unless they have a known prefix.
_LONGEST = 256
_PLAIN = re.compile(rf"\S{{{SHORTEST},{_LONGEST}}}")
_MEASURE = re.compile(r"[+\-]?[\d.,:]+(?:e[+\-]?\d+)?[A-Za-z%]{0,3}(?:/\w{1,9})?", re.IGNORECASE)
_NUMBER = re.compile(r"[+\-]?\d+(?:\.\d+)?(?:e[+\-]?\d+)?", re.IGNORECASE)
_NONE = re.compile(r"none|null|nil|true|false|yes|no|redacted|[*.x]*|[\[({]\s*[\])}]", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z_]+")
# A shell's variable PWD is the working directory.
_FOLDER = re.compile(r"[/~$.]|[A-Za-z]:[/\\]")
# Special tokens of language models, such as <|begin_of_text|> or [MASKED].
_SPECIAL = re.compile(r"<\|[^|]*\|>|<[/\w]+>|\[\w+\]")

# Names of two words, as people write them. Other words before ``key`` or ``token`` are ordinary prose.
_IN_WORDS = (
    r"(?i:(?:api|access|account|auth|encryption|private|secret|signing|ssh|subscription)[ \t]{1,4}keys?"
    r"|(?:api|access|auth|refresh|secret)[ \t]{1,4}token|pass[ \t]{1,4}(?:word|phrase))(?![\w.\-])"
)
# A name and the separator before its value: ``--token=``, ``"apiKey": "``, ``['--token', '``, ``&amp;sig=``,
# ``api_key[0]=``, ``<password>``. HTML may escape ``&``.
_NAMED = re.compile(
    rf"""(?:(?P<lead>[?&]|&amp;)|(?<![\w.\-]))(?P<name>{_IN_WORDS}|[\w.\-]+)"""
    r"""(?:\[(?:\d{1,20}|[@*])\]|(?:\\*["'])?\]?)"""
    r"""(?P<sep>\s*(?:[:|?]{2}=|[:+?!.]=|=>|[=:](?![=:]))\s*|\s*,\s*|[ \t]+\|[ \t]+|\s+"""
    r"""|>(?=[^<>]{1,256}</))"""
)
# The start of a call that sets a variable, before the variable's name: ``os.environ.setdefault('``, ``setenv ``.
_SETS = re.compile(r"""(?<![a-z])(?:(?:set\w*|putenv)\(\s*\\*["']|setenv[ \t]{1,9})$""", re.IGNORECASE)
_LONGEST_CALL = 30
# The start of a pair or of a call that looks up a name or adds it, before the quoted name, and the value that ends the
# pair: ``(b'x-api-key', b'X')``, ``os.getenv('HF_TOKEN', 'X')``. In other calls, the name may be an ordinary word.
_PAIR = re.compile(
    r"""(?:(?<!\w)|(?<![a-z])(?:add|get(?!attr)|pop|put)\w*)[(\[]\s{0,9}[bBuU]?\\*["']$""", re.IGNORECASE
)
_SECOND = re.compile(r"""[bBuU]?(\\*["'])[^"'\r\n]{1,256}\1\s{0,9}(?:,\s{0,9})?[)\]]""")
# Behind blanks or the bar of a table, as in ``ENV HF_TOKEN X``, only a word of letters and digits counts as a secret,
# and only behind a certain name or a variable in capitals. Otherwise, the text may be a sentence.
_MIXED = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])\S+")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
# A name and a bracket, before the name of an element: ``secrets['``.
_ELEMENT_OF = re.compile(r"""([\w.\-]{1,100})\[(?:\\*["'])?$""")
_QUOTE = re.compile(r"""(\\*["'])""")
# Strings may have a prefix in Python (b'x') or in a shell ($'x').
_PREFIXED = re.compile(r"""(?:[bBuUrRfF]{1,2}|\$)?(\\*["'])""")
# A shell joins a line that ends in a backslash to the next line.
_NEXT_LINE = re.compile(r"(?:\\\r?\n[ \t]*)+")
_SCHEME = re.compile(r"(?:bearer|basic|token|digest)\s+", re.IGNORECASE)
# An ``&`` ends a value only if another name follows, as in a URL. Quotes, angle brackets and semicolons also end it if
# a space or punctuation follows, and so does the end of an XML element. A shell may escape blanks, punctuation and the
# end of a line.
_BARE = re.compile(
    r"""(?:[^\s"'`&;<>\\]|\\+(?: (?=\S)|\r?\n(?=\S)|[^\w\s"'`\\])|&(?![\w.%\-]*=)(?=[^\s"'&;<>\\])"""
    r"""|["'`;<>]+(?!(?<=<)/\w|[\w.%\-]*=[^=\s])(?=[^\s"'`;<>,:)\]}\\]))+"""
)
# Headers whose value extends to the end of the line, or of the argument that contains them.
_HEADERS = re.compile(r"(?:set-)?cookie|(?:proxy-)?authorization", re.IGNORECASE)
_HEADER = re.compile(r"""(?:= *"[^"\r\n]*"|[^"'`\r\n])*""")
# A list or an object, up to its first closing bracket. In truncated text, the last string may be unterminated.
_LIST = re.compile(r"""[\[({](?:"[^"]*"?|'[^']*'?|[^"'\])}]+)*[\])}]?""")
# A tuple, list, object or argument list.
_ITEMS = re.compile(r"""[\w.]{0,60}[\[({][^\])}\r\n]{1,600}""")
# What may stand before the key of a block of YAML, the mark of a block, and a tag or an anchor with its value.
_KEY_OF_BLOCK = re.compile(r"""(?:^|\n)[ \t-]*["']?$""")
_BLOCK = re.compile(r"[|>][+\-\d]{0,2}[ \t]{0,9}\r?\n")
_TAGGED = re.compile(r"[!&]\S{0,100}[ \t]{1,9}\S{1,258}")
# Operands and operators before a quoted value, such as a type or another value: ``str = 'X'``, ``None or 'X'``.
_OPERAND = r"""(?:[\w.$!]|\[[^\]\r\n]{0,100}\]+|\([^)\r\n]{0,100}\)+|["'][^"'\r\n]{0,100}["']){1,200}"""
_OPERATOR = r"[ \t]{0,9}(?:\b(?:or|and|if|else)\b|[=|?+]{1,3})\s{0,9}"
_OPERATION = re.compile(rf"""(?:{_OPERAND}{_OPERATOR}){{1,8}}[bBuUrRfF]{{0,2}}(\\*["'])[^"'\r\n]{{1,256}}\1""")
# A value in quotes that is not a key. In a list, an object or a block, quotes are not necessary.
_STRING = r"""(?P<quote>\\*["'])(?P<quoted>[^"']{8,256})(?P=quote)(?!\s{0,9}:)"""
_WORD_OF_LIST = r"""(?<![^\s,\[{])(?P<bare>[^\s"'`,\[\](){}]{7,255}[^\s"'`,\[\](){}:])(?![^\s,\]}])"""
_QUOTED, _ITEM = re.compile(_STRING), re.compile(f"{_STRING}|{_WORD_OF_LIST}")
_BEARER = re.compile(r"(?<!\w)(?P<scheme>bearer|basic)\s+(?P<text>[\w+/=.\-~]{8,})", re.IGNORECASE)
# JSON in a string may contain escaped slashes. A quote or an angle bracket ends the URL if a space or punctuation
# follows. A password may contain slashes, but not two in succession, and a number before a slash is a port.
_IN_USER = r"""(?:[^\s/@:"'<>]|["'<>](?![\s,:;)\]}\\]))"""
_SLASH = r"/(?!\\{0,9}/)"
_ADDRESS = re.compile(
    rf""":\\{{0,9}}/\\{{0,9}}/(?:(?P<user>{_IN_USER}{{16,}})"""
    rf"""|{_IN_USER}*:(?:(?P<password>(?:{_IN_USER}|[@:])+)|(?!\d{{1,5}}/)(?P<slashed>(?:{_IN_USER}|:|{_SLASH})+)))@"""
)


class Certainty(IntEnum):
    """Whether a name indicates a secret. With ``POSSIBLE``, it depends on the value. With ``RANDOM``, the value must
    look random."""

    NO = 0
    RANDOM = 1
    POSSIBLE = 2
    CERTAIN = 3


class Found(NamedTuple):
    """A secret from ``start`` to ``end`` in some text. ``kind`` is the name of the value or the kind of token.

    If the form of the text does not show for certain where the secret ends, it ends at ``last`` at the latest.
    """

    start: int
    end: int
    kind: str
    last: int = 0

    @property
    def span(self) -> tuple[int, int]:
        """The start and the end of the text to leave out."""
        return self.start, max(self.end, self.last)


def certainty(name: str) -> Certainty:
    """Whether ``name``, a key or an option in any style (``apiToken``, ``db-password``), indicates a secret."""
    return _certainty(name[-_LONGEST_NAME:])


@lru_cache(maxsize=1 << 14)
def _certainty(name: str) -> Certainty:
    words = _VARIANT.sub("_", f"_{_HUMP.sub('_', name).lower()}_".replace("__", "_"))
    if _ABOUT.search(words):
        return Certainty.NO
    if _CERTAIN.search(words):
        return Certainty.CERTAIN
    if _POSSIBLE.search(words):
        return Certainty.NO if _UNIT.search(words) else Certainty.POSSIBLE
    return Certainty.RANDOM if _KEY.search(words) and not _ORDINARY_KEY.search(words) else Certainty.NO


def looks_random(text: str) -> bool:
    """Whether ``text`` may be a generated key: one word of 16 or more characters, with letters and digits."""
    return bool(_RANDOM.fullmatch(text))


def is_secret(name: str, value: str) -> bool:
    """Whether ``value``, the text of the setting or option ``name``, is a secret."""
    if certainty(name) == Certainty.CERTAIN:
        return not _NONE.fullmatch(value)
    if certainty(name) == Certainty.RANDOM:
        return looks_random(value)
    # A plain word is a token of a language model rather than a secret.
    word = name in ("token", "pass") and _WORD.fullmatch(value)
    folder = name.strip("-").lower() == "pwd" and _FOLDER.match(value)
    return certainty(name) == Certainty.POSSIBLE and not word and not folder and _is_token(value)


def _is_token(value: str) -> bool:
    """Whether ``value`` may be a token, because it is one word and neither a measurement nor a special word."""
    other = any(one.fullmatch(value) for one in (_MEASURE, _NONE, _SPECIAL))
    # The parts of a URL are checked separately.
    return bool(_PLAIN.fullmatch(value)) and not other and "://" not in value


def is_secret_number(name: str, digits: str) -> bool:
    """Whether the number ``digits`` is a secret, such as a PIN called a password, rather than a count of tokens."""
    return (
        certainty(name) == Certainty.CERTAIN and bool(_NUMBER.fullmatch(digits)) and sum(map(str.isdigit, digits)) >= 4
    )


def secrets_in(text: str) -> Iterator[Found]:
    """Yield the secrets in ``text``, which may overlap."""
    if len(text) < SHORTEST:
        return
    # The system separates the arguments of a process by NUL.
    text = text.replace("\0", " ")
    yield from _secrets_in(text)
    decoded, origin = decode(text)
    if len(decoded) < len(text):
        for found in _secrets_in(decoded):
            yield Found(origin(found.start), origin(found.end), found.kind, origin(found.last))


def _secrets_in(text: str) -> Iterator[Found]:
    for found in _BEGUN.finditer(text):
        yield Found(*found.span(), _KIND_OF[found.lastgroup or ""])
    yield from _begun_in(text)
    for found in _ADDRESS.finditer(text):
        yield Found(*found.span(found.lastgroup or 0), "password in a URL")
    for found in _BEARER.finditer(text):
        if credential := _credential(found["scheme"], found["text"]):
            start = found.start("text")
            yield Found(start, start + len(credential), found["scheme"])
    if _HINT.search(text):
        yield from _named_in(text)


def decode(text: str) -> tuple[str, Callable[[int], int]]:
    """Replace each encoded character in ``text``, and return the function that converts a position in the result to
    the position in ``text``."""
    parts: list[str] = []
    ends: list[int] = []
    removed = [0]
    at = 0
    for found in _ENCODED.finditer(text):
        parts += [text[at : found.start()], _decoded(found)]
        at = found.end()
        removed.append(removed[-1] + len(found[0]) - 1)
        ends.append(at - removed[-1])
    decoded = "".join([*parts, text[at:]]) if parts else text
    return decoded, lambda position: position + removed[bisect(ends, position)]


def _decoded(encoded: re.Match[str]) -> str:
    """Return the character that ``encoded`` stands for. A blank stands for characters that separate words."""
    if code := encoded["code"]:
        return chr(int(code, 16))
    if entity := encoded["entity"]:
        return unescape(f"&{entity};")[:1] or " "
    return encoded["mark"] or _LINE_ENDS.get(encoded["letter"], " ")


def without_secrets(text: str) -> str:
    """Replace each secret in ``text`` with REPLACEMENT."""
    return replaced(text, (found.span for found in secrets_in(text)))


def replaced(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Replace each of ``spans`` in ``text`` with REPLACEMENT. Spans that overlap or touch are replaced together."""
    parts, at = [], 0
    for start, end in joined(sorted(spans)):
        parts += [text[at:start], REPLACEMENT]
        at = end
    return "".join([*parts, text[at:]]) if parts else text


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join overlapping and touching ``spans``, which must be sorted."""
    found: list[tuple[int, int]] = []
    for start, end in spans:
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _begun_in(text: str) -> Iterator[Found]:
    """Yield the truncated keys and tokens in ``text``."""
    start = 0
    while (at := text.find(CUT, start)) >= 0:
        rest = text[start:at]
        # The text before the cut is the beginning of a token if there is a continuation that makes it one.
        for found in _BEGUN.finditer(rest + _REST) if len(rest) >= SHORTEST else ():
            if found.end() > len(rest) >= found.start() + SHORTEST:
                yield Found(start + found.start(), at, _KIND_OF[found.lastgroup or ""])
        start = at + len(CUT)


def _credential(scheme: str, text: str) -> str:
    """Return the credential at the beginning of ``text``, or an empty string if there is none."""
    if scheme.lower() == "bearer":
        return "" if _WORD.fullmatch(text) else text
    # Base64 does not contain the full stop that may end a sentence.
    text = text.rstrip(".-~")
    try:
        return text if b":" in b64decode(text, validate=True) else ""
    except NoBase64:
        return ""


def _named_in(text: str) -> Iterator[Found]:
    after = begun = run = last = 0
    judged_to = dict.fromkeys(Certainty, 0)
    for found in _NAMED.finditer(text):
        name, begin = found["name"], found.start()
        found_certainty = certainty(name)
        if not found_certainty and "[" in text[max(0, begin - 3) : begin] and not _ABOUT.search(f"_{name}_"):
            element = _ELEMENT_OF.search(text, max(0, begin - _LONGEST_NAME), begin)
            name = element[1] if element else name
            found_certainty = certainty(name)
        if not found_certainty and found["lead"] and _IN_ADDRESS.fullmatch(name):
            found_certainty = Certainty.POSSIBLE
        if not found_certainty or begin < after:
            continue
        assigned = _assigned(text, found)
        # If an option has no value, the next option follows.
        option = name.startswith("-") and not text.startswith("-", found.end())
        listed = not assigned and not option
        if listed and not _is_listed(text, found, found_certainty):
            continue
        certain = found_certainty == Certainty.CERTAIN and not listed
        start, quote = _begin(text, found.end(), certain)
        end = _closed(text, start, quote, certain) if quote else start
        # The quote may be part of the secret.
        if not quote or text.startswith(quote, end):
            # All names in a run without blanks share the end of the run, so it is computed only once.
            if not begun <= end < run:
                begun, run = end, _bare_end(text, end)
            end = run
        if certain and not quote:
            header = _HEADERS.fullmatch(name) and assigned and _HEADER.match(text, start)
            opened = _LIST.match(text, start)
            end = max(end, opened.end() if opened else 0, header.end() if header else 0)
        if not certain and assigned and start >= judged_to[found_certainty]:
            items, judged_to[found_certainty] = _items(text, found, start)
            for item in items:
                kind = item.lastgroup or ""
                if is_secret(name, item[kind]) and (kind == "quoted" or not _WORD.fullmatch(item[kind])):
                    yield Found(*item.span(kind), name)
        if not certain and certainty(name) > Certainty.RANDOM and end - start > _LONGEST:
            continue
        value = _NEXT_LINE.sub("", text[start:end])
        if listed and not (_is_token(value) and _MIXED.match(value) and not _FOLDER.match(value)):
            continue
        if is_secret(name, value) if certainty(name) else end - start >= SHORTEST:
            after = end
            # Only in a URL is it certain where the secret ends.
            if certain and not found["lead"] and end > last:
                last = _last_end(text, begin, start, end, quote)
            yield Found(start, end, name, last)


def _assigned(text: str, named: re.Match[str]) -> bool:
    """Whether the text around the name ``named`` shows that a value is assigned to it."""
    begin = named.start()
    before = max(0, begin - _LONGEST_CALL)
    if named["sep"].strip() not in ("", ",", "|") or _SETS.search(text, before, begin):
        return True
    return bool(_PAIR.search(text, before, begin) and _SECOND.match(text, named.end()))


def _is_listed(text: str, named: re.Match[str], found: Certainty) -> bool:
    """Whether a value may follow the name ``named`` behind blanks or a bar, in the same line."""
    return (
        (found == Certainty.CERTAIN or bool(_VARIABLE.fullmatch(named["name"])))
        and named["sep"].strip() in ("", "|")
        and "\n" not in named["sep"]
        and not text.endswith(("$", "${"), 0, named.start())
    )


def _items(text: str, named: re.Match[str], start: int) -> tuple[Iterable[re.Match[str]], int]:
    """Return the values that the name ``named`` may have apart from the word at ``start``, and the end of the text
    that contains them: a list, an object, a block of YAML, or what is behind a tag or an operator."""
    begin = named.start()
    below = "\n" in named["sep"] and (
        text.startswith("- ", start) or _KEY_OF_BLOCK.search(text, max(0, begin - _LONGEST_NAME), begin)
    )
    if below or _BLOCK.match(text, start):
        end = max(start, _block_end(text, begin, _line_end(text, named.end("name"))))
        return _ITEM.finditer(text, start, end), end
    found = (_ITEMS.match(text, start), _TAGGED.match(text, start), _OPERATION.match(text, named.end()))
    end = max((one.end() for one in found if one), default=start)
    # In the arguments of a call, words without quotes are variables.
    form = _ITEM if text.startswith(("[", "{", "!", "&"), start) else _QUOTED
    return form.finditer(text, start, end), end


def _begin(text: str, at: int, certain: bool) -> tuple[int, str]:
    """Return the start of the value at ``at``, and the quote before it (or an empty string)."""
    below = _NEXT_LINE.match(text, at)
    at = below.end() if below else at
    quote = (_PREFIXED if certain else _QUOTE).match(text, at)
    start = quote.end() if quote else at
    scheme = _SCHEME.match(text, start)
    return scheme.end() if scheme else start, quote[1] if quote else ""


def _closed(text: str, start: int, quote: str, certain: bool) -> int:
    """Return the end of the quoted value at ``start``. If this is ``certain`` to be a secret, the value may have any
    length and contain quotes after backslashes."""
    limit = len(text) if certain else start + _LONGEST + 1
    end = text.find(quote, start, limit)
    while certain and end > start and text[end - 1] == "\\":
        end = text.find(quote, end + 1)
    return end if end >= 0 else min(limit, len(text))


def _last_end(text: str, name: int, start: int, end: int, quote: str) -> int:
    """Return the last position where a value may end: the end of its line. Its name is at ``name``, and the value at
    ``start`` seems to end at ``end``.

    There are more forms of quotes, escapes and lists than this module knows, so any part of the line may belong to the
    value, and so may the lines that ``_block_end`` finds. If a bracket or ``quote`` remains open, the value may extend
    to the end of the text.
    """
    last = _line_end(text, end)
    rest = text[start:last]
    if any(rest.count(opened) > rest.count(closed) for opened, closed in ("[]", "{}", "()")):
        return len(text)
    if quote and (rest.count(quote) - rest.count(f"\\{quote}")) % 2 == 0:
        return len(text)
    return _block_end(text, name, last)


def _block_end(text: str, name: int, end: int) -> int:
    """Return the end of the lines that belong to the line that ends at ``end``: those that are indented more than the
    line of the name at ``name``, are items of a YAML list, or follow a backslash at the end of a line."""
    line = text[text.rfind("\n", 0, name) + 1 : name]
    indent = line[: len(line) - len(line.lstrip(" \t"))]
    below = (f"{indent} ", f"{indent}\t", f"{indent}- ", "\n", "\r\n")
    while end < len(text) and (text.startswith(below, end + 1) or _goes_on(text, end)):
        end = _line_end(text, end + 1)
    return end


def _goes_on(text: str, end: int) -> bool:
    """Whether the line that ends at ``end`` continues in the next line, because it ends in a backslash."""
    return text[max(end - 2, 0) : end].removesuffix("\r").endswith("\\")


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


def _bare_end(text: str, start: int) -> int:
    """Return the end of the unquoted value at ``start``. A space ends the value; commas and closing brackets just
    before its end are not part of it."""
    bare = _BARE.match(text, start)
    return start + len(bare[0].rstrip(",)]}")) if bare else start
