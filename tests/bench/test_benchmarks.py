"""Both forms of every benchmark give the same results, and its rules fire on the naive trace but not on the advised
one.

No test in this file asserts a time or a speed-up, because times measured on a busy machine prove nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from warm_python import warm_executable, warm_python

torch = pytest.importorskip("torch")

from perftool.bench import benchmark_names, dataloader_workers, find_benchmark  # noqa: E402
from perftool.bench.harness.agreement import largest_error  # noqa: E402
from perftool.bench.harness.case import FORM_NAMES, Benchmark, Setting  # noqa: E402
from perftool.bench.harness.launch import Plan, measure_and_record  # noqa: E402
from perftool.bench.harness.order import Order, read_answer  # noqa: E402
from perftool.bench.harness.recording import record  # noqa: E402
from perftool.engine.analysis import analysed  # noqa: E402
from perftool.engine.rules.pack import shipped_rules  # noqa: E402
from perftool.model.rule import Rule  # noqa: E402
from perftool.proof import SCRIPTS, SIMULATED_DEVICE, WARM_UP_STEPS, leave_settings  # noqa: E402
from perftool.readers.discover import find_inputs  # noqa: E402
from perftool.sim import simulate  # noqa: E402

# These benchmarks run the compiler for up to a minute. The slow test of `benchmark --validate` covers them.
COMPILING = {"dynamic_shapes", "hpu_graphs", "loop_constants", "torch_compile"}
CPU = torch.device("cpu")
ALL = [find_benchmark(name) for name in benchmark_names()]
MEASURABLE = [
    each for each in ALL if each.name not in COMPILING and "cpu" in each.devices and each.unavailable() is None
]
ALONE = [each for each in MEASURABLE if each.ranks == 1 and not each.separate_processes]
TEAMS = [each for each in MEASURABLE if each.ranks > 1]
SHIPPED = Path(__file__).parents[2] / "sample_traces" / "benchmarks"
# test_samples.py runs the rules on the shipped traces of some of these scripts. The slow tests simulate them again.
SCRIPTED = [
    pytest.param(each, marks=pytest.mark.slow if (SHIPPED / each.name).is_dir() else ())
    for each in ALL
    if each.script is not None
]
# Benchmarks with the same rules differ only in an op, so only the traces of the first are checked. The slow test of
# `benchmark --validate` checks all of them.
TRACED = {each.rules: each.name for each in reversed(ALONE) if each.script is None and each.rules}


def named(benchmark_: Benchmark) -> str:
    return benchmark_.name


@pytest.fixture
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def _short_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches are enough to compare results."""
    short = {size: replace(epoch, batches=2) for size, epoch in dataloader_workers._EPOCHS.items()}
    monkeypatch.setattr(dataloader_workers, "_EPOCHS", short)


@pytest.mark.usefixtures("_one_thread", "_short_epochs")
@pytest.mark.parametrize("benchmark_", ALONE, ids=named)
def test_forms_agree_and_rules_fire_on_the_naive_one_only(benchmark_: Benchmark, tmp_path: Path) -> None:
    results, traces = [], []
    for name in benchmark_.timed_forms:
        form = benchmark_.build(name, Setting(benchmark_.sizes[0], CPU))
        # If the wall clock times a form, one run has many steps.
        for _ in range(1 if benchmark_.clock == "wall" else 2):
            form.run()
        results.append([tensor.detach().clone() for tensor in form.result()])
        if benchmark_.name == TRACED.get(benchmark_.rules) and name in FORM_NAMES:
            recorded = form
            if benchmark_.traced_size != benchmark_.sizes[0]:
                recorded = benchmark_.build(name, Setting(benchmark_.traced_size, CPU))
            trace = tmp_path / f"{name}.json.gz"
            record(recorded.step or recorded.run, trace, benchmark_.traced_steps, CPU, benchmark_.traced_stacks)
            traces.append([str(trace)])
            recorded.close()
        form.close()

    assert max(largest_error(results[0], each) for each in results[1:]) <= benchmark_.tolerance
    if traces:
        closes(benchmark_, *traces)


@pytest.fixture(scope="session")
def teams(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Order]:
    """The orders of ``TEAMS``, once the measurements and traces are done. There is one process per rank, which runs all
    of these benchmarks.
    """
    orders = {}
    for each in TEAMS:
        # One round is enough to compare results, and times do not matter here.
        rounds, size = 1, each.traced_size
        folder = str(tmp_path_factory.mktemp(each.name))
        # If there are no rules, no test reads the traces.
        traced = size if each.rules else None
        orders[each.name] = Order(
            each.name, each.timed_forms, "cpu", size, traced, rounds, 0.0, folder, ranks=each.ranks
        )
    program, alone = [*warm_python(), "-m", "perftool.bench.harness.worker"], {**os.environ, "OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen([*program, *(order.of_rank(rank).as_text() for order in orders.values())], env=alone)
        for rank in range(TEAMS[0].ranks)
    ]
    assert [worker.wait(300) for worker in workers] == [0] * len(workers)
    return orders


@pytest.mark.parametrize("benchmark_", TEAMS, ids=named)
def test_ranks_agree_and_rules_fire_on_the_naive_form_only(benchmark_: Benchmark, teams: Mapping[str, Order]) -> None:
    order = teams[benchmark_.name]
    ranks = [order.of_rank(rank) for rank in range(order.ranks)]

    assert [read_answer(each.answer).max_error <= benchmark_.tolerance for each in ranks] == [True] * len(ranks)
    if benchmark_.rules:
        closes(benchmark_, *([str(each.trace(name)) for each in ranks] for name in FORM_NAMES))


def test_forms_in_separate_processes_agree_and_rules_fire_on_the_naive_one_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocator = replace(find_benchmark("host_allocator"), runs_per_process=3)
    monkeypatch.setattr(sys, "executable", warm_executable(tmp_path))

    measured, recorded = measure_and_record(allocator, "cpu", Plan(3, 0.2, 1), tmp_path)

    assert (measured.rounds, measured.max_error <= allocator.tolerance) == (3, True)
    assert [[path.name for path in paths] for paths in recorded.files.values()] == [
        ["host_allocator-naive.json.gz", "host_allocator.env"],
        ["host_allocator-advised.json.gz", "host_allocator.env"],
    ]
    assert recorded.files["naive"][1].read_text(encoding="utf-8") == "LD_PRELOAD=\n"
    closes(allocator, *([str(path) for path in recorded.files[name]] for name in FORM_NAMES))


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("benchmark_", SCRIPTED, ids=named)
def test_rules_fire_on_the_naive_form_only_on_a_simulated_device(
    benchmark_: Benchmark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for name in FORM_NAMES:
        script, target = SCRIPTS / str(benchmark_.script), tmp_path / name / f"{benchmark_.name}.json.gz"
        done = simulate(script, [name], SIMULATED_DEVICE, output=target, skip_steps=WARM_UP_STEPS)
        leave_settings(benchmark_, name, target.parent)
        assert (done.exit_code, done.interrupted) == (0, None)
        said = re.findall(r"^result (.+)$", capsys.readouterr().out, re.MULTILINE)
        printed.append([float(number) for number in said])

    closes(benchmark_, [str(tmp_path / "naive")], [str(tmp_path / "advised")])
    assert printed[0] == pytest.approx(printed[1], rel=benchmark_.tolerance)


def closes(benchmark_: Benchmark, naive: Sequence[str], advised: Sequence[str]) -> None:
    """Check that the rules fire on the naive traces and not on the advised ones, and that recorded traces have all
    steps.
    """
    pack = [rule for rule in shipped_rules() if rule.code in benchmark_.rules]
    if not pack:
        assert all(Path(path).exists() for path in (*naive, *advised))
        return
    if len(naive) == len(advised) == 1 and closes_as_ranks(benchmark_, naive[0], advised[0], pack):
        return
    before, steps_before = found(naive, [without_shares(rule) for rule in pack])
    after, steps_after = found(advised, pack)
    if benchmark_.script is None:
        assert {steps_before, steps_after} == {benchmark_.traced_steps * benchmark_.ranks}
    assert set(before) == set(benchmark_.rules)
    assert after == []


def closes_as_ranks(benchmark_: Benchmark, naive: str, advised: str, pack: Sequence[Rule]) -> bool:
    """Whether ``closes`` holds in a single analysis with the forms as two ranks of a run, which takes little longer
    than one form alone. Rules about settings are never seen to hold, because settings belong to the whole run, and
    rules about shares of the step may not hold on a busy machine.
    """
    if any(rule.code.startswith("CFG") for rule in pack):
        return False
    codes, steps = dict[int | None, set[str]](), dict[int, int]()
    with analysed(find_inputs([naive, advised], as_one_run=True), pack) as run:
        for finding in run.outcome.findings:
            codes.setdefault(finding.rank, set()).add(finding.code)
        for row in run.store.rows("steps"):
            steps[row["rank"]] = steps.get(row["rank"], 0) + 1
        ranks = [
            read.rank
            for form in (naive, advised)
            for read in run.store.inputs
            if Path(form) in Path(read.path).parents or read.path == form
        ]
    recorded = benchmark_.script is not None or set(steps.values()) == {benchmark_.traced_steps}
    return len(ranks) == len(steps) == 2 and recorded and codes == {ranks[0]: set(benchmark_.rules)}


def found(paths: Sequence[str], rules: Sequence[Rule]) -> tuple[list[str], int]:
    """Return the codes of the findings and the number of steps. A whole report would take twice as long."""
    with analysed(find_inputs(paths), rules) as run:
        return [finding.code for finding in run.outcome.findings], len(run.store.rows("steps"))


def without_shares(rule: Rule) -> Rule:
    """Return ``rule`` with a threshold of 0 for shares of the step, because the rest of a step takes longer on a busy
    machine.
    """
    free = (
        replace(each, value=0.0) if each.unit.split(",")[0] == "share of the step" else each for each in rule.params
    )
    return replace(rule, params=tuple(free))
