"""The measured figures of the fused optimizers, as the pages of the ops show them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "fused" / "results.md"
# A comment names the rows of the results that a page shows.
SPEED = re.compile(r"(<!-- speed: (.+?) -->\n).*?(?=<!-- end of speed -->)", re.DOTALL)
RATIOS = ("naive/ours", "other/ours", "naive/native", "other/native")
HEAD = (
    "How many times as long others take: the plain loop, and PyTorch's own (`fused=True`; for clipping\n"
    '`foreach=True`; for clipping with a step the step alone). `native` is `backend="native"`.\n\n'
    "| op | parameters of | plain loop / ours | PyTorch / ours | plain loop / native | PyTorch / native |\n"
    "|---|---|---|---|---|---|\n"
)


def rows() -> list[dict[str, str]]:
    """The rows of the tables of the results that have these columns."""
    found, columns = [], []
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            columns = []
        elif not columns:
            columns = cells
        elif set(RATIOS) <= set(columns) and not set(line) <= set("|- "):
            found.append(dict(zip(columns, cells, strict=True)))
    return found


def speed(ops: str) -> str:
    """A table of the rows of some ops, by the least of the ratios."""
    lines = [
        f"| {' | '.join([row['op'], row['set'], *(_least(row[each]) for each in RATIOS)])} |"
        for op in ops.split("; ")
        for row in rows()
        if row["op"] == op
    ]
    if not lines:
        raise ValueError(f"{RESULTS.name} has no row of {ops}")
    return HEAD + "\n".join(lines) + "\n"


def _least(ratios: str) -> str:
    return ratios.split(" / ")[0]


def page(path: Path) -> str:
    """A page with its tables of figures as measured."""
    return SPEED.sub(lambda found: found[1] + speed(found[2]), path.read_text(encoding="utf-8"))


def pages() -> dict[str, Callable[[], str]]:
    """The pages below docs/fused by name."""
    return {f"fused/{path.name}": lambda path=path: page(path) for path in sorted((DOCS / "fused").glob("*.md"))}
