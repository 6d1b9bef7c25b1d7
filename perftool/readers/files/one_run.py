"""Whether traces are the ranks of one run, and which runs they are of when they are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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


@dataclass
class _Known:
    """What the traces of a run say together, so that one more is compared with all at once.

    ``span_ns`` are the first and the last of their starts, where any says one.
    """

    files: list[str] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    device: str | None = None
    world_size: int | None = None
    span_ns: tuple[int, ...] = ()

    def may_hold(self, trace: Identity) -> bool:
        """Whether nothing that ``trace`` says contradicts what is known. A run of one rank has no other."""
        differs = (
            trace.device is not None and self.device not in (None, trace.device),
            trace.world_size is not None and self.world_size not in (None, trace.world_size),
            1 in (trace.world_size, self.world_size),
            trace.rank in self.ranks,
            trace.start_ns is not None and any(abs(trace.start_ns - other) > _APART_NS for other in self.span_ns),
        )
        return not any(differs)

    def add(self, trace: Identity) -> None:
        """``trace`` is of this run."""
        self.files.append(trace.path)
        self.device = self.device or trace.device
        self.world_size = self.world_size if trace.world_size is None else trace.world_size
        if trace.rank is not None:
            self.ranks.add(trace.rank)
        if trace.start_ns is not None:
            starts = (*self.span_ns, trace.start_ns)
            self.span_ns = (min(starts), max(starts))


def list_runs(traces: Sequence[str]) -> tuple[FoundRun, ...]:
    """The runs that ``traces`` are of, each with its files.

    Two traces are of different runs when they name different devices or world sizes, are of the same rank, or began
    ten minutes apart; one of a world of one is alone. What a trace does not say contradicts nothing.
    """
    runs: list[_Known] = []
    for trace in map(identify, traces):
        own = next((run for run in runs if run.may_hold(trace)), None)
        if own is None:
            runs.append(own := _Known())
        own.add(trace)
    return tuple(FoundRun(tuple(run.files), run.device, run.world_size) for run in runs)


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
