"""Compares reports on simulated runs with the truth: the culprit that they name, and the cost that they report.

``python benchmarks/culprits.py [RANKS [NAME ...]]`` prints the first table of benchmarks/culprits.md, for the runs
whose names contain one of the given strings. ``python benchmarks/culprits.py hard [NAME ...]`` prints the table of the
8-rank runs that have incomplete recordings, drifting clocks, or two culprits.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.cluster import Layout, Trouble, simulate

from perftool.engine.analysis import analyze

KINDS = ("ddp", "tp", "pp", "ep", "hsdp")


NAMED = re.compile(r"\b(ranks? [\d, and-]*\d|links between ranks [\d, -]*\d)(?= keeps?| are)")
BLAMING = ("COL103", "COL109", "COL110", "COL111", "COL112", "COL116")


@dataclass(frozen=True)
class Case:
    """A run of ``layout`` with ``troubles``; ``left`` selects which part of the recording is kept."""

    name: str
    layout: Layout
    troubles: tuple[Trouble, ...] = ()
    steps: int = 5
    left: Mapping[str, Any] = field(default_factory=dict)


def cases(ranks: int) -> Iterator[Case]:
    """Runs of ``ranks`` ranks, with complete recordings."""
    size = 4 if ranks < 16 else 8
    for kind in KINDS:
        layout = Layout(kind, ranks, size, layers=6 if ranks < 16 else 2)
        yield Case(f"{kind}, nothing", layout)
        yield Case(f"{kind}, slow device", layout, (Trouble("device", (ranks - 2,), 1.3),))
        yield Case(f"{kind}, slow loader", layout, (Trouble("loader", (2,), 9_000.0),))
        yield Case(f"{kind}, more tokens", layout, (Trouble("tokens", (5,), 1.25),))
        yield Case(f"{kind}, pauses", layout, (Trouble("pause", (2,), 20_000.0, every=2, first=1),))
        yield Case(f"{kind}, checkpoint", layout, (Trouble("save", (0,), 30_000.0, every=4, first=2),))
        yield Case(f"{kind}, two loaders", layout, (Trouble("loader", (2, 5), 9_000.0),))
        if kind == "pp":
            yield Case("pp, slow stage", layout, (Trouble("device", layout.outer(ranks // 2).ranks, 1.3),))
        elif kind != "ddp":
            yield Case(f"{kind}, slow links", layout, (Trouble("link", layout.inner(ranks // 2).ranks, 4.0),))
        if ranks > 8:
            yield Case(f"{kind}, slow host", layout, (Trouble("device", tuple(range(8, 16)), 1.3),))


def hard_cases() -> Iterator[Case]:
    """Runs of 8 ranks with drifting clocks, missing or truncated ranks, two troubles together, or small kernels."""
    device, loader = Trouble("device", (6,), 1.3), Trouble("loader", (2,), 9_000.0)
    both = (Trouble("device", (2,), 1.3), Trouble("loader", (5,), 9_000.0))
    pause, links = Trouble("pause", (1,), 20_000.0, every=4, first=1), Trouble("link", (4, 5, 6, 7), 4.0)
    drift, missing, cut = {"drift": 1e-4}, {"leave_out": [3]}, {"kept": {3: 0.6}}
    for kind in KINDS:
        layout, small = Layout(kind), Layout(kind, scale=0.3)
        yield Case(f"{kind}, clocks drift, nothing", layout, left=drift)
        yield Case(f"{kind}, clocks drift, slow device", layout, (device,), left=drift)
        yield Case(f"{kind}, clocks drift, slow loader", layout, (loader,), left=drift)
        yield Case(f"{kind}, rank 3 missing, nothing", layout, left=missing)
        yield Case(f"{kind}, rank 3 missing, slow device", layout, (device,), left=missing)
        yield Case(f"{kind}, rank 3 missing, slow loader", layout, (loader,), left=missing)
        yield Case(f"{kind}, culprit missing, slow loader", layout, (loader,), left={"leave_out": [2]})
        yield Case(f"{kind}, rank 3 truncated, nothing", layout, left=cut)
        yield Case(f"{kind}, rank 3 truncated, slow device", layout, (device,), left=cut)
        yield Case(f"{kind}, culprit truncated, slow loader", layout, (loader,), left={"kept": {2: 0.6}})
        yield Case(f"{kind}, device and loader", layout, both)
        if kind not in ("ddp", "pp"):
            yield Case(f"{kind}, pauses and links", layout, (pause, links), steps=9)
        yield Case(f"{kind}, small kernels, nothing", small)
        yield Case(f"{kind}, slow host program", small, (Trouble("host", (3,), 12.0),))


@cache
def truth(layout: Layout, steps: int) -> float:
    """Return the time of a step without any trouble, in us."""
    return simulate(layout, steps=steps).step_us


@dataclass(frozen=True)
class Answer:
    """The true cost of a run's troubles compared with a healthy run, and the report's gains and first sentence."""

    name: str
    costs: str
    gains: str
    begin: str


def answer_for(case: Case) -> Answer:
    """Simulate the run of ``case`` and analyse it."""
    run = simulate(case.layout, case.troubles, case.steps)
    costs = f"{(run.step_us - truth(case.layout, case.steps)) / 1e3:.2f}"
    with tempfile.TemporaryDirectory() as folder:
        run.write(Path(folder), **case.left)
        # The simulation of hundreds of ranks takes more memory than the analysis.
        del run
        report = analyze([folder])
    blamed = [found for found in report.findings if found.code in BLAMING and found.gain]
    if not blamed or report.findings[0] is not blamed[0]:
        return Answer(case.name, costs, "-", "nobody is named")
    gains = " + ".join(
        f"{'≤ ' if found.gain.kind == 'bound' else ''}{found.gain.ns_per_step / 1e6:.2f}"
        for found in blamed if found.gain
    )  # fmt: skip
    return Answer(case.name, costs, gains, re.sub(r":.*?[.](?= [A-Z]|$)", ".", report.verdict.headline).rstrip("."))


def print_each(answers: Iterable[Answer]) -> None:
    """Print a row for each run."""
    print("| run | true cost | reported | first sentence |\n|---|---|---|---|")
    for answer in answers:
        gains = " + ".join(f"{gain} ms" for gain in answer.gains.split(" + ")) if answer.gains != "-" else "-"
        print(f"| {answer.name} | {answer.costs} ms | {gains} | {answer.begin} |", flush=True)


def print_by_kind(answers: Iterable[Answer]) -> None:
    """Print a row for each trouble, with a column for each kind of parallelism: reported and true cost, in ms."""
    rows: dict[str, dict[str, Answer]] = {}
    for answer in answers:
        kind, trouble = answer.name.split(", ", 1)
        rows.setdefault(trouble, {})[kind] = answer
    print(f"| run | named | {' | '.join(KINDS)} |\n|---|---|{'---|' * len(KINDS)}")
    for trouble, cells in rows.items():
        # Answers that name the same culprits in a different order count as equal.
        named = {tuple(sorted(NAMED.findall(answer.begin.lower()))) for answer in cells.values()}
        who = "; ".join(" and ".join(names) or "nobody" for names in sorted(named))
        print(f"| {trouble} | {who} | {' | '.join(_cell(cells.get(kind)) for kind in KINDS)} |")


def _cell(answer: Answer | None) -> str:
    if answer is None:
        return ""
    return answer.gains if answer.gains == "-" else f"{answer.gains} of {answer.costs}"


def main() -> None:
    """Print the answers for the chosen cases."""
    hard = sys.argv[1:2] == ["hard"]
    chosen = hard_cases() if hard else cases(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
    wanted = [case for case in chosen if not sys.argv[2:] or any(part in case.name for part in sys.argv[2:])]
    (print_by_kind if hard else print_each)(answer_for(case) for case in wanted)


if __name__ == "__main__":
    main()
