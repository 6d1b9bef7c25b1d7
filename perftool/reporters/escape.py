"""Escapes names from traces for output formats: they may hold any character."""

from __future__ import annotations

import re

# Control characters, characters that break or reverse a line on a terminal, and invisible letters.
_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
# CI commands that work anywhere in a line: ##[error], ##vso[...], ##teamcity[...].
_ANYWHERE = re.compile(r"#(?=#[\w.]*\[)")
# CI commands that work at the start of a line, after blanks: ::error::...
_AT_START = re.compile(r"^[^\S\n]*:(?=:)", re.MULTILINE)
_ANYWHERE_IN_JSON = re.compile(rb"#(?=#[\w.]*\[)")
# Every character that XML 1.0 forbids (section 2.2 of the recommendation). The negated class of all allowed characters
# would take 5 ms to compile.
_NO_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
# The characters of _CONTROL that JSON may hold unescaped, in UTF-8.
_INVISIBLE_IN_JSON = re.compile(
    rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]|\xf3\xa0[\x80\x81][\x80-\xbf]"
)
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def one_line(text: str) -> str:
    """``text`` on one line: control characters as escapes (``\\n``, ``\\x1b``), and ``##[`` broken up."""
    escaped = _CONTROL.sub(_escape, text)
    return _ANYWHERE.sub(r"\\x23", escaped) if "##" in escaped else escaped


def _escape(found: re.Match[str]) -> str:
    """A character as an escape; one that stands for a byte of a file name that is not UTF-8, as that byte."""
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return found[0].encode("unicode_escape", "surrogatepass").decode()


def on_terminal(text: str) -> str:
    """``text`` that cannot control a terminal: every control character except the line feed is escaped."""
    return "\n".join(map(one_line, text.split("\n"))) if _CONTROL.search(text) else text


def shown(text: str) -> str:
    """``text`` made safe for a terminal or a CI log: it can neither control the one nor command the other.

    All printed output passes through this, or through a console, which does the same for each line.
    """
    plain = on_terminal(text)
    parts, last = [], 0
    for at in commands_in(plain):
        parts += [plain[last:at], escaped_mark(plain[at])]
        last = at + 1
    return "".join([*parts, plain[last:]]) if parts else plain


def commands_in(text: str) -> list[int]:
    """Positions in ``text`` where ``#`` or ``:`` starts a CI command."""
    if "##" not in text and "::" not in text:
        return []
    found = [*_ANYWHERE.finditer(text), *_AT_START.finditer(text)]
    return sorted({match.end() - 1 for match in found})


def escaped_mark(mark: str) -> str:
    """``#`` or ``:`` as an escape that no CI system recognises."""
    return f"\\x{ord(mark):02x}"


def shown_document(document: bytes) -> bytes:
    """``document`` made safe to print: text as by ``shown``, and JSON with the same meaning."""
    if document[:1] in (b"{", b"["):
        document = _ANYWHERE_IN_JSON.sub(rb"\\u0023", document)
        if _INVISIBLE_IN_JSON.search(document):
            document = _INVISIBLE_IN_JSON.sub(_as_json_escape, document)
    return shown(document.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _as_json_escape(found: re.Match[bytes]) -> bytes:
    units = found[0].decode().encode("utf-16-be")
    return b"".join(b"\\u%02x%02x" % (units[at], units[at + 1]) for at in range(0, len(units), 2))


def xml_text(text: str) -> str:
    """``text`` without characters forbidden by XML 1.0; the writer does the quoting."""
    return _NO_XML.sub("", json_text(text))


def json_text(text: str) -> str:
    """``text`` with lone surrogates, which UTF-8 cannot encode, spelled as in every other output."""
    return _LONE_SURROGATE.sub(_escape, text)


def markdown_cell(text: str) -> str:
    """``text`` for a cell of a Markdown table: on one line, without markup."""
    escaped = re.sub(r"([\\`*_\[\]|~])", r"\\\1", one_line(text))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def github_message(text: str) -> str:
    """``text`` as the message of a workflow command; escapes ``%`` first, which avoids double escaping."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def github_property(text: str) -> str:
    """``text`` as a property value of a workflow command."""
    return github_message(text).replace(":", "%3A").replace(",", "%2C")
