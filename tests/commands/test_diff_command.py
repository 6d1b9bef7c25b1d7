"""``diff``: traces, folders and saved reports; exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.program import Run

SAMPLES = Path(__file__).parents[2] / "sample_traces"


def run_of(name: str, step_us: int) -> str:
    """A trace with ten steps of about ``step_us``."""
    events, at = [], 0
    for number in range(10):
        dur = step_us + number % 3 * step_us // 100
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": at, "dur": dur},
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": at + 1, "dur": dur - 2},
        ]
        at += dur + 1
    Path(name).write_text(json.dumps({"traceEvents": [{"pid": 1, "tid": 1, **event} for event in events]}))
    return name


@pytest.mark.parametrize(
    ("new_us", "limit", "code"),
    [(1000, "slower:5%", 0), (1200, "slower:5%", 1), (1200, "slower:50%", 0), (500, "slower:5%", 0)],
)
def test_the_condition_decides(run: Run, new_us: int, limit: str, code: int) -> None:
    arguments = (run_of("base.json", 1000), run_of("new.json", new_us), "--fail-if", limit)
    assert run("diff", *arguments) == code
    assert run.out.startswith("Median step 1.01 ms -> ")


def test_saved_reports_compare_like_their_traces(run: Run) -> None:
    paths = []
    for name, step_us in (("base", 1000), ("new", 1200)):
        paths.append(f"{name}-report.json")
        assert run("analyze", run_of(f"{name}.json", step_us), "--output-format", "json", "-o", paths[-1]) == 0
    assert run("diff", "base.json", "new.json", "--output-format", "json") == 0
    traced = json.loads(run.out)
    assert run("diff", *paths, "--output-format", "json", "--fail-if", "slower:5%") == 1
    saved = json.loads(run.out)
    assert saved["interval"] == traced["interval"]
    assert saved["breakdown"] == traced["breakdown"]
    assert saved["base"]["name"] == "base-report.json"


def test_a_trace_with_the_keys_of_a_saved_report_is_a_trace(run: Run) -> None:
    assert run("analyze", run_of("base.json", 1000), "--output-format", "json") == 0
    saved = json.loads(run.out)
    slow = json.loads(Path(run_of("slow.json", 1200)).read_bytes())
    Path("both.json").write_text(json.dumps({**saved, **slow}))

    assert run("diff", "base.json", "both.json", "--fail-if", "slower:5%") == 1


def test_a_folder_is_one_run_when_it_is_said_to_be(run: Run) -> None:
    for name in ("a", "b"):
        Path(name).mkdir()
        for world in (2, 4):
            trace = Path(run_of(f"{name}/{world}.json", 1000))
            trace.write_text(json.dumps({**json.loads(trace.read_text()), "distributedInfo": {"world_size": world}}))
    assert run("diff", "a", "b") == 0
    assert "a holds 2 recordings; analysing the newest: 4" in run.err
    assert run("diff", "a", "b", "--as-one-run") == 0


def test_too_few_steps_never_fail(run: Run) -> None:
    base, new = (str(SAMPLES / name) for name in ("gaudi2_optimised", "gaudi2_unoptimised"))
    assert run("diff", base, new, "--fail-if", "slower:1%", "--output-format", "markdown") == 0
    assert "significance cannot be judged" in run.out
    assert "GAP101" in run.out.split("**New findings**")[1]
    assert str(SAMPLES) not in run.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.json", "new.json"], "missing.json: no such file"),
        (["new.json", "new.json", "--fail-if", "worse"], "--fail-if 'worse': must be slower:N%"),
    ],
)
def test_what_cannot_run_exits_2(run: Run, arguments: list[str], message: str) -> None:
    run_of("new.json", 1000)
    assert run("diff", *arguments) == 2
    assert message in run.err
    assert run.out == ""
