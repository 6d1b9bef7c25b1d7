"""A gate gets the whole report if the rules advise anything, and otherwise only what decides whether it passes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from events import document, kernel, launch, loader, step, x

from perftool.engine.analysis import analysed
from perftool.engine.rules.pack import shipped_rules
from perftool.model.report import Report
from perftool.readers.discover import find_inputs

RULES = [rule for rule in shipped_rules() if rule.code in ("GAP102", "TRC102")]
DECIDING = {"inputs", "device", "steps", "findings", "not_applicable", "run", "rules", "ranks"}


def both(path: Path) -> list[Report]:
    reports = []
    for whole in (True, False):
        with analysed(find_inputs([str(path)]), RULES) as run:
            reports.append(run.report if whole else run.report_for_gate)
    return reports


def test_a_report_for_a_gate_is_whole_only_if_there_is_advice(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(document([step(1, 0, 1000), loader(0, 600), *launch(1, 700, 5, 720, 280)]))
    whole, gate = both(path)
    assert [found.code for found in whole.advice] == ["GAP102"]
    assert gate == whole

    path.write_bytes(document([x("aten::add", 0, 100), kernel("add", 0, 100)]))
    whole, gate = both(path)
    assert [found.code for found in whole.findings] == ["TRC102"]
    unlike = {field.name for field in fields(Report) if getattr(gate, field.name) != getattr(whole, field.name)}
    assert not unlike & DECIDING
    assert "summary" in unlike
