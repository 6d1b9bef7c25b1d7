"""docs/simulator.md states the actual value of every constant and shows actual output for the examples."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest
from builders.program import Run

from perftool.engine.analysis import analysed
from perftool.engine.rules.pack import shipped_rules
from perftool.readers.discover import find_inputs
from perftool.sim.machine.costs import default_costs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "simulator.md").read_text()
EXAMPLES = ROOT / "examples" / "simulate"
WRONG = {"FUS101", "GAP102", "RCP101", "RCP102", "SYN101"}


def test_the_page_names_every_constant_with_its_value() -> None:
    stated = {
        name.strip(" `"): float(value)
        for name, value, _ in (line.strip("|").split("|", 2) for line in PAGE.splitlines() if line.startswith("| `"))
    }
    assert {name.replace(".", "_", 1): value for name, value in stated.items()} == asdict(default_costs())


def wrong(run: Path) -> set[str]:
    """Return the codes in ``WRONG`` that are found in a simulation's files, those with names that begin with
    ``run``.
    """
    rules = [rule for rule in shipped_rules() if rule.code in WRONG]
    with analysed(find_inputs([f"{run}.json.gz"], [f"{run}.log", f"{run}.metrics.json"]), rules) as analysis:
        return {finding.code for finding in analysis.outcome.findings}


def test_the_example_prints_the_lines_that_the_page_shows_and_has_the_findings(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    shown = re.findall(r"^habana_perf_tool: lines that end .*\n(?:  .+\n)+", PAGE, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    run = Run(capfdbinary, monkeypatch)

    assert run("simulate", str(EXAMPLES / "train.py"), "--no-report") == 0
    assert len(shown) == 1
    assert [line for line in shown[0].splitlines() if line not in run.err.splitlines()] == []
    assert wrong(tmp_path / "train.simulated") == WRONG


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_the_fixed_example_has_none_of_the_findings(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from perftool.sim import simulate

    left = simulate(EXAMPLES / "train_fixed.py", output=tmp_path / "run.json.gz", max_steps=20)

    assert left.exit_code == 0
    assert wrong(tmp_path / "run") == set()
