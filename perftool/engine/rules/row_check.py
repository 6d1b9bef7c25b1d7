"""Validates the rows of third-party rules before they are used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from perftool.errors import QueryError

# The maximum number of examples that a finding may refer to.
MOST_RELATED = 100
# Columns that only the engine may add. They are removed from the rows of third-party rules.
_OURS = ("predicted_ns", "tried_ns", "sources")
_WHOLE = ("rank", "step", "ts", "dur")
_TEXTS = ("track", "benchmark", "fix", "fix_for", "short_fix")
_LARGEST = 1 << 63


def checked(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Remove reserved columns from ``rows``. Raise QueryError for invalid values in columns that the engine uses."""
    return [_checked(row) for row in rows]


def whole(name: str, value: Any) -> int | None:
    """Return ``value`` of the column ``name`` as a 64-bit integer, or None. Raise QueryError for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise QueryError(f"the column {name} must contain whole numbers, not {_shown(value)}")
    # NaN fails this comparison too.
    if not -_LARGEST <= value < _LARGEST:
        raise QueryError(f"the column {name} contains {_shown(value)}, which is beyond 64 bits")
    return int(value)


def _checked(row: Mapping[str, Any]) -> dict[str, Any]:
    if row.get("subject") is None:
        raise QueryError("the query must return a subject in every row")
    found = {key: value for key, value in row.items() if key not in _OURS}
    found |= {name: whole(name, row[name]) for name in _WHOLE if name in row}
    for name in _TEXTS:
        if not isinstance(row.get(name), (str, type(None))):
            raise QueryError(f"the column {name} must contain strings, not {_shown(row[name])}")
    for name in ("gain_ns", "main_ratio"):
        if row.get(name) is not None and not _is_number(row[name]):
            raise QueryError(f"the column {name} must contain numbers, not {_shown(row[name])}")
    if row.get("related") is not None:
        found["related"] = _related(row["related"])
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) and math.isfinite(value)


def _related(places: Any) -> list[dict[str, Any]]:
    if not isinstance(places, list) or not all(isinstance(place, dict) for place in places):
        raise QueryError("the column 'related' must contain lists of structs")
    if len(places) > MOST_RELATED:
        raise QueryError(f"the column 'related' contains {len(places):,} places; at most {MOST_RELATED} are allowed")
    for name in ("name", "track"):
        if not all(isinstance(place.get(name), (str, type(None))) for place in places):
            raise QueryError(f"in the column 'related', {name} must be a string")
    return [{**place, **{name: whole(name, place.get(name)) for name in ("step", "ts", "dur")}} for place in places]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
