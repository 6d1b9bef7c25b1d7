"""Differences in the setup of two runs, which may explain a change of step time without a change of code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perftool.model.diff import Setting


def differences(base: Setting, new: Setting) -> Iterator[str]:
    """A text for each difference; an unknown value equals any other."""
    if base.device and new.device and base.device != new.device:
        yield f"the device is {base.device}, then {new.device}"
    if base.world_size and new.world_size and base.world_size != new.world_size:
        yield f"the run has {_ranks(base.world_size)}, then {new.world_size}"
    if base.ranks and new.ranks and base.ranks != new.ranks:
        yield f"rank {listed(base.ranks)} was given, then rank {listed(new.ranks)}"


def _ranks(count: int) -> str:
    return f"{count} rank{'s' if count > 1 else ''}"


def listed(ranks: Iterable[int]) -> str:
    """The numbers, with consecutive ones as a range: 0-3, 8."""
    stretches: list[list[int]] = []
    for rank in sorted(ranks):
        if stretches and rank == stretches[-1][-1] + 1:
            stretches[-1].append(rank)
        else:
            stretches.append([rank])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in stretches)
