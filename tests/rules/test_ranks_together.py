"""A shipped rule of a rank finds the same whether ranks share a store or not: so small traces may share one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rule_cases import all_cases, pack

from perftool.engine.analysis import analyze
from perftool.engine.ranks.joined import asked_apart
from perftool.engine.rule_tests.case_traces import write_traces
from perftool.engine.rule_tests.cases import Case
from perftool.model.report import Finding

# Traces of one rank that say all by themselves.
CASES = [
    case for case in all_cases()
    if case.findings and case.events and not any("rank" in event for event in case.events)
    and not case.logs and not case.files and not case.own_sql
    and pack()[case.code].sql and pack()[case.code].scope == "rank"
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code} {case.name}")
def test_a_rank_shows_in_company_what_it_shows_alone(case: Case, tmp_path: Path) -> None:
    rule = pack()[case.code]
    (written,) = write_traces(case.events, case.metadata, case.device, tmp_path)
    trace = json.loads(written.read_bytes())
    events = trace["traceEvents"]
    paths = []
    # The third has the first events alone: other steps, other totals.
    for rank, own in enumerate((events, events, events[: max(1, len(events) // 3)])):
        top = {**trace, "distributedInfo": {"rank": rank}, "traceEvents": own}
        paths.append(str(tmp_path / f"run{rank}.json"))
        Path(paths[-1]).write_text(json.dumps(top), encoding="utf-8")

    alone = analyze(paths[:1], [rule]).findings
    together = analyze(paths, [rule]).findings

    assert alone
    assert not asked_apart(rule)
    if any(finding.rank is None for finding in alone):
        assert {shown(finding) for finding in alone} <= {shown(finding) for finding in together}
    else:
        for rank in (0, 1):
            assert sorted(shown(f) for f in together if f.rank == rank) == sorted(map(shown, alone))


def shown(finding: Finding) -> tuple[str, ...]:
    """What a finding says, whatever its rank is called."""
    place = finding.location
    texts = (
        finding.subject,
        finding.message,
        repr(dict(finding.evidence)),
        f"{place.step} {place.ts_ns} {place.dur_ns}",
    )
    return tuple(text.replace("rank 1", "rank 0") for text in texts)
