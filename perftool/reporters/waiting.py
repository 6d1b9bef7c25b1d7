"""Describes which ranks wait in the process groups of a role, and how long."""

from __future__ import annotations

from collections.abc import Sequence

from perftool.model.report import GroupRole, Waiting
from perftool.units import format_ns, ranks_text

_MOST_SETS, _MOST_PIECES = 4, 4


def waiting_text(role: GroupRole) -> str:
    """Say which ranks wait, how long (as a range if many times differ), and whether all groups have equally fast
    links."""
    return f"{_times(role.waiting)}{'   even links' if role.even_links else ''}"


def _times(sets: Sequence[Waiting]) -> str:
    if len(sets) <= _MOST_SETS:
        return "   ".join(f"{ranks_text(one.ranks, _MOST_PIECES)}: {format_ns(one.ns_per_step)}" for one in sets)
    ends = (choose(sets, key=lambda one: one.ns_per_step) for choose in (min, max))
    return " to ".join(f"{format_ns(one.ns_per_step)} ({_named(one.ranks)})" for one in ends)


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {ranks_text(ranks, _MOST_PIECES)}"
