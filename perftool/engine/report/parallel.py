"""The parallelism of a run: the roles of its process groups, and which ranks wait in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from perftool.model.report import Finding, GroupRole, Waiting
from perftool.store.trace_store import TraceStore
from perftool.units import ranks_text

# Waiting times are similar if they differ by at most 10 %, or 0.1 ms.
_ALIKE, _ALIKE_NS = 0.1, 100_000
# A rank counts as waiting for a late rank if its waiting time is at least this share of the late rank's delay.
_PASSED_ON = 0.5
_STRAGGLER = "COL103"
# Links are even if the transfer times of groups differ by at most this share.
_EVEN = 0.1


def group_roles(store: TraceStore) -> tuple[GroupRole, ...]:
    """Return the roles of the process groups; roles whose groups consist of neighbouring ranks come first."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in store.rows("process_groups"):
        groups[row["role"]].append(row)
    waits: dict[str, dict[int, int]] = defaultdict(dict)
    for row in store.rows("arrivals") if groups else ():
        waits[row["role"]][row["rank"]] = row["exposed_ns"]
    roles = [
        GroupRole(
            role=role,
            size=max(len(row["ranks"]) for row in rows),
            groups=len({tuple(row["ranks"]) for row in rows}),
            named=rows[0]["named"],
            wire_ns=max(_wires(rows)),
            waiting=_alike(waits[role]),
            even_links=_are_even(_wires(rows)),
        )
        for role, rows in groups.items()
    ]
    return tuple(sorted(roles, key=lambda role: (_stride(groups[role.role]), role.role)))


def parallel_text(store: TraceStore, roles: Sequence[GroupRole], ranks: int) -> str | None:
    """Return how the work is split among ``ranks`` ranks, such as ``tp 4 x dp 2``, or None if the groups do not show
    it.

    A role splits the ranks if its groups are equally large and contain each rank once.
    """
    sets: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for row in store.rows("process_groups"):
        sets[row["role"]].add(tuple(row["ranks"]))
    even = [role for role in roles if _splits(sets[role.role], ranks)]
    # A group of all ranks is not a split if there are other groups.
    split = [role for role in even if role.groups > 1] or even[:1]
    sizes = [f"{role.role} {role.size}" for role in split]
    if not sizes or (len(split) == 1 and not split[0].named):
        return None
    return (" x " if prod(role.size for role in split) == ranks else ", ").join(sizes)


def passed_on(store: TraceStore, findings: Sequence[Finding]) -> str:
    """Return a sentence about ranks that wait for a late rank in one role and so delay others in another role;
    otherwise, return an empty string.

    The first finding must have a predicted gain, because only a replay proves that the late rank causes the waiting.
    """
    first = next((found for found in findings if found.advice), None)
    if first is None or first.code != _STRAGGLER or not first.gain or first.gain.kind != "predicted":
        return ""
    late = first.late_ranks
    if len(late) != 1:
        return ""
    waits = {(row["role"], row["rank"]): row["exposed_ns"] for row in store.rows("arrivals")}
    least = _PASSED_ON * first.evidence["late_ns"]
    # Each set of ranks is examined once, because a run may have thousands of groups.
    groups = [*dict.fromkeys((row["role"], frozenset(row["ranks"])) for row in store.rows("process_groups"))]
    for role, mates in ((role, ranks - set(late)) for role, ranks in groups if late[0] in ranks):
        if not mates or any(waits.get((role, rank), 0) < least for rank in mates):
            continue
        # Look for another role in which these ranks do not wait, but other ranks in each of their groups do.
        others = {name for name, ranks in groups if name != role and ranks & mates}
        for other in sorted(others):
            shared_groups = [ranks for name, ranks in groups if name == other and ranks & mates]
            waiting = all(
                any(waits.get((other, rank), 0) >= least for rank in ranks - mates) for ranks in shared_groups
            )
            if (
                waiting
                and mates <= set().union(*shared_groups)
                and all(waits.get((other, rank), 0) < least for rank in mates)
            ):
                ranks, are = ranks_text(sorted(mates)), ("Ranks", "are", "they wait")
                noun, verb, wait = are if len(mates) > 1 else ("Rank", "is", "it waits")
                return f"{noun} {ranks} {verb} late in {other} only because {wait} for rank {late[0]} in {role}."
    return ""


def _splits(groups: set[tuple[int, ...]], ranks: int) -> bool:
    members = [rank for group in groups for rank in group]
    return len({len(group) for group in groups}) == 1 and len(members) == len(set(members)) == ranks


def _stride(rows: Sequence[Mapping[str, Any]]) -> int:
    """Return the mean distance between neighbouring ranks in a group, or a large number for a role with a single group,
    so that it comes last."""
    ranks = rows[0]["ranks"]
    return int(ranks[-1] - ranks[0]) // max(1, len(ranks) - 1) if len(rows) > 1 else 1 << 30


def _wires(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the transfer time per step of each group, in ns. If a group has several names, their times are added
    up.
    """
    sums: dict[tuple[int, ...], int] = defaultdict(int)
    for row in rows:
        sums[tuple(row["ranks"])] += row["wire_ns"]
    return list(sums.values())


def _are_even(wires: Sequence[int]) -> bool:
    return len(wires) > 1 and min(wires) > 0 and max(wires) - min(wires) <= _EVEN * max(wires)


def _alike(waits: Mapping[int, int]) -> tuple[Waiting, ...]:
    """Return the sets of ranks with similar waiting times, ordered by lowest rank."""
    sets: list[list[int]] = []
    least = 0
    for rank in sorted(waits, key=lambda one: (waits[one], one)):
        ns = waits[rank]
        if not sets or ns - least > max(_ALIKE_NS, _ALIKE * ns):
            sets.append([])
            least = ns
        sets[-1].append(rank)
    alike = [Waiting(tuple(sorted(ranks)), sum(waits[rank] for rank in ranks) // len(ranks)) for ranks in sets]
    return tuple(sorted(alike, key=lambda one: one.ranks))
