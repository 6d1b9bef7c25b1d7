"""Shares refer to the window, which is longer than the sum of its steps if there is time between them."""

from __future__ import annotations

from pathlib import Path

from events import document, kernel, launch, step, x

from perftool.api import analyze
from perftool.engine.rules.pack import builtin_folder, load_pack


def test_a_collective_between_two_steps(tmp_path: Path) -> None:
    """The collective takes longer than the steps; as a share of their time, it would be 350 %."""
    path = tmp_path / "run.json"
    path.write_bytes(document([
        step(1, 0, 100), x("aten::mm", 0, 50), *launch(1, 10, 5, 20, 80),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 200, 700),
        step(2, 1000, 100), x("aten::mm", 1000, 50), *launch(2, 1010, 5, 1020, 80),
    ]))  # fmt: skip
    report = analyze(path, [rule for rule in load_pack(builtin_folder()) if rule.code == "COL102"])
    assert [finding.evidence["exposed_ratio"] for finding in report.findings] == [700 / 1100]
