"""Every command gives the same result for two or three traces, whether it reads them together, in several processes or
one by one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders.program import Run
from events import document, kernel, loader, runtime, step, x

import perftool

# Counts the steps and kernels of the current rank only, whatever else the store contains.
OWN_RULE = """
code = "USR901"
name = "counts-its-rank"
summary = "Counts"
severity = "warning"
confidence = "high"
status = "stable"
since = "0.1"
devices = "any"
[find]
sql = "SELECT 'kernels' AS subject, count(*) AS kernels, $steps AS steps, $step_ns AS length_ns FROM device_ops"
[text]
message = "{kernels} kernels in {steps} steps of {length}"
why = "To count."
fix = "None."
example = "None"
references = []
"""
# The messages of the rule above for ranks 0 and 1.
OF_EACH_RANK = {"6 kernels in 3 steps of 10.0 ms", "9 kernels in 3 steps of 10.0 ms"}


def events(rank: int) -> list[dict[str, Any]]:
    """Return three steps in which the loader takes a fifth of the time, with ``rank`` more kernels than rank 0 has."""
    found = []
    for number in range(3):
        at = 10_000 * number
        found += [
            step(number, at, 10_000), loader(at + 10, 2000), x("aten::mm", at + 2600, 400 + rank),
            runtime("cudaLaunchKernel", at + 2700, 20, 100 * number), kernel("gemm", at + 3000, 2000, 100 * number),
            runtime("cudaLaunchKernel", at + 2800, 20, 100 * number + 1),
            kernel("ncclDevKernel_AllReduce", at + 6000 + 50 * rank, 3000 - 50 * rank, 100 * number + 1, stream=9),
            *(kernel("extra", at + 5000 + 20 * n, 10) for n in range(rank)),
        ]  # fmt: skip
    return found


@pytest.fixture
def files(request: pytest.FixtureRequest, _outside: None) -> list[str]:
    count = request.param
    Path("pack").mkdir()
    Path("pack/USR901.toml").write_text(OWN_RULE)
    for rank in range(count):
        info = {"distributedInfo": {"rank": rank, "world_size": count}, "baseTimeNanoseconds": 10**9 * (rank + 1)}
        Path(f"rank{rank}.json").write_bytes(document(events(rank), **info))
    return [f"rank{rank}.json" for rank in range(count)]


def report_of(run: Run, *arguments: str) -> dict[str, Any]:
    run(*arguments, "--output-format", "json")
    assert run.out, run.err
    report: dict[str, Any] = json.loads(run.out)
    return report


def said_by_the_user(report: dict[str, Any]) -> set[str]:
    return {finding["message"] for finding in report["findings"] if finding["code"] == "USR901"}


# Three small traces are loaded together. In the second case, the sandbox runs the queries of a user's rules.
@pytest.mark.parametrize(
    ("files", "own"),
    [(3, ()), (2, ("--rules", "pack", "--select", "GAP,COL,USR901"))],
    ids=["three", "own"],
    indirect=["files"],
)
def test_the_report_does_not_depend_on_the_schedule(run: Run, files: list[str], own: tuple[str, ...]) -> None:
    here = report_of(run, "analyze", *files, *own)
    assert report_of(run, "analyze", *files, *own, "--jobs", "2") == here
    assert len(here["steps"]) == 3 * len(files)
    assert said_by_the_user(here) == (OF_EACH_RANK if own else set())
    if own:
        return
    select = ("--select", "GAP,COL")
    assert run("report", *files, *select, "-o", "here.html") == 0
    assert run("report", *files, *select, "--jobs", "2", "-o", "there.html") == 0
    assert Path("there.html").read_bytes() == Path("here.html").read_bytes()


@pytest.mark.parametrize("files", [3], indirect=True)
def test_all_commands_give_the_same_answers(run: Run, files: list[str]) -> None:
    found = {(finding["code"], finding["subject"]) for finding in report_of(run, "analyze", *files)["findings"]}
    assert found
    linted = report_of(run, "lint", *files, "--exit-zero")
    assert {(finding["code"], finding["subject"]) for finding in linted["findings"]} == found
    assert {(finding.code, finding.subject) for finding in perftool.analyze(files).findings} == found
    Path("empty").mkdir()
    Path("empty/rank0.json").write_bytes(document([step(0, 0, 10), x("aten::mm", 0, 5)]))
    compared = report_of(run, "diff", "empty", "rank*.json")
    assert {(finding["code"], finding["subject"]) for finding in compared["new_findings"]} <= found
    assert compared["new_findings"]


@pytest.mark.parametrize("files", [3], indirect=True)
def test_queries_and_budgets_see_all_ranks(run: Run, files: list[str]) -> None:
    for sql in ("SELECT rank, count(*) AS n FROM steps GROUP BY rank", "SELECT rank, 3 AS n FROM slices GROUP BY rank"):
        assert run("query", "rank*.json", f"{sql} ORDER BY rank", "--output-format", "json", "--jobs", "2") == 0
        assert json.loads(run.out) == [{"rank": rank, "n": 3} for rank in range(3)]
    budget = "kernels: SELECT count(*) FROM device_ops WHERE name = 'gemm' <= 2"
    assert run("lint", *files, "--select", "COL", "--budget", budget, "--jobs", "2") == 1
    assert "kernels is 9; the budget is <= 2" in run.out
