"""Answers for simulated runs with a known culprit: who is named, and the cost compared with the run without it.

``python benchmarks/culprits.py [RANKS [NAME ...]]`` prints a table for docs/scale.md, of the runs whose name contains
one of the given texts.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.cluster import Layout, Trouble, simulate

from perftool.engine.analysis import analyze

KINDS = ("ddp", "tp", "pp", "ep", "hsdp")


def cases(ranks: int) -> Iterator[tuple[str, Layout, list[Trouble]]]:
    """What each run is called, how it is parallel, and what is wrong with it."""
    size = 4 if ranks < 16 else 8
    for kind in KINDS:
        layout = Layout(kind, ranks, size, layers=6 if ranks < 16 else 2)
        yield f"{kind}, nothing", layout, []
        yield f"{kind}, slow device", layout, [Trouble("device", (ranks - 2,), 1.3)]
        yield f"{kind}, slow loader", layout, [Trouble("loader", (2,), 9_000.0)]
        yield f"{kind}, more tokens", layout, [Trouble("tokens", (5,), 1.25)]
        yield f"{kind}, pauses", layout, [Trouble("pause", (2,), 20_000.0, every=2, first=1)]
        yield f"{kind}, checkpoint", layout, [Trouble("save", (0,), 30_000.0, every=4, first=2)]
        yield f"{kind}, two loaders", layout, [Trouble("loader", (2, 5), 9_000.0)]
        if kind == "pp":
            yield "pp, slow stage", layout, [Trouble("device", layout.outer(ranks // 2).ranks, 1.3)]
        elif kind != "ddp":
            yield f"{kind}, slow links", layout, [Trouble("link", layout.inner(ranks // 2).ranks, 4.0)]
        if ranks > 8:
            yield f"{kind}, slow host", layout, [Trouble("device", tuple(range(8, 16)), 1.3)]


@cache
def truth(layout: Layout) -> float:
    """What a step takes without any trouble, in us."""
    return simulate(layout).step_us


def main() -> None:
    """Print the table."""
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    print("| run | costs | said | first sentence |\n|---|---|---|---|")
    for name, layout, troubles in cases(ranks):
        if sys.argv[2:] and not any(part in name for part in sys.argv[2:]):
            continue
        run = simulate(layout, troubles)
        cost_us = run.step_us - truth(layout)
        with tempfile.TemporaryDirectory() as folder:
            run.write(Path(folder))
            # The simulation of hundreds of ranks takes more memory than their analysis.
            del run
            report = analyze([folder])
        first = next(iter(report.findings), None)
        blamed = first is not None and first.code in ("COL103", "COL109", "COL110", "COL111", "COL112")
        gain = f"{first.gain.ns_per_step / 1e6:.2f} ms" if first and blamed and first.gain else "-"
        said = report.verdict.headline.split(":")[0] if blamed else "nobody is named"
        print(f"| {name} | {cost_us / 1e3:.2f} ms | {gain} | {said} |", flush=True)


if __name__ == "__main__":
    main()
