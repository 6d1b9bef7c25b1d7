"""The measured figures of the fused optimizers, as the pages of the ops show them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "fused" / "results.md"
# A comment names the rows of the results that a page shows.
SPEED = re.compile(r"(<!-- speed: (.+?) -->\n).*?(?=<!-- end of speed -->)", re.DOTALL)
SHOWN = ("op", "set", "naive/ours min / med (spread)", "verdict", "other/ours min / med (spread)")
HEAD = "| op | parameters of | the plain loop takes | | in comparison |\n|---|---|---|---|---|\n"


def rows() -> list[dict[str, str]]:
    """The rows of the tables of the results that have these columns."""
    found, columns = [], []
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            columns = []
        elif not columns:
            columns = cells
        elif set(SHOWN) <= set(columns) and not set(line) <= set("|- "):
            found.append(dict(zip(columns, cells, strict=True)))
    return found


def speed(ops: str) -> str:
    """A table of the rows of some ops, by the least of the ratios."""
    wanted = ops.split("; ")
    lines = [
        f"| {row['op']} | {row['set']} | {_least(row[SHOWN[2]])} | {row['verdict']} | {_others(row[SHOWN[4]])} |"
        for op in wanted
        for row in rows()
        if row["op"] == op
    ]
    if not lines:
        raise ValueError(f"{RESULTS.name} has no row of {ops}")
    return HEAD + "\n".join(lines) + "\n"


def _least(ratios: str) -> str:
    return f"{ratios.split(' / ')[0]} times as long"


def _others(ratios: str) -> str:
    name, _, figures = ratios.partition(": ")
    return f"{name}: {_least(figures)}" if figures else ""


def page(path: Path) -> str:
    """A page with its tables of figures as measured."""
    return SPEED.sub(lambda found: found[1] + speed(found[2]), path.read_text(encoding="utf-8"))


def pages() -> dict[str, Callable[[], str]]:
    """The pages below docs/fused by name."""
    return {f"fused/{path.name}": lambda path=path: page(path) for path in sorted((DOCS / "fused").glob("*.md"))}
