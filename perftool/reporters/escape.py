"""Escapes names from traces, which may contain any character, for output formats."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from perftool.model.valid_text import valid_text

_UNUSUAL = re.compile(r"[^\x20-\x7e]")
_UNUSUAL_IN_LINES = re.compile(r"[^\n\x20-\x7e]")
_NO_ASCII = re.compile(r"[^\x00-\x7e]")
# Ignorable characters outside the categories Cf and Cn: variation selectors, fillers and joiners.
_IGNORABLE = re.compile(r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]")
# CI commands that work anywhere in a line: ##[error], ##vso[...], ##teamcity[...].
_ANYWHERE = re.compile(r"#(?=#[\w.]*\[)")
# CI commands that work at the start of a line, after blanks: ::error::...
_AT_START = re.compile(r"^[^\S\n]*:(?=:)", re.MULTILINE)
_ANYWHERE_IN_JSON = re.compile(rb"#(?=#[\w.]*\[)")
# The characters that XML 1.0 forbids (section 2.2 of the recommendation). A negated class of the allowed characters
# would take 5 ms to compile.
_NO_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def one_line(text: str) -> str:
    """Put ``text`` on one line: escape control characters (``\\n``, ``\\x1b``), and break up ``##[``."""
    escaped = _UNUSUAL.sub(_escape_hidden, text)
    return _ANYWHERE.sub(r"\\x23", escaped) if "##" in escaped else escaped


def escaped_texts(value: Any, escape: Callable[[str], str]) -> Any:
    """Apply ``escape`` to all strings in nested lists and mappings, keys included."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, dict):
        return {escaped_texts(name, escape): escaped_texts(part, escape) for name, part in value.items()}
    return [escaped_texts(part, escape) for part in value] if isinstance(value, list | tuple) else value


@lru_cache(4096)
def _is_hidden(character: str) -> bool:
    """Whether ``character`` is invisible, or affects other characters: control and format characters, line separators,
    lone surrogates, private and unassigned characters, and characters that fonts ignore.
    """
    blank = unicodedata.category(character) == "Zs"
    return not (character.isprintable() or blank) or _IGNORABLE.match(character) is not None


def _escape_hidden(found: re.Match[str]) -> str:
    return _escape(found) if _is_hidden(found[0]) else found[0]


def _escape(found: re.Match[str]) -> str:
    """Escape the character in ``found``; a byte of a file name that is not UTF-8 becomes ``\\xNN``."""
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return found[0].encode("unicode_escape", "surrogatepass").decode()


def on_terminal(text: str) -> str:
    """Escape all hidden characters in ``text`` except line feeds."""
    return _UNUSUAL_IN_LINES.sub(_escape_hidden, text)


def shown(text: str) -> str:
    """Make ``text`` safe for a terminal or a CI log by escaping control characters and CI commands.

    All printed output passes through this function or ``make_console``, which escapes the same characters.
    """
    plain = on_terminal(text)
    parts, last = [], 0
    for at in commands_in(plain):
        parts += [plain[last:at], escaped_mark(plain[at])]
        last = at + 1
    return "".join([*parts, plain[last:]]) if parts else plain


def commands_in(text: str) -> list[int]:
    """Find the positions in ``text`` where ``#`` or ``:`` starts a CI command."""
    if "##" not in text and "::" not in text:
        return []
    found = [*_ANYWHERE.finditer(text), *_AT_START.finditer(text)]
    return sorted({match.end() - 1 for match in found})


def escaped_mark(mark: str) -> str:
    """Escape ``#`` or ``:``, so that no CI system recognises a command."""
    return f"\\x{ord(mark):02x}"


def shown_document(document: bytes) -> bytes:
    """Make ``document`` safe to print. Text is escaped as by ``shown``; JSON gets JSON escapes, so that its values do
    not change."""
    if document[:1] in (b"{", b"["):
        document = _ANYWHERE_IN_JSON.sub(rb"\\u0023", document)
        if not document.isascii() or b"\x7f" in document:
            text = _NO_ASCII.sub(_as_json_escape, document.decode("utf-8", "surrogateescape"))
            document = text.encode("utf-8", "surrogateescape")
    return shown(document.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _as_json_escape(found: re.Match[str]) -> str:
    """Write a hidden character as a JSON escape. A byte that is not text stays, because JSON has no escape for it."""
    character = found[0]
    if not _is_hidden(character) or _LONE_SURROGATE.match(character):
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def xml_text(text: str) -> str:
    """Remove the characters that XML 1.0 forbids. Markup is not escaped: the XML writer does that."""
    return _NO_XML.sub("", json_text(text))


def json_text(text: str) -> str:
    """Escape lone surrogates, because UTF-8 cannot encode them."""
    return valid_text(text)


# A zero-width space after these characters prevents mentions and links on GitHub, GitLab and in chats; a backslash does
# not.
_LINKED = re.compile(r"@|:(?=//)|\bwww(?=\.)|#(?=\d)", re.IGNORECASE)


def markdown_cell(text: str) -> str:
    """Escape ``text`` for a cell of a Markdown table: one line without markup, mentions of users, and links."""
    escaped = re.sub(r"([\\`*_\[\]|~])", r"\\\1", one_line(text))
    escaped = escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _LINKED.sub(r"\g<0>&#8203;", escaped)


def github_message(text: str) -> str:
    """Escape ``text`` as the message of a workflow command: ``%`` first, which avoids double escaping."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def github_property(text: str) -> str:
    """Escape ``text`` as the value of a property of a workflow command."""
    return github_message(text).replace(":", "%3A").replace(",", "%2C")
