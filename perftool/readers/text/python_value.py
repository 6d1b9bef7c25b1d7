"""Parses values printed with Python's ``repr``: numbers, strings, lists, tuples and dicts."""

from __future__ import annotations

import ast
import json
import re
import warnings

from perftool.model.valid_text import valid_json

# Strings, and everything that JSON writes differently: tuples, None, booleans, numeric keys. The limits bound time and
# memory: the regular expression engine stores a state for each escape, and every digit of a number could be the
# beginning of a key.
_TOKEN = re.compile(
    r"""'[^'\\]*(?:\\.[^'\\]*){0,1000}'?|"[^"\\]*(?:\\.[^"\\]*){0,1000}"?|\(|,?\)|\b(?:None|True|False)\b"""
    r"|(?<![\w.\-])-?\d{1,20}(?=:)"
)
_DECODER = json.JSONDecoder()
_IN_JSON = {"(": "[", ")": "]", ",)": "]", "None": "null", "True": "true", "False": "false"}


def parsed(text: str, decoder: json.JSONDecoder | None = None) -> object:
    """Parse ``text``. Tuples become lists, and integer keys of dicts become strings. ``decoder`` decodes the JSON that
    the text is converted to.

    Raise ValueError or RecursionError for anything else. Python's own parser would take quadratic time for some input
    (f-strings), and up to 500 times the memory for other input.
    """
    return (decoder or _DECODER).decode(valid_json(_TOKEN.sub(_as_json, text)))


def _as_json(found: re.Match[str]) -> str:
    token = found.group()
    if token[0] not in "'\"":
        return _IN_JSON.get(token) or f'"{token}"'
    if len(token) == 1 or token[-1] != token[0]:
        raise ValueError("a string is not closed")
    if "\\" not in token:
        return json.dumps(token[1:-1])
    with warnings.catch_warnings():
        # A damaged string may contain an unknown escape.
        warnings.simplefilter("ignore")
        try:
            return json.dumps(ast.literal_eval(token))
        except SyntaxError:
            raise ValueError("a string has a bad escape") from None
