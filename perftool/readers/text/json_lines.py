"""Takes a program's lines out of a log with one JSON object per line, as Docker and structured loggers write it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from perftool.model.valid_text import valid_json
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.unique_keys import decoder_of_unique

# The possible names of the member that contains the line, those of container runtimes first.
_KEYS = ("log", "msg", "message", "MESSAGE")
# Docker divides lines of more than 16 KiB.
_DIVIDED = 16_000


class JsonLines:
    """Takes the lines out of records, which are fed in order. ``is_record``: whether the last line was a record.

    ``is_other``: whether an object with these keys is no record, although it has a member of such a name.
    """

    def __init__(self, tally: IssueTally, is_other: Callable[[Iterable[str]], bool]) -> None:
        self._decoder = decoder_of_unique(tally)
        self._is_other = is_other
        self._is_divided = False
        self.is_record = False

    def line_in(self, text: str) -> str | None:
        """Return the line in the record ``text``, or ``text`` itself if it is not a record.

        Return None for the rest of a divided line, because it may begin anywhere in a client's text.
        """
        message = self._message(text)
        self.is_record = message is not None
        if message is None:
            return text
        is_rest = self._is_divided
        self._is_divided = not message.endswith("\n") and len(message.encode(errors="replace")) >= _DIVIDED
        if is_rest:
            return None
        # A container runtime may wrap the record of a structured logger. Only the first line of a message is certain to
        # begin with the program's own words.
        message = self._message(message) or message
        return message.lstrip("\r\n").partition("\n")[0]

    def _message(self, text: str) -> str | None:
        if not text.lstrip().startswith("{") or not any(f'"{key}"' in text for key in _KEYS):
            return None
        try:
            record = self._decoder.decode(valid_json(text))
        except (ValueError, RecursionError):
            return None
        if self._is_other(record):
            return None
        return next((value for key in _KEYS if isinstance(value := record.get(key), str)), None)
