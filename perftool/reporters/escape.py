"""Names from traces made safe for the formats they go into: they may hold any character at all."""

from __future__ import annotations

import re

# Control characters, and the ones that break or reverse a line on a terminal.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# Everything that XML 1.0 does not allow as a character (section 2.2 of the recommendation). Named by what it
# is: the class of all that is allowed, negated, takes 5 ms to compile.
_NO_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_COMMAND = re.compile(r"[\n\r]\s*(?=::|##)")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def one_line(text: str) -> str:
    """``text`` on one line: each control character as its escape (``\\n``, ``\\x1b``)."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def on_terminal(text: str) -> str:
    """``text`` that cannot steer a terminal: each control character but the line feed as its escape."""
    return "\n".join(map(one_line, text.split("\n"))) if _CONTROL.search(text) else text


def no_commands(text: str) -> str:
    """``text`` in which no line but the first can be a command to a CI system (``::error``)."""
    return _COMMAND.sub(lambda found: found[0].replace("\n", "\\n").replace("\r", "\\r"), text)


def xml_text(text: str) -> str:
    """``text`` without the characters that XML 1.0 forbids; quoting is left to the writer."""
    return _NO_XML.sub("", text)


def json_text(text: str) -> str:
    """``text`` with lone surrogates, which UTF-8 cannot carry, replaced."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def markdown_cell(text: str) -> str:
    """``text`` for a cell of a Markdown table: one line, and nothing in it is markup."""
    escaped = re.sub(r"([\\`*_\[\]|~])", r"\\\1", one_line(text))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def github_message(text: str) -> str:
    """``text`` as the message of a workflow command; ``%`` first, or it would be escaped twice."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def github_property(text: str) -> str:
    """``text`` as the value of a property of a workflow command."""
    return github_message(text).replace(":", "%3A").replace(",", "%2C")
