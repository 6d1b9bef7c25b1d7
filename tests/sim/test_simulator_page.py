"""docs/simulator.md states the actual value of every constant and shows actual output."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from perftool.sim.machine.costs import default_costs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "simulator.md").read_text()
EXAMPLE = ROOT / "examples" / "simulate" / "train.py"


def test_the_page_names_every_constant_with_its_value() -> None:
    stated = {
        name.strip(" `"): float(value)
        for name, value, _ in (line.strip("|").split("|", 2) for line in PAGE.splitlines() if line.startswith("| `"))
    }
    assert {name.replace(".", "_", 1): value for name, value in stated.items()} == asdict(default_costs())


def test_the_lines_that_the_page_shows_are_printed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    shown = re.findall(r"^habana_perf_tool: lines that end .*\n(?:  .+\n)+", PAGE, re.MULTILINE)
    command = ["simulate", str(EXAMPLE), "--no-report"]

    done = subprocess.run(
        [sys.executable, "-m", "perftool", *command], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )

    assert len(shown) == 1
    assert [line for line in shown[0].splitlines() if line not in done.stderr.splitlines()] == []
