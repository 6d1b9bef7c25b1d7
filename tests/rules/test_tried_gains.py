"""A gain that `record` tried on a copy of the model is printed as such, and not as an upper bound."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

from rule_cases import all_cases, pack

from perftool.engine.analysis import analysed
from perftool.engine.rule_tests.cases import inputs_of
from perftool.engine.rules.row_check import checked
from perftool.model.report import Gain
from perftool.reporters.verdict import gain_text


def test_a_gain_that_was_tried_is_stated_as_measured(tmp_path: Path) -> None:
    case = deepcopy(next(case for case in all_cases() if case.name == "BF16 was tried on the model"))
    case.metadata["perftoolRecording"]["trials"][0]["bf16_ns"] = 100_000
    with analysed(inputs_of(case, tmp_path), [pack()["PRC101"]]) as run:
        report = run.report

    finding = next(finding for finding in report.findings if finding.code == "PRC101")
    assert finding.gain == Gain(600_000, 0.6, "tried", 0.75)
    assert gain_text(finding) == "600 us (60.0 %)"
    assert finding.gain.worth == "600 us (tried)"
    assert "600 us of the 1.00 ms step can be saved (tried on a copy of the model):" in report.verdict.headline


def test_without_a_trial_the_gain_is_a_bound(tmp_path: Path) -> None:
    case = deepcopy(next(case for case in all_cases() if case.name == "BF16 was tried on the model"))
    del case.metadata["perftoolRecording"]["trials"]
    with analysed(inputs_of(case, tmp_path), [pack()["PRC101"]]) as run:
        (finding,) = run.report.findings

    assert finding.gain
    assert finding.gain.kind == "bound"


def test_rules_of_others_cannot_claim_a_trial() -> None:
    (row,) = checked([{"subject": "a", "gain_ns": 2, "tried_ns": 1}])

    assert row == {"subject": "a", "gain_ns": 2}
