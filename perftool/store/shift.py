"""Times of some ranks, moved so that they count from the zero of the others: the only form of doing so."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shift:
    """``ns`` to add to every time of ``ranks``."""

    ns: int
    ranks: Collection[int]

    def __bool__(self) -> bool:
        return self.ns != 0 and bool(self.ranks)

    def sql(self, column: str) -> str:
        """SQL for the time ``column`` of a row that has a ``rank``, moved."""
        ranks = ", ".join(map(str, sorted(self.ranks)))
        return f'CASE WHEN rank IN ({ranks}) THEN "{column}" + ({self.ns}) ELSE "{column}" END'

    def row(self, row: Mapping[str, Any], rank: int | None) -> Mapping[str, Any]:
        """``row``, which a rule found on ``rank``, with its place and the places related to it moved."""
        if not self or rank not in self.ranks:
            return row
        return {
            **self._place(row),
            **({"related": list(map(self._place, row["related"]))} if row.get("related") else {}),
        }

    def _place(self, place: Mapping[str, Any]) -> Mapping[str, Any]:
        return place if place.get("ts") is None else {**place, "ts": place["ts"] + self.ns}


def shift_to(base_ns: int, own_base_ns: int, ranks: Collection[int]) -> Shift:
    """What makes times of ``ranks`` count from ``base_ns`` and no longer from ``own_base_ns``, both in ns since 1970.

    Nothing unless both are known: 0 is the base of times that are absolute.
    """
    return Shift(own_base_ns - base_ns if own_base_ns and base_ns else 0, ranks)
