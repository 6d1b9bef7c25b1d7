"""Decodes JSON, and notes objects with a duplicate key. The standard decoder silently keeps only the last value."""

from __future__ import annotations

import json
from typing import Any

from perftool.readers.text.issue_tally import IssueTally


def decoder_of_unique(tally: IssueTally) -> json.JSONDecoder:
    """Return a decoder that reports to ``tally`` each object with a duplicate key."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            tally.note("key twice", "an object has a key twice, so one of its values is not used")
        return found

    return json.JSONDecoder(object_pairs_hook=members)
