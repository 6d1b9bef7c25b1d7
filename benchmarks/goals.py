"""The goals for reading and analysing a trace, compared with the measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from measuring import Cost

# A file of at least this many MB counts as large or huge, which determines its memory goal.
LARGE_MB, HUGE_MB = 1000, 3000
LARGE_PEAK, HUGE_PEAK = "600", "900"
# Limits for the small tasks, in s of CPU time.
SMALL_GOALS = {"`--version`": 0.2, "`--help`": 0.2, "`analyze`, the smallest sample": 0.7}
LOG_GOAL = "50 or more"


@dataclass(frozen=True)
class Row:
    """A program and its cost, or the reason why there is no number."""

    program: str
    cost: Cost | None
    note: str = ""


@dataclass(frozen=True)
class Packed:
    """The cost of analysing a packed trace, and of unpacking it with gzip alone."""

    analysis: Cost
    gzip: Cost


@dataclass(frozen=True)
class Results:
    """Every program's cost on one file of ``megabytes``."""

    megabytes: float
    rows: Sequence[Row]
    packed: Packed | None = None

    def cost(self, program: str) -> Cost | None:
        """Return the cost of ``program``, or None if it was not measured."""
        return next((row.cost for row in self.rows if row.program == program), None)


def goal_table(
    found: Mapping[tuple[Path, float], Results],
    peers: Sequence[str],
    small: Mapping[str, Cost],
    logs: Mapping[str, float],
) -> str:
    """Return a table of goals and measurements; ``found`` are results by source and size in MB, ``logs`` are MB/s."""
    sources, sizes = list(dict.fromkeys(source for source, _ in found)), sorted({size for _, size in found})
    first = sizes[0]

    def each(cell: Callable[[Path], str]) -> list[str]:
        return [cell(source) for source in sources]

    rows = [(f"analysis / json, {first:g} MB, CPU", "0.45", each(lambda s: over(found[s, first], "perftool", "json")))]
    for peer in peers:
        cells = each(lambda s, peer=peer: over(found[s, first], peer, "perftool"))  # type: ignore[misc]
        rows.append((f"{peer} / analysis, {first:g} MB, CPU", "10 or more", cells))
    rows.append((f"wall time / CPU time, {first:g} MB", "0.65", each(lambda s: wall_share(found[s, first]))))
    for size in sizes[1:]:
        cells = each(lambda s, size=size: growth(found[s, first], found[s, size]))  # type: ignore[misc]
        rows.append((f"CPU time per MB, {size:g} MB / {first:g} MB", "1.0", cells))
    for size in sizes:
        if size >= LARGE_MB:
            goal = LARGE_PEAK if size < HUGE_MB else HUGE_PEAK
            cells = each(lambda s, size=size: peak(found[s, size]))  # type: ignore[misc]
            rows.append((f"peak memory, {size:g} MB, MiB", goal, cells))
    rows.append((f"packed / (plain + `gzip -dc`), {first:g} MB, CPU", "1.3", each(lambda s: packed(found[s, first]))))
    for name, cost in small.items():
        rows.append((f"{name}, CPU s", str(SMALL_GOALS[name]), [f"{cost.cpu:.2f}"] * len(sources)))
    for kind, rate in logs.items():
        rows.append((f"{kind}, MB per CPU s", LOG_GOAL, [f"{rate:.0f}"] * len(sources)))
    names = [short(source) for source in sources]
    lines = [f"| what | goal | {' | '.join(names)} |", "|---|--:|" + "--:|" * len(names)]
    return "\n".join([*lines, *(f"| {what} | {goal} | {' | '.join(cells)} |" for what, goal, cells in rows)])


def packed(results: Results) -> str:
    """Return the CPU time for a packed trace, as a multiple of the time to unpack it and analyse the plain trace."""
    cost = results.cost("perftool")
    if cost is None or results.packed is None:
        return "-"
    return f"{results.packed.analysis.cpu / (cost.cpu + results.packed.gzip.cpu):.2f}"


def short(source: Path) -> str:
    """Return the name of a trace without its suffix."""
    return source.name.removesuffix(".gz").removesuffix(".json")


def over(results: Results, program: str, other: str) -> str:
    """Return the CPU time of ``program`` as a multiple of that of ``other``."""
    one, two = results.cost(program), results.cost(other)
    return f"{one.cpu / two.cpu:.2f}" if one and two else "-"


def wall_share(results: Results) -> str:
    """Return the wall time of the analysis divided by its CPU time."""
    cost = results.cost("perftool")
    return f"{cost.wall / cost.cpu:.2f}" if cost else "-"


def growth(small: Results, large: Results) -> str:
    """Return the CPU time per MB of a large file, as a multiple of that of a small file."""
    one, two = small.cost("perftool"), large.cost("perftool")
    return f"{two.cpu / large.megabytes / (one.cpu / small.megabytes):.2f}" if one and two else "-"


def peak(results: Results) -> str:
    """Return the peak memory of the analysis in MiB."""
    cost = results.cost("perftool")
    return f"{cost.peak / 2**20:.0f}" if cost else "-"
