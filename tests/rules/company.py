"""Runs the cases of several rules in one analysis, because most of the time of a case is spent on building tables.

Cases with equal inputs share their tables. Other cases become the ranks of one run: a rule with scope "rank" finds the
same on each rank as it would find on that rank alone. Values about the steps of a run are computed for each rank.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from rule_cases import all_cases, pack

from perftool.engine.analysis import analysed, answered_by
from perftool.engine.report import overview
from perftool.engine.report.compose import conclude_only
from perftool.engine.rule_tests.case_traces import write_traces
from perftool.engine.rule_tests.cases import Case, differences, inputs_of, rule_for, run_case
from perftool.engine.rules.evaluate import Outcome, evaluate
from perftool.engine.rules.rule_queries import Context
from perftool.model.report import Device, Finding
from perftool.model.rule import Rule
from perftool.readers.discover import find_inputs
from perftool.store.trace_store import TraceStore

_MOST = 60
_DEVICE_WORK = {"kernel", "gpu_memcpy", "gpu_memset"}
# Parts of names by which rules may recognise a rank's device, or by which the gains on a Gaudi show its host.
_SIGNS = ("cuda", "hip", "xpu", "mtia", "hpu", "habana", "lazy", "nccl", "hccl", "graph", "enqueue")
_OWN_WINDOWS = """
SELECT w.rank, w.steps, w.dur AS ns, CASE WHEN u.uneven THEN (u.total_ns / u.steps)::BIGINT END AS mean_ns
FROM windows AS w LEFT JOIN _usual_steps AS u USING (rank)
"""


@cache
def groups() -> tuple[tuple[Case, ...], ...]:
    """Return the cases that may share a run, grouped by device. Every group contains at least two cases."""
    made = []
    for _, alike in groupby(sorted(filter(_may_share, all_cases()), key=device_of), device_of):
        cases = list(alike)
        made += [tuple(cases[at : at + _MOST]) for at in range(0, len(cases), _MOST)]
    return tuple(group for group in made if len(group) > 1)


@cache
def alone() -> tuple[tuple[Case, ...], ...]:
    """Return the cases outside of all groups, as tuples of cases with equal inputs."""
    shared = {(case.code, case.name) for group in groups() for case in group}
    alike: dict[Any, list[Case]] = defaultdict(list)
    for case in all_cases():
        if (case.code, case.name) not in shared:
            inputs = [case.events, case.files, case.logs, case.metadata, case.device, case.own_sql]
            alike[json.dumps(inputs, default=str)].append(case)
    return tuple(map(tuple, alike.values()))


def _may_share(case: Case) -> bool:
    """Whether ``case`` is a trace of one rank, without other files, to which a rule with scope "rank" applies."""
    rule = pack()[case.code]
    single = case.events and not any("rank" in event for event in case.events)
    lonely = case.logs or case.files or case.own_sql or not case.applicable or "lone_rank" in rule.needs
    of_run = any({"rank", "predicted_ns"} & set(row) for row in case.findings)
    return bool(single and rule.sql and rule.scope == "rank" and not lonely and not of_run)


def device_of(case: Case) -> str:
    """Return what all ranks of a run must share: the device, which rules apply to it, and whether its speed is
    measured.
    """
    on_gaudi = any("on" in event for event in case.events)
    works = on_gaudi or any(event.get("cat") in _DEVICE_WORK for event in case.events)
    makers = {str(one.get("name")).split()[0] for one in case.metadata.get("deviceProperties", ())}
    said = json.dumps([case.events, case.metadata]).lower()
    shown = [sign for sign in _SIGNS if sign in said]
    measured = case.metadata.get("perftoolRecording", {}).get("peaks")
    devices = pack()[case.code].devices
    cuda = {"any", "accelerators", "cuda"} & set(devices)
    if cuda and works and not on_gaudi and set(shown) <= {"cuda", "nccl", "graph"} and makers <= {"NVIDIA"}:
        # No other vendor's names occur, so these are NVIDIA GPUs.
        return json.dumps(["cuda", sorted(makers), measured], sort_keys=True)
    parts = [on_gaudi and case.device, works, devices, sorted(makers), shown, measured]
    return json.dumps(parts, sort_keys=True)


def differences_alone(cases: Sequence[Case], folder: Path) -> dict[str, list[str]]:
    """Return how the findings of ``cases`` differ from the expected ones. All cases must have the same inputs."""
    first = cases[0]
    if first.own_sql is not None:
        outcomes: Iterator[Outcome] = (run_case(case, pack()[case.code], folder) for case in cases)
        return _unlike(cases, outcomes, folder)
    rules = [rule_for(case, pack()[case.code]) for case in cases]
    with analysed(inputs_of(first, folder), rules) as run:
        return _unlike(cases, (answered_by(conclude_only, run.whole, [rule]) for rule in rules), folder)


def differences_in_company(cases: Sequence[Case], folder: Path) -> dict[str, list[str]]:
    """Return how the findings of ``cases`` differ from the expected ones if the cases are ranks of one run."""
    for rank, case in enumerate(cases):
        write_rank(case, rank, folder)

    paths = [str(folder / f"run{rank}.json") for rank in range(len(cases))]
    # Rules run without their predictions, which would be about the whole run.
    rules = [replace(pack()[case.code], whatif=None, whatif_ranks=None) for case in cases]
    with analysed(find_inputs(paths, as_one_run=True), rules) as run:
        outcomes = answered_by(_of_ranks, run.whole, rules)
        return _unlike(cases, (_own_outcome(outcome, rank) for rank, outcome in enumerate(outcomes)), folder)


def write_rank(case: Case, rank: int, folder: Path) -> Path:
    """Write the trace of ``case`` into ``folder``, as the trace of ``rank``."""
    (written,) = write_traces(case.events, case.metadata, case.device, folder)
    trace = json.loads(written.read_bytes())
    written.unlink()
    info = {**trace.get("distributedInfo", {}), "rank": rank}
    path = folder / f"run{rank}.json"
    path.write_text(json.dumps({**trace, "distributedInfo": info}), encoding="utf-8")
    return path


def _of_ranks(store: TraceStore, rules: Sequence[Rule], device: Device, _: Any) -> list[Outcome]:
    """Return what each of ``rules`` finds in ``store``. The context of each rule contains the values of the rank whose
    number is the position of the rule in ``rules``.
    """
    store.build(["windows", "_usual_steps"])
    windows = {row["rank"]: row for row in store.select(_OWN_WINDOWS)}
    lengths: dict[int, list[int]] = defaultdict(list)
    for step in overview.steps(store):
        if not step.partial:
            lengths[step.rank].append(step.dur_ns)
    word = overview.run(store).step_word
    outcomes: dict[tuple[str, Context], Outcome] = {}
    keys = []
    for rank, rule in enumerate(rules):
        own = windows.get(rank, {"steps": 0, "ns": 0, "mean_ns": None})
        usual_ns = own["mean_ns"] or overview.median(lengths[rank])
        context = Context(device.type, own["steps"], usual_ns, own["ns"], step_word=word, describes=False)
        keys.append((rule.code, context))
        # Many cases of a rule have steps of the same lengths.
        if keys[-1] not in outcomes:
            outcomes[keys[-1]] = evaluate(store, [rule], context)
    return [outcomes[key] for key in keys]


def _own_outcome(outcome: Outcome, rank: int) -> Outcome:
    """Return ``outcome`` with only the findings of ``rank``, as if the run had no other rank."""
    own = tuple(_as_rank_0(finding) for finding in outcome.findings if finding.rank in (rank, None))
    return replace(outcome, findings=own)


def _unlike(cases: Sequence[Case], outcomes: Iterator[Outcome], folder: Path) -> dict[str, list[str]]:
    unlike = {}
    for case, outcome in zip(cases, outcomes, strict=True):
        found = differences(case, pack()[case.code], outcome, folder)
        if found:
            unlike[f"{case.code}: {case.name}"] = found
        shares = [finding.gain.share_of_step for finding in outcome.findings if finding.gain]
        assert all(0 <= share <= 1 for share in shares), (case.code, case.name)
    return unlike


def _as_rank_0(finding: Finding) -> Finding:
    """Return ``finding`` with the wording that it would have if the run had only one rank."""

    def renamed(value: Any) -> Any:
        return value.replace(f"rank {finding.rank}", "rank 0") if isinstance(value, str) else value

    return replace(
        finding,
        subject=renamed(finding.subject),
        message=renamed(finding.message),
        evidence={key: renamed(value) for key, value in finding.evidence.items()},
    )
