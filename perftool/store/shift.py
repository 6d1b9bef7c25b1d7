"""Shifts the times of some ranks to a common origin."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shift:
    """An offset of ``ns`` for all times of ``ranks``."""

    ns: int
    ranks: Collection[int]

    def __bool__(self) -> bool:
        return self.ns != 0 and bool(self.ranks)

    def sql(self, column: str) -> str:
        """Return SQL for the shifted time ``column``, for rows with a column ``rank``."""
        ranks = ", ".join(map(str, sorted(self.ranks)))
        return f'CASE WHEN rank IN ({ranks}) THEN "{column}" + ({self.ns}) ELSE "{column}" END'

    def row(self, row: Mapping[str, Any], rank: int | None) -> Mapping[str, Any]:
        """Shift the times in a rule's ``row`` about ``rank``: the times of its own place and of related places."""
        if not self or rank not in self.ranks:
            return row
        return {
            **self._place(row),
            **({"related": list(map(self._place, row["related"]))} if row.get("related") else {}),
        }

    def _place(self, place: Mapping[str, Any]) -> Mapping[str, Any]:
        return place if place.get("ts") is None else {**place, "ts": place["ts"] + self.ns}


def shift_to(base_ns: int, own_base_ns: int, ranks: Collection[int]) -> Shift:
    """Return the shift that moves the origin of ``ranks`` from ``own_base_ns`` to ``base_ns``, both in ns since 1970.

    The shift is 0 if either origin is 0, because the times are then absolute.
    """
    return Shift(own_base_ns - base_ns if own_base_ns and base_ns else 0, ranks)
