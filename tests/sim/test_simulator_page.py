"""docs/simulator.md states every constant with its actual value."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from perftool.sim.machine.costs import default_costs

PAGE = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()


def test_the_page_names_every_constant_with_its_value() -> None:
    stated = {
        name.strip(" `"): float(value)
        for name, value, _ in (line.strip("|").split("|", 2) for line in PAGE.splitlines() if line.startswith("| `"))
    }
    assert {name.replace(".", "_", 1): value for name, value in stated.items()} == asdict(default_costs())
