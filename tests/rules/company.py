"""Cases of several rules as the ranks of one run, whose tables are made once: that takes most of the time of a case.

A rule with scope "rank" finds in each rank what it finds in that rank alone. Only gains are per step of the whole run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from rule_cases import all_cases, pack

from perftool.engine.analysis import analysed, answered_by
from perftool.engine.report.compose import conclude_only
from perftool.engine.rule_tests.case_traces import write_traces
from perftool.engine.rule_tests.cases import Case, differences
from perftool.model.report import Finding
from perftool.readers.discover import find_inputs

_MOST = 12
_DEVICE_WORK = {"kernel", "gpu_memcpy", "gpu_memset"}


@cache
def groups() -> tuple[tuple[Case, ...], ...]:
    """The cases that may share a run, in groups with like devices; nobody in a group is alone."""
    made = []
    for _, alike in groupby(sorted(filter(_may_share, all_cases()), key=_device), _device):
        cases = list(alike)
        made += [tuple(cases[at : at + _MOST]) for at in range(0, len(cases), _MOST)]
    return tuple(group for group in made if len(group) > 1)


@cache
def alone() -> tuple[Case, ...]:
    """The cases to run alone: those in no group, those that state a gain, and the first of each rule that fires."""
    shared = {(case.code, case.name) for group in groups() for case in group}
    first: dict[str, Case] = {}
    for case in all_cases():
        if case.findings:
            first.setdefault(case.code, case)
    return tuple(
        case
        for case in all_cases()
        if (case.code, case.name) not in shared
        or case is first.get(case.code)
        or any("gain_ns" in row for row in case.findings)
    )


def _may_share(case: Case) -> bool:
    """Whether ``case`` is a trace of one rank, without other files, that a rule with scope "rank" applies to."""
    rule = pack()[case.code]
    single = case.events and not any("rank" in event for event in case.events)
    lonely = case.logs or case.files or case.own_sql or not case.applicable or "lone_rank" in rule.needs
    of_run = any({"rank", "predicted_ns"} & set(row) for row in case.findings)
    return bool(single and rule.sql and rule.scope == "rank" and not lonely and not of_run)


def _device(case: Case) -> str:
    """What must be the same for all ranks: the device, and which rules apply to it."""
    on_gaudi = any("on" in event for event in case.events)
    works = on_gaudi or any(event.get("cat") in _DEVICE_WORK for event in case.events)
    limited = pack()[case.code].devices != ("any",)
    return json.dumps([on_gaudi and case.device, works, limited and case.code, case.metadata], sort_keys=True)


def differences_in_company(cases: Sequence[Case], folder: Path) -> dict[str, list[str]]:
    """The differences between what the rules of ``cases`` find in one run of them all and what they should find."""
    for rank, case in enumerate(cases):
        (written,) = write_traces(case.events, case.metadata, case.device, folder)
        trace = json.loads(written.read_bytes())
        written.unlink()
        info = {**trace.get("distributedInfo", {}), "rank": rank}
        (folder / f"run{rank}.json").write_text(json.dumps({**trace, "distributedInfo": info}), encoding="utf-8")

    paths = [str(folder / f"run{rank}.json") for rank in range(len(cases))]
    # A prediction would also be about the whole run.
    rules = {case.code: replace(pack()[case.code], whatif=None, whatif_ranks=None) for case in cases}
    with analysed(find_inputs(paths, as_one_run=True), list(rules.values())) as run:
        outcomes = {code: answered_by(conclude_only, run.whole, [rule]) for code, rule in rules.items()}

    unlike = {}
    for rank, case in enumerate(cases):
        outcome = outcomes[case.code]
        own = tuple(_as_rank_0(finding) for finding in outcome.findings if finding.rank in (rank, None))
        rows = tuple({key: value for key, value in row.items() if key != "gain_ns"} for row in case.findings)
        found = differences(replace(case, findings=rows), rules[case.code], replace(outcome, findings=own), folder)
        if found:
            unlike[f"{case.code}: {case.name}"] = found
    return unlike


def _as_rank_0(finding: Finding) -> Finding:
    """``finding`` with the texts of a run's only rank."""

    def renamed(value: Any) -> Any:
        return value.replace(f"rank {finding.rank}", "rank 0") if isinstance(value, str) else value

    return replace(
        finding,
        subject=renamed(finding.subject),
        message=renamed(finding.message),
        evidence={key: renamed(value) for key, value in finding.evidence.items()},
    )
