r"""Makes text encodable as UTF-8. A lone surrogate, which JSON and pickles may contain, becomes text like ``\ud800``.

Python also represents a byte of a file name that is not UTF-8 as a lone surrogate. It becomes text like ``\xff``.
"""

from __future__ import annotations

import re

_HALF = re.compile("[\ud800-\udfff]")
# The JSON escape of a surrogate, and the escape of a low surrogate if it follows. Each begins with an odd number of
# backslashes; an even number of backslashes stands for literal ones.
_ESCAPED = re.compile(r"(?<!\\)(\\+)u([dD][89a-fA-F][0-9a-fA-F]{2})(?:\\u([dD][c-fC-F][0-9a-fA-F]{2}))?")
_SECOND = 0xDC00


def valid_text(text: str) -> str:
    """Replace each lone surrogate in ``text``."""
    return text if text.isascii() else _HALF.sub(lambda half: _shown(ord(half[0])), text)


def valid_json(text: str) -> str:
    """Replace each escape in the JSON ``text`` that a parser would turn into a lone surrogate."""
    return _ESCAPED.sub(_without_halves, text) if "\\u" in text else text


def _without_halves(found: re.Match[str]) -> str:
    marks, first, second = found.groups()
    is_escape = len(marks) % 2 == 1
    if is_escape and second and int(first, 16) < _SECOND:
        return found[0]
    before = f"{marks}\\{_shown(int(first, 16))[1:]}" if is_escape else f"{marks}u{first}"
    return before + (f"\\{_shown(int(second, 16))}" if second else "")


def _shown(code: int) -> str:
    return f"\\x{code - _SECOND:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"
