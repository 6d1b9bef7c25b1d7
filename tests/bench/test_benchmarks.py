"""Benchmarks that can be measured here: both forms give the same results, their rules fire on one trace and not on
the other. Nothing here asserts a time or a win: what is measured in seconds on a busy machine proves neither.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import perftool.bench  # noqa: E402
from perftool.bench import benchmark_names, find_benchmark  # noqa: E402
from perftool.bench.harness.agreement import largest_error  # noqa: E402
from perftool.bench.harness.case import FORM_NAMES, Benchmark, Setting  # noqa: E402
from perftool.bench.harness.launch import Plan, measure, record_traces  # noqa: E402
from perftool.bench.harness.recording import record  # noqa: E402
from perftool.engine.analysis import analyze  # noqa: E402
from perftool.engine.rules.pack import builtin_folder, load_pack  # noqa: E402
from perftool.model.rule import Rule  # noqa: E402
from perftool.proof import SIMULATED_DEVICE, WARM_UP_STEPS  # noqa: E402
from perftool.sim import Simulated, simulate  # noqa: E402

# They start the compiler, for up to a minute; the slow test of `benchmark --validate` runs them.
COMPILING = {"dynamic_shapes", "hpu_graphs", "loop_constants", "torch_compile"}
BRIEF = Plan(rounds=3, seconds=0.2, pairs=1)


def measurable() -> list[Benchmark]:
    benchmarks = [find_benchmark(name) for name in benchmark_names() if name not in COMPILING]
    return [each for each in benchmarks if "cpu" in each.devices and each.unavailable() is None]


def of(*, ranks: bool = False, apart: bool = False) -> list[Benchmark]:
    return [each for each in measurable() if ((each.ranks > 1), each.apart) == (ranks, apart)]


def scripted() -> list[Benchmark]:
    return [each for each in map(find_benchmark, benchmark_names()) if each.script is not None]


@pytest.fixture
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("benchmark_", of(), ids=lambda each: each.name)
def test_both_forms_agree(benchmark_: Benchmark) -> None:
    results = []
    for name in FORM_NAMES:
        form = benchmark_.build(name, Setting(benchmark_.sizes[0], torch.device("cpu")))
        for _ in range(2):
            form.run()
        results.append([tensor.detach().clone() for tensor in form.result()])
        form.close()

    assert largest_error(*results) <= benchmark_.tolerance


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("benchmark_", [each for each in of() if each.script is None], ids=lambda each: each.name)
def test_the_loop_closes(benchmark_: Benchmark, tmp_path: Path) -> None:
    traces = {name: tmp_path / f"{name}.json.gz" for name in FORM_NAMES}
    for name, trace in traces.items():
        form = benchmark_.build(name, Setting(benchmark_.traced_size, torch.device("cpu")))
        record(form.step or form.run, trace, benchmark_.traced_steps, torch.device("cpu"))
        form.close()

    closes(benchmark_, *([str(trace)] for trace in traces.values()))


@pytest.mark.parametrize("benchmark_", of(ranks=True) + of(apart=True), ids=lambda each: each.name)
def test_the_loop_closes_for_forms_in_processes_of_their_own(benchmark_: Benchmark, tmp_path: Path) -> None:
    files = record_traces(benchmark_, "cpu", BRIEF, tmp_path).files

    closes(benchmark_, *([str(path) for path in files[name]] for name in FORM_NAMES))


def test_ranks_agree(tmp_path: Path) -> None:
    # One for all that start processes which work together: the test of `benchmark --validate` measures the others.
    benchmark_ = find_benchmark("bucket_size")

    assert measure(benchmark_, benchmark_.sizes[0], "cpu", BRIEF, tmp_path).max_error <= benchmark_.tolerance


@pytest.mark.parametrize("benchmark_", scripted(), ids=lambda each: each.name)
def test_the_loop_closes_on_a_simulated_device(
    benchmark_: Benchmark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for name in FORM_NAMES:
        done = simulate_form(benchmark_, name, tmp_path / name)
        assert (done.exit_code, done.interrupted) == (0, None)
        printed.append(
            [float(number) for number in re.findall(r"^result (.+)$", capsys.readouterr().out, re.MULTILINE)]
        )

    closes(benchmark_, [str(tmp_path / "naive")], [str(tmp_path / "advised")])
    assert printed[0] == pytest.approx(printed[1], rel=benchmark_.tolerance)


def simulate_form(benchmark_: Benchmark, name: str, folder: Path) -> Simulated:
    assert benchmark_.script is not None
    script = Path(perftool.bench.__file__).parent / "scripts" / benchmark_.script
    target = folder / f"{benchmark_.name}.json.gz"
    return simulate(script, [name], SIMULATED_DEVICE, output=target, skip_steps=WARM_UP_STEPS)


def closes(benchmark_: Benchmark, naive: list[str], advised: list[str]) -> None:
    """The rules fire on the naive traces and are quiet on the advised; recorded ones have all their steps."""
    pack = [rule for rule in load_pack(builtin_folder()) if rule.code in benchmark_.rules]
    shared = [without_shares(rule) for rule in pack] if benchmark_.ranks > 1 else pack
    before, after = analyze(naive, shared), analyze(advised, pack)
    if benchmark_.script is None:
        assert {len(before.steps), len(after.steps)} == {benchmark_.traced_steps * benchmark_.ranks}
    assert {finding.code for finding in before.findings} == set(benchmark_.rules)
    assert [finding.code for finding in after.findings] == []


def without_shares(rule: Rule) -> Rule:
    """Ranks wait for each other, on a busy machine for long: the share of the step that the fault costs is left out."""
    return replace(
        rule, params=tuple(replace(each, value=0.0) if each.name == "min_share" else each for each in rule.params)
    )
