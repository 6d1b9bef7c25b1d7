"""Whether traces are the ranks of one run, and which runs they are of when they are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perftool.errors import InputError
from perftool.readers.files.identity import Identity, identify
from perftool.readers.files.stream import reads_once
from perftool.units import NS_PER_S

# The ranks of a run record the same steps; no clock of a cluster is this far off.
_APART_NS = 600 * NS_PER_S
_MOST_LISTED = 20


@dataclass(frozen=True)
class FoundRun:
    """Traces that can be the ranks of one run, in the order given, and what they say of it."""

    files: tuple[str, ...]
    device: str | None
    world_size: int | None

    def __str__(self) -> str:
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        facts = [self.device, None if self.world_size is None else f"world size {self.world_size}"]
        known = ", ".join(fact for fact in facts if fact)
        return f"{self.files[0]}{more}{f' ({known})' if known else ''}"


def list_runs(traces: Sequence[str]) -> tuple[FoundRun, ...]:
    """The runs that ``traces`` are of, each with its files.

    Two traces are of different runs when they name different devices or world sizes, are of the same rank, or began
    ten minutes apart; one of a world of one is alone. What a trace does not say contradicts nothing.
    """
    runs: list[list[Identity]] = []
    for trace in map(identify, traces):
        own = next((run for run in runs if not any(_differ(trace, other) for other in run)), None)
        if own is None:
            runs.append([trace])
        else:
            own.append(trace)
    return tuple(map(_described, runs))


def require_one_run(traces: Sequence[str]) -> None:
    """Raise InputError, which lists the runs, when ``traces`` are of several."""
    if len(traces) < 2 or any(map(reads_once, traces)):
        return
    runs = list_runs(traces)
    if len(runs) < 2:
        return
    lines = [f"  {number}. {run}" for number, run in enumerate(runs[:_MOST_LISTED], 1)]
    if len(runs) > _MOST_LISTED:
        lines.append(f"  and {len(runs) - _MOST_LISTED} more")
    ways = "name the files of one, look at --each trace, or join them with --as-one-run"
    text = f"these {len(traces)} traces are of {len(runs)} runs; {ways}:"
    raise InputError("\n".join([text, *lines]))


def _differ(one: Identity, other: Identity) -> bool:
    apart = one.start_ns is not None and other.start_ns is not None and abs(one.start_ns - other.start_ns) > _APART_NS
    pairs = ((one.device, other.device), (one.world_size, other.world_size))
    # A run of one rank has no other.
    named = 1 in (one.world_size, other.world_size) or any(
        mine is not None and yours is not None and mine != yours for mine, yours in pairs
    )
    return apart or named or (one.rank is not None and one.rank == other.rank)


def _described(run: Sequence[Identity]) -> FoundRun:
    return FoundRun(
        files=tuple(trace.path for trace in run),
        device=next((trace.device for trace in run if trace.device), None),
        world_size=next((trace.world_size for trace in run if trace.world_size), None),
    )
