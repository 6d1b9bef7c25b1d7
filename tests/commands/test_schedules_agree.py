"""Every command gives the same result for two or three traces, whether it reads them together, in several batches or in
several processes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.program import Run
from events import document, kernel, loader, runtime, step, x

import perftool
from perftool.engine.ranks import batch

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
def files(_outside: None) -> list[str]:
    """Write the traces of three ranks, and a pack with ``OWN_RULE``."""
    Path("pack").mkdir()
    Path("pack/USR901.toml").write_text(OWN_RULE)
    for rank in range(3):
        info = {"distributedInfo": {"rank": rank, "world_size": 3}, "baseTimeNanoseconds": 10**9 * (rank + 1)}
        Path(f"rank{rank}.json").write_bytes(document(events(rank), **info))
    return [f"rank{rank}.json" for rank in range(3)]


@pytest.fixture
def in_batches(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function, after which the first two traces are read into one store and the third into another."""
    return lambda: monkeypatch.setattr(batch, "BATCH_BYTES", 2 * len(document(events(2))))


def report_of(run: Run, *arguments: str) -> dict[str, Any]:
    run(*arguments, "--output-format", "json")
    assert run.out, run.err
    report: dict[str, Any] = json.loads(run.out)
    return report


def test_the_report_does_not_depend_on_the_schedule(run: Run, files: list[str], in_batches: Callable[[], None]) -> None:
    few = ("--select", "GAP,COL")
    here = report_of(run, "analyze", *files, *few)
    found = {(finding["code"], finding["subject"]) for finding in here["findings"]}
    assert len(here["steps"]) == 9
    linted = report_of(run, "lint", *files, *few, "--exit-zero")
    assert {(finding["code"], finding["subject"]) for finding in linted["findings"]} == found
    ours = perftool.analyze(files).findings
    assert {(one.code, one.subject) for one in ours if one.code.startswith(("GAP", "COL", "TRC"))} == found
    Path("empty").mkdir()
    Path("empty/rank0.json").write_bytes(document([step(0, 0, 10), x("aten::mm", 0, 5)]))
    compared = report_of(run, "diff", "empty", "rank*.json", *few)
    assert {(finding["code"], finding["subject"]) for finding in compared["new_findings"]} <= found
    assert compared["new_findings"]

    in_batches()
    assert report_of(run, "analyze", *files, *few) == here


def test_a_page_with_rules_of_a_user_does_not_depend_on_the_schedule(run: Run, files: list[str]) -> None:
    """With several jobs, the sandbox of each runs the queries of a user's rules."""
    own = (*files[:2], "--rules", "pack", "--select", "COL,USR901", "-q")
    found = report_of(run, "analyze", *own)["findings"]
    assert {finding["message"] for finding in found if finding["code"] == "USR901"} == OF_EACH_RANK
    assert run("report", *own, "-o", "here.html") == 0
    assert run("report", *own, "--jobs", "2", "-o", "there.html") == 0
    page = Path("here.html").read_text()
    assert any(said in page for said in OF_EACH_RANK)
    assert Path("there.html").read_text() == page


def test_queries_and_budgets_see_all_ranks(run: Run, files: list[str], in_batches: Callable[[], None]) -> None:
    in_batches()
    for sql in ("SELECT rank, count(*) AS n FROM steps GROUP BY rank", "SELECT rank, 3 AS n FROM slices GROUP BY rank"):
        assert run("query", "rank*.json", f"{sql} ORDER BY rank", "--output-format", "json") == 0
        assert json.loads(run.out) == [{"rank": rank, "n": 3} for rank in range(3)]
    budget = "kernels: SELECT count(*) FROM device_ops WHERE name = 'gemm' <= 2"
    assert run("lint", *files, "--select", "COL", "--budget", budget) == 1
    assert "kernels is 9; the budget is <= 2" in run.out
