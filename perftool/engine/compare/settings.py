"""Differences in the setup of two runs, which may change the step time even if the code is the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from perftool.model.diff import Setting


def differences(base: Setting, new: Setting) -> Iterator[str]:
    """Yield a description of each difference. Unknown values are ignored."""
    if base.device and new.device and base.device != new.device:
        yield f"the device changed from {base.device} to {new.device}"
    if base.world_size and new.world_size and base.world_size != new.world_size:
        yield f"the world size changed from {base.world_size} to {new.world_size}"
    if base.ranks and new.ranks and base.ranks != new.ranks:
        yield f"base has {named(base.ranks)}, new has {named(new.ranks)}"


def named(ranks: Collection[int]) -> str:
    """Return ``rank 3``, ``ranks 0-3`` or ``no rank``."""
    if not ranks:
        return "no rank"
    return f"rank{'s' if len(ranks) > 1 else ''} {listed(ranks)}"


def listed(ranks: Iterable[int]) -> str:
    """Return the numbers as text, with consecutive numbers as ranges: 0-3, 8."""
    stretches: list[list[int]] = []
    for rank in sorted(ranks):
        if stretches and rank == stretches[-1][-1] + 1:
            stretches[-1].append(rank)
        else:
            stretches.append([rank])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in stretches)
