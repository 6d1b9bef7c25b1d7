from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.benchmark_results import FAILED, VALIDATED
from typer.testing import CliRunner

import perftool.proof
from perftool.cli import app
from perftool.model.benchmark import BenchmarkResult

pytest.importorskip("torch")

from perftool.bench import benchmark_names, find_benchmark
from perftool.commands.benchmark_choice import choose, left_out, named_in
from perftool.engine.rules.pack import shipped_rules
from perftool.errors import InputError, PerfToolError


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[BenchmarkResult]:
    """The results that benchmarks return, one after the other."""
    given: list[BenchmarkResult] = []
    monkeypatch.setattr(perftool.proof, "prove", lambda benchmark, request, stage: given.pop(0))
    return given


def test_json_of_one_benchmark(answers: list[BenchmarkResult]) -> None:
    answers.append(VALIDATED)

    outcome = CliRunner().invoke(app, ["benchmark", "fused_adamw", "--device", "cpu", "--output-format", "json"])

    assert outcome.exit_code == 0
    assert [row["name"] for row in json.loads(outcome.stdout)["benchmarks"]] == ["fused_adamw"]


def test_a_failed_row_exits_with_1(answers: list[BenchmarkResult]) -> None:
    answers += [VALIDATED, FAILED]

    outcome = CliRunner().invoke(app, ["benchmark", "fused_adamw", "fused_sgd", "--device", "cpu", "--validate"])

    assert outcome.exit_code == 1
    assert outcome.stdout.splitlines()[-1] == "1 validated, 1 failed"


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(PerfToolError, match="there is no benchmark 'warp_drive'; the benchmarks are "):
        choose(["warp_drive"], [], None)


def test_for_runs_the_benchmarks_of_a_rule() -> None:
    assert "fused_adamw" in choose([], ["FUS101"], None)
    assert choose([], ["unfused-optimizer"], None) == choose([], ["FUS101"], None)
    with pytest.raises(PerfToolError, match="FIX999"):
        choose([], ["FIX999"], None)
    with pytest.raises(PerfToolError, match="GAP101 has no benchmark"):
        choose([], ["GAP101"], None)


def test_from_runs_the_benchmarks_of_the_findings_in_a_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    names = ["fused_adamw", None, "gone", "fused_adamw"]
    report.write_text(json.dumps({"findings": [{"benchmark": name} for name in names]}), encoding="utf-8")

    assert choose([], [], named_in(str(report))) == ["fused_adamw"]
    assert choose([], [], []) == []
    report.write_bytes(b'{"findings": [], "x": [' + b"[]," * 5_000_000 + b"[]]}")
    with pytest.raises(InputError, match="not a JSON report"):
        named_in(str(report))
    report.write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="not a JSON report"):
        named_in(str(report))
    with pytest.raises(InputError, match="cannot read"):
        named_in(str(tmp_path / "none.json"))


def test_the_benchmark_that_a_rule_names_proves_it() -> None:
    """test_benchmarks.py checks that a benchmark's rules fire on the naive form and not on the advised one."""
    rules = {rule.code: rule for rule in shipped_rules()}
    proved = {name: find_benchmark(name).rules for name in benchmark_names()}
    named = [(code, rule.benchmark) for code, rule in rules.items() if rule.benchmark]

    assert [pair for pair in named if pair[0] not in proved.get(str(pair[1]), ())] == []
    assert {code for codes in proved.values() for code in codes} - set(rules) == set()


def test_a_rule_that_a_benchmark_proves_names_one() -> None:
    proved = {code for name in benchmark_names() for code in find_benchmark(name).rules}

    assert sorted(proved - {rule.code for rule in shipped_rules() if rule.benchmark}) == []


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_an_interrupt_keeps_finished_rows(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [VALIDATED]

    def prove(benchmark: object, request: object, stage: object) -> BenchmarkResult:
        if not given:
            raise KeyboardInterrupt
        return given.pop()

    monkeypatch.setattr(perftool.proof, "prove", prove)

    outcome = CliRunner().invoke(
        app, ["benchmark", "fused_adamw", "fused_sgd", "--device", "cpu", "--validate", "--output-format", form]
    )

    assert outcome.exit_code == 130
    assert "fused_adamw" in outcome.stdout
    assert "habana_perf_tool: 1 of 2 benchmarks finished\n" in outcome.stderr


def test_a_quick_run_lists_what_it_leaves_out(answers: list[BenchmarkResult]) -> None:
    answers.append(VALIDATED)

    outcome = CliRunner().invoke(app, ["benchmark", "fused_adamw", "--device", "cpu", "--quick", "--validate"])

    said = " ".join(outcome.stdout.split())
    assert "1 validated --quick left out further sizes (1); runs with a tuned heap (1); rounds beyond" in said


@pytest.mark.parametrize("validate", [(), ("--validate",)])
def test_text_goes_to_the_file_too(validate: tuple[str, ...], answers: list[BenchmarkResult], tmp_path: Path) -> None:
    call = ["benchmark", "fused_adamw", "--device", "cpu", *validate]
    answers += [VALIDATED, VALIDATED]
    shown = CliRunner().invoke(app, call).stdout
    target = tmp_path / "out.txt"

    outcome = CliRunner().invoke(app, [*call, "-o", str(target)])

    assert (outcome.stdout, outcome.stderr) == ("", f"Wrote {target}\n")
    assert target.read_text(encoding="utf-8") == shown
    assert "validated" in shown


def test_the_list_goes_to_the_file_too(tmp_path: Path) -> None:
    target = tmp_path / "list.txt"
    assert CliRunner().invoke(app, ["benchmark", "fused_adamw", "--list", "-o", str(target)]).stdout == ""
    assert target.read_text(encoding="utf-8").startswith("fused_adamw ")


def test_a_folder_for_traces_that_cannot_be_made_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PerfToolError, match=r"--keep .*file/traces: cannot create the folder \(Not a directory\)"):
        CliRunner().invoke(
            app, ["benchmark", "fused_adamw", "--keep", str(tmp_path / "file/traces")], catch_exceptions=False
        )


def test_quick_reports_what_it_leaves_out() -> None:
    names = [name for name in benchmark_names() if find_benchmark(name).not_quick]
    sentence = left_out(names)

    neither, simulated = (sentence.split(f" {what}: ")[1].split(".")[0] for what in (
        "Neither measured nor simulated", "Simulated but not measured"
    ))  # fmt: skip
    assert ("torch_compile (" in neither, "loop_constants (" in simulated) == (True, True)
    assert all((f"{name} (" in simulated) == bool(find_benchmark(name).script) for name in names)
    assert left_out(["sdpa"]).count(".") == 1
