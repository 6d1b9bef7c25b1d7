"""Compares predicted with measured gains: the tables of docs/gains.md, from pairs of traces before and after a fix.

usage: python tools/docs/calibrate.py [--record [NAME]...] [--pair BEFORE AFTER CODE]... [--write]

--record records pairs on this CPU (this requires PyTorch, and takes minutes for each pair), and --pair adds your own
pair; the results are saved in benchmarks/calibration.json. The other pairs come from sample_traces/benchmarks, with one
recording each. --write puts the tables into docs/gains.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from perftool import Report, analyze
from perftool.engine.rules.pack import builtin_folder, load_pack

ROOT = Path(__file__).parents[2]
PAIRS = ROOT / "sample_traces" / "benchmarks"
HEAD = (
    "| pair | rule | before | bound | predicted | after | error, % of the original step time |\n"
    "|---|---|---|---|---|---|---|"
)
PAGE = ROOT / "docs" / "gains.md"
KEPT = ROOT / "benchmarks" / "calibration.json"
BEGIN, END = "<!-- calibrate: begin -->\n", "<!-- calibrate: end -->"
# Benchmarks whose forms do different work per step, so that their steps cannot be compared.
NOT_ONE_STEP = {"batch_size"}
ROUNDS = 3


@dataclass(frozen=True)
class Pair:
    """Traces before and after the fix of ``code``; ``ratio`` is the step time before the fix divided by the time after
    it."""

    name: str
    before: Sequence[str]
    after: Sequence[str]
    code: str
    ratio: float | None = None


@dataclass(frozen=True)
class Row:
    """A row of the table, in ms; None if the report contains no number."""

    name: str
    code: str
    before: float
    bound: float | None
    predicted: float | None
    after: float
    simulated: bool

    @property
    def error(self) -> float | None:
        """The error of the prediction, as a share of the original step time."""
        return None if self.predicted is None else abs(self.predicted - self.after) / self.before

    def __str__(self) -> str:
        error = "" if self.error is None else f"{100 * self.error:.1f} %"
        cells = [self.name, self.code, *map(_ms, (self.before, self.bound, self.predicted, self.after)), error]
        return f"| {' | '.join(cells)} |"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def row(pair: Pair) -> Row:
    """Return the row of ``pair``: the step time before the fix, the step times that the report then promised, and the
    step time after the fix."""
    first, second = _read(pair.before), _read(pair.after)
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


def _read(paths: Sequence[str]) -> Report:
    return _report(tuple(paths))


@cache
def _report(paths: tuple[str, ...]) -> Report:
    """Return the report on traces. It is cached, because several rules may give advice on a pair."""
    return analyze(paths)


def _step_ms(report: Report) -> float:
    return report.summary["step_time_ms"].value or 0.0


def shipped() -> Iterator[Pair]:
    """Yield the pairs in the repository. A pair occurs once for each rule that gives the advice."""
    for rule in load_pack(builtin_folder()):
        folder = PAIRS / str(rule.benchmark)
        if rule.benchmark and folder.exists() and rule.benchmark not in NOT_ONE_STEP:
            yield Pair(rule.benchmark, *_forms(folder), rule.code)


def _forms(folder: Path) -> tuple[list[str], list[str]]:
    single = folder / "naive.json.gz"
    forms = (single, folder / "advised.json.gz") if single.exists() else (folder / "naive", folder / "advised")
    return [str(forms[0])], [str(forms[1])]


def recorded(names: Sequence[str]) -> Iterator[Row]:
    """Record the benchmarks ``names`` (by default, all that a CPU can run) ``ROUNDS`` times with alternating forms.

    Other load on the machine can only make steps longer, so for each form, the recording with the smallest median step
    counts. Where possible, the true ratio is measured without a profiler, with alternating forms; its median counts.
    """
    from perftool.bench import benchmark_names, find_benchmark
    from perftool.bench.harness.launch import Plan
    from perftool.proof import leave_traces

    codes = {rule.code for rule in load_pack(builtin_folder()) if rule.whatif}
    for name in names or benchmark_names():
        benchmark = find_benchmark(name)
        mine = sorted(codes & set(benchmark.rules))
        if benchmark.script is not None or benchmark.unavailable() or not mine:
            continue
        with tempfile.TemporaryDirectory() as folder:
            rounds = []
            for number in range(ROUNDS):
                place = Path(folder) / str(number)
                place.mkdir()
                rounds.append(leave_traces(benchmark, "cpu", Plan.of(quick=True), place))
            before, after = (
                min(
                    ([str(path) for path in left.files[form]] for left in rounds),
                    key=lambda files: _step_ms(_read(files)),
                )
                for form in ("naive", "advised")
            )
            ratios = [left.ratio.value for left in rounds if left.ratio is not None]
            for code in mine:
                made = row(Pair(name, before, after, code, statistics.median(ratios) if ratios else None))
                print(made, file=sys.stderr, flush=True)
                yield made


def table(title: str, rows: Sequence[Row]) -> str:
    """Return a Markdown table of ``rows`` below ``title``, with the median and the worst error."""
    lines = [f"**{title}**", "", HEAD, *map(str, rows), ""]
    errors = [one.error for one in rows if one.error is not None]
    if errors:
        median, worst = 100 * statistics.median(errors), 100 * max(errors)
        lines += [
            f"{len(errors)} predictions: median error {median:.1f} %, worst {worst:.1f} % of the original step time.",
            "",
        ]
    return "\n".join(lines)


def kept() -> list[Row]:
    """Return the rows from recordings that are not in the repository."""
    return [Row(**one) for one in json.loads(KEPT.read_text(encoding="utf-8"))]


def keep(rows: Sequence[Row], made: Row) -> list[Row]:
    """Replace the row for the same pair and rule in ``rows`` with ``made``, then save and return the rows."""
    others = [one for one in rows if (one.name, one.code) != (made.name, made.code)]
    found = sorted([*others, made], key=lambda one: (one.name, one.code))
    KEPT.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n", encoding="utf-8")
    return found


def main(arguments: list[str]) -> int:
    """Print the tables (simulated pairs separately), or write them."""
    parser = argparse.ArgumentParser(usage=(__doc__ or "").split("usage: ")[1].split("\n")[0])
    parser.add_argument("--record", nargs="*", metavar="NAME")
    parser.add_argument("--pair", nargs=3, action="append", default=[], metavar=("BEFORE", "AFTER", "CODE"))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    rows = kept()
    for before, after, code in given.pair:
        rows = keep(rows, row(Pair(Path(before).name.split(".")[0], [before], [after], code)))
    for made in recorded(given.record) if given.record is not None else ():
        rows = keep(rows, made)
    known = {(one.name, one.code) for one in rows}
    shown = [row(pair) for pair in shipped() if (pair.name, pair.code) not in known]
    # Leave out pairs for which the rule does not fire, because they have no prediction.
    with_gain = [one for one in shown if one.bound is not None or one.predicted is not None]
    rows += [one if one.simulated else replace(one, name=f"{one.name} (one recording)") for one in with_gain]
    titles = {"Recorded": False, "Simulated": True}
    text = "\n".join(table(title, mine) for title, simulated in titles.items()
                     if (mine := [one for one in rows if one.simulated is simulated]))  # fmt: skip
    if given.write:
        before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}{text}{END}{rest.split(END)[1]}", encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
