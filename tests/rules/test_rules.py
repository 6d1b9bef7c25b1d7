"""Runs every case of every rule; a rank gives the same findings with others as alone, so small traces may share a
store.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from rule_cases import all_cases, pack

from perftool.engine.analysis import analysed
from perftool.engine.ranks.joined import per_rank
from perftool.engine.rule_tests.case_traces import write_traces
from perftool.engine.rule_tests.cases import Case, differences, run_case
from perftool.model.report import Finding
from perftool.model.rule import Rule
from perftool.readers.discover import find_inputs


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: f"{case.code}-{case.name.replace(' ', '-')}")
def test_case(case: Case, tmp_path: Path) -> None:
    rule = pack()[case.code]

    outcome = run_case(case, rule, tmp_path)

    assert differences(case, rule, outcome, tmp_path) == []
    assert all(finding.gain is None or 0 <= finding.gain.share_of_step <= 1 for finding in outcome.findings)
    if case is first_of(case.code):
        (tmp_path / "company").mkdir()
        shows_the_same_in_company(outcome.findings, case, rule, tmp_path / "company")


@cache
def first_of(code: str) -> Case | None:
    """The case of the rule that also runs with other ranks: one is enough to show that its query keeps ranks apart."""
    rule = pack()[code]
    able = (case for case in all_cases() if case.code == code and says_all_in_one_trace(case, rule))
    return None if "lone_rank" in rule.needs else next(able, None)


def says_all_in_one_trace(case: Case, rule: Rule) -> bool:
    """Whether the case is a trace of one rank, without other files, and the rule has scope "rank"."""
    one_trace = case.events and not any("rank" in event for event in case.events)
    return bool(case.findings and one_trace and not case.logs and not case.files and not case.own_sql
                and rule.sql and rule.scope == "rank")  # fmt: skip


def shows_the_same_in_company(alone: tuple[Finding, ...], case: Case, rule: Rule, folder: Path) -> None:
    """The trace as two ranks, with a third that has only its first events: other steps, other totals."""
    (written,) = write_traces(case.events, case.metadata, case.device, folder)
    trace = json.loads(written.read_bytes())
    written.unlink()
    events = trace["traceEvents"]
    for rank, own in enumerate((events, events, events[: max(1, len(events) // 3)])):
        top = {**trace, "distributedInfo": {"rank": rank}, "traceEvents": own}
        (folder / f"run{rank}.json").write_text(json.dumps(top), encoding="utf-8")

    paths = [str(folder / f"run{rank}.json") for rank in range(3)]
    with analysed(find_inputs(paths), [replace(rule, whatif=None, whatif_ranks=None)]) as run:
        together = run.outcome.findings

    assert not per_rank(rule)
    if any(finding.rank is None for finding in alone):
        assert {shown(finding) for finding in alone} <= {shown(finding) for finding in together}
    else:
        for rank in (0, 1):
            assert sorted(shown(f) for f in together if f.rank == rank) == sorted(map(shown, alone))


def shown(finding: Finding) -> tuple[str, ...]:
    """A finding's content without the name of its rank."""
    place = finding.location
    texts = (
        finding.subject,
        finding.message,
        repr(dict(finding.evidence)),
        f"{place.step} {place.ts_ns} {place.dur_ns}",
    )
    return tuple(text.replace("rank 1", "rank 0") for text in texts)
