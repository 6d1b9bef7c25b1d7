"""Predicted against measured: the tables of docs/gains.md, from pairs of traces before and after a fix.

usage: python docs/calibrate.py                        the pairs of sample_traces/benchmarks
       python docs/calibrate.py --record [NAMES]...    pairs recorded now, by rounds; needs PyTorch
       python docs/calibrate.py BEFORE AFTER CODE...   pairs of yours
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perftool import Report, analyze
from perftool.engine.rules.pack import builtin_folder, load_pack

PAIRS = Path(__file__).parent.parent / "sample_traces" / "benchmarks"
HEAD = "| pair | rule | before | bound | predicted | after | error, of the step before |\n|---|---|---|---|---|---|---|"
# A step of the second form is another one: more samples, or it waits for other ranks.
NOT_ONE_STEP = {"batch_size"}
ROUNDS = 3


@dataclass(frozen=True)
class Pair:
    """Traces before and after the fix of ``code``; ``ratio`` is how many times shorter the step measured afterwards."""

    name: str
    before: Sequence[str]
    after: Sequence[str]
    code: str
    ratio: float | None = None


@dataclass(frozen=True)
class Row:
    """A line of the table, in ms; None where nothing is said."""

    name: str
    code: str
    before: float
    bound: float | None
    predicted: float | None
    after: float
    simulated: bool

    @property
    def error(self) -> float | None:
        """How far the prediction is off, as a share of the step before."""
        return None if self.predicted is None else abs(self.predicted - self.after) / self.before

    def __str__(self) -> str:
        error = "" if self.error is None else f"{100 * self.error:.1f} %"
        cells = [self.name, self.code, *map(_ms, (self.before, self.bound, self.predicted, self.after)), error]
        return f"| {' | '.join(cells)} |"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def row(pair: Pair) -> Row:
    """What the first form promises, and what the second shows."""
    first, second = _report(tuple(pair.before)), _report(tuple(pair.after))
    was, now = _step_ms(first), _step_ms(second)
    gains = [found.gain for found in first.findings if found.code == pair.code and found.gain]
    bound = max((gain.most for gain in gains), default=None)
    predicted = max((gain.share_of_step for gain in gains if gain.kind == "predicted"), default=None)
    return Row(
        pair.name,
        pair.code,
        was,
        None if bound is None else was * (1 - bound),
        None if predicted is None else was * (1 - predicted),
        now if pair.ratio is None else was / pair.ratio,
        any(issue.kind == "simulated" for read in first.inputs for issue in read.issues),
    )


@cache
def _report(paths: tuple[str, ...]) -> Report:
    """Several rules may speak of one pair."""
    return analyze(paths)


def _step_ms(report: Report) -> float:
    return report.summary["step_time_ms"].value or 0.0


def shipped() -> Iterator[Pair]:
    """The pairs of the repository, once for each rule whose advice the second form follows."""
    for rule in load_pack(builtin_folder()):
        folder = PAIRS / str(rule.benchmark)
        if rule.benchmark and folder.exists() and rule.benchmark not in NOT_ONE_STEP:
            yield Pair(rule.benchmark, *_forms(folder), rule.code)


def _forms(folder: Path) -> tuple[list[str], list[str]]:
    single = folder / "naive.json.gz"
    forms = (single, folder / "advised.json.gz") if single.exists() else (folder / "naive", folder / "advised")
    return [str(forms[0])], [str(forms[1])]


def recorded(names: Sequence[str]) -> Iterator[Row]:
    """The benchmarks ``names``, or all that a CPU can show, recorded ``ROUNDS`` times; the round of median error."""
    from perftool.bench import benchmark_names, find_benchmark
    from perftool.bench.harness.launch import Plan
    from perftool.proof import leave_traces

    codes = {rule.code for rule in load_pack(builtin_folder()) if rule.whatif}
    for name in names or benchmark_names():
        benchmark = find_benchmark(name)
        if benchmark.script is not None or benchmark.unavailable() or not codes & set(benchmark.rules):
            continue
        rounds: dict[str, list[Row]] = {}
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as folder:
                left = leave_traces(benchmark, "cpu", Plan.of(quick=True), Path(folder))
                files = [[str(path) for path in left.files[form]] for form in ("naive", "advised")]
                ratio = left.ratio.value if left.ratio else None
                for code in sorted(codes & set(benchmark.rules)):
                    rounds.setdefault(code, []).append(row(Pair(name, *files, code, ratio)))
                    print(rounds[code][-1], file=sys.stderr, flush=True)
        for made in rounds.values():
            yield sorted(made, key=lambda one: (one.error is None, one.error or 0.0))[len(made) // 2]


def show(title: str, rows: Sequence[Row]) -> None:
    """Print a table, and the median and the worst error."""
    if not rows:
        return
    print(f"{title} (times in ms)\n\n{HEAD}")
    print("\n".join(map(str, rows)))
    errors = [one.error for one in rows if one.error is not None]
    if errors:
        median, worst = statistics.median(errors), max(errors)
        print(
            f"\n{len(errors)} predictions: median error {100 * median:.1f} %, worst {100 * worst:.1f} % of the step.\n"
        )


def main(arguments: list[str]) -> int:
    """Print the tables, simulated pairs apart."""
    if arguments[:1] == ["--record"]:
        rows = list(recorded(arguments[1:]))
    elif arguments:
        parts = [arguments[at : at + 3] for at in range(0, len(arguments) - 2, 3)]
        rows = [row(Pair(Path(before).name, [before], [after], code)) for before, after, code in parts]
    else:
        # A rule that is silent about the pair says nothing of it.
        rows = [one for one in map(row, shipped()) if one.bound is not None or one.predicted is not None]
    show("Recorded", [one for one in rows if not one.simulated])
    show("Simulated", [one for one in rows if one.simulated])
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
