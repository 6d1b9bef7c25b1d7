"""The first sentence identifies the culprit, and its cost is the time that the run would save without it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
from builders.cluster import Layout, Simulated, Trouble, simulate
from stores import findings_of

import perftool
from perftool.engine.analysis import analysed, analyze
from perftool.engine.ranks.schedule import InProcess
from perftool.engine.report.parallel import group_roles, parallel_text
from perftool.engine.rules.pack import shipped_rules
from perftool.errors import PerfToolError
from perftool.model.report import Finding
from perftool.readers.discover import find_inputs

# The rules that blame a rank, and the rules about the trace itself. Only a few cases run the whole pack.
ACCUSING = [rule for rule in shipped_rules() if rule.code.startswith(("COL", "TRC"))]
ACCUSERS = {"COL103", "COL109", "COL110", "COL111", "COL112", "COL116"}
# ``ddp`` has None because an unnamed group of all ranks does not reveal how the run is parallelised.
PARALLEL = {"ddp": None, "tp": "tp 4 x dp 2", "pp": "dp 2 x pp 4", "ep": "ep 4 x dp 2", "hsdp": "shard 4 x replicate 2"}
DDP, TP, PP, EP, HSDP = (Layout(kind, layers=4, micro=6) for kind in ("ddp", "tp", "pp", "ep", "hsdp"))


@dataclass(frozen=True)
class Case:
    """A run with ``troubles``, the code of the rule that should report them, the start of the report's headline
    (``says``) and a string that the headline must contain (``why``).
    """

    layout: Layout
    troubles: tuple[Trouble, ...]
    code: str
    says: str
    why: str = ""
    whole_pack: bool = False


CASES = {
    "a slow device, collectives queueing": Case(
        DDP, (Trouble("device", (6,), 1.3),), "COL103", "Rank 6 keeps 7 ranks waiting in 5 of 5 steps",
        "the same number of kernels, each 1.30 times as long", whole_pack=True),
    "more tokens": Case(
        TP, (Trouble("tokens", (5,), 1.25),), "COL103", "Rank 5 keeps 7 ranks waiting in 5 of 5 steps",
        "1.25 times as many kernels"),
    "a slow loader in a pipeline": Case(
        PP, (Trouble("loader", (2,), 9_000.0),), "COL103", "Rank 2 keeps 7 ranks waiting in 5 of 5 steps",
        "for the data loader in such a step, compared with ", whole_pack=True),
    "two culprits of two kinds": Case(
        HSDP, (Trouble("loader", (2,), 9_000.0), Trouble("device", (5,), 1.4)), "COL103", "Ranks 2 and 5 keep 6"),
    "a pause in every other step": Case(
        TP, (Trouble("pause", (3,), 20_000.0, every=2, first=1),), "COL103",
        "Rank 3 keeps 7 ranks waiting in 3 of 5 steps, every other one", "for its host"),
    "a checkpoint behind the last collective": Case(
        DDP, (Trouble("save", (0,), 30_000.0, every=4, first=2),), "COL112",
        "Rank 0 keeps 7 ranks waiting in 1 of 5 steps"),
    "a slow stage": Case(
        PP, (Trouble("device", (4, 5), 1.3),), "COL103",
        "Stage 2 (ranks 4 and 5) keeps 6 ranks waiting in 5 of 5 steps"),
    "slow links of a group": Case(
        EP, (Trouble("link", (4, 5, 6, 7), 4.0),), "COL109", "The links between ranks 4-7 are slow", whole_pack=True),
    "slow links of a replica group": Case(
        TP, (Trouble("link", (2, 6), 4.0),), "COL109", "The links between ranks 2, 6 are slow"),
}  # fmt: skip


@cache
def truth(layout: Layout) -> Simulated:
    return simulate(layout)


def assert_named(findings: Sequence[Finding], case: Case, cost_us: float) -> None:
    """The headline of a report is the message of its first finding if that finding is about a culprit."""
    first = findings[0]
    assert first.message.startswith(case.says[:1].lower() + case.says[1:])
    assert case.why in first.message
    assert first.code == case.code
    assert first.gain
    assert first.gain.kind == "predicted"
    assert first.gain.ns_per_step / 1_000 == pytest.approx(cost_us, rel=0.1)
    assert {found.code for found in findings} & ACCUSERS == {case.code}


@pytest.mark.parametrize("name", CASES)
def test_the_culprit_is_named_with_its_cost(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    run = simulate(case.layout, case.troubles)
    run.write(tmp_path)
    findings = findings_of([str(tmp_path)], None if case.whole_pack else ACCUSING)
    assert_named(findings, case, run.step_us - truth(case.layout).step_us)
    assert case.code != "COL109" or "COL113" not in {found.code for found in findings}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [64, 256])
@pytest.mark.parametrize("kind", ["ddp", "tp", "pp", "ep", "hsdp"])
def test_a_slow_host_of_many_is_named_with_the_cost(kind: str, ranks: int, tmp_path: Path) -> None:
    # With fewer microbatches, a pipeline of eight stages has a bubble long enough to hide a slow stage.
    layout = Layout(kind, ranks, 8, layers=2, micro=16)
    run = simulate(layout, [Trouble("device", tuple(range(8, 16)), 1.3)], steps=2)
    run.write(tmp_path)
    # With 64 ranks, a pipeline has eight stages of eight ranks, so the slow host is one of the stages.
    a_stage = kind == "pp" and ranks == 64
    code, who = ("COL103", "Stage 1 (ranks 8-15; node001)") if a_stage else ("COL110", "Host node001 (ranks 8-15)")
    assert_named(
        findings_of([str(tmp_path)]),
        Case(layout, (), code, f"{who} keeps"),
        run.step_us - simulate(layout, steps=2).step_us,
    )


def test_slow_links_of_all_groups_are_predicted_together(tmp_path: Path) -> None:
    run = simulate(TP, [Trouble("link", group, 5.0) for group in ((0, 1, 2, 3), (4, 5, 6, 7))], steps=2)
    run.write(tmp_path)
    findings = findings_of([str(tmp_path)], ACCUSING)
    first = findings[0]
    assert first.code == "COL116"
    assert first.gain
    assert first.gain.kind == "predicted"
    # The fix promises half of the rated bandwidth. In the simulation, healthy links stay slightly below that.
    assert first.gain.ns_per_step / 1_000 == pytest.approx(run.step_us - simulate(TP, steps=2).step_us, rel=0.1)
    assert "COL113" not in {found.code for found in findings}


@pytest.mark.parametrize("layout", [DDP, TP, PP, EP, HSDP], ids=lambda layout: layout.kind)
def test_no_rank_of_a_healthy_run_is_accused(layout: Layout, tmp_path: Path) -> None:
    truth(layout).write(tmp_path)
    with analysed(find_inputs([str(tmp_path)]), ACCUSING) as run:
        assert {found.code for found in run.outcome.findings} & ACCUSERS == set()
        assert parallel_text(run.store, group_roles(run.store), layout.ranks) == PARALLEL[layout.kind]


def test_the_culprit_is_found_despite_a_missing_and_a_cut_off_rank(tmp_path: Path) -> None:
    run = simulate(TP, [Trouble("loader", (5,), 9_000.0)])
    run.write(tmp_path, leave_out=[2])
    cut = tmp_path / "node000/rank3.json"
    whole = cut.read_bytes()
    cut.write_bytes(whole[: 7 * len(whole) // 10])

    report = analyze([str(tmp_path)], ACCUSING)

    assert report.verdict.headline.startswith("Rank 5 keeps")
    assert {"TRC101", "TRC107"} <= {found.code for found in report.findings}
    assert "Rank 2 has no trace here, so it is unknown whether others wait for it." in report.verdict.caveats


def test_the_culprit_is_found_despite_a_missing_rank_of_its_stage(tmp_path: Path) -> None:
    run = simulate(PP, [Trouble("loader", (2,), 9_000.0)])
    run.write(tmp_path, leave_out=[3])
    case = Case(PP, (), "COL103", "Rank 2 keeps 6 ranks waiting in 5 of 5 steps", "for the data loader")
    assert_named(findings_of([str(tmp_path)], ACCUSING), case, run.step_us - truth(PP).step_us)


def test_a_culprit_whose_own_recording_ends_early_is_found_although_clocks_drift(tmp_path: Path) -> None:
    run = simulate(TP, [Trouble("loader", (2,), 9_000.0)])
    run.write(tmp_path, kept={2: 0.5}, drift=1e-4)
    case = Case(TP, (), "COL103", "Rank 2 keeps 7 ranks waiting in 2 of 2 steps", "for the data loader")
    assert_named(findings_of([str(tmp_path)], ACCUSING), case, run.step_us - truth(TP).step_us)


def test_a_rank_and_slow_links_are_both_in_the_first_lines(tmp_path: Path) -> None:
    pause, links = Trouble("pause", (1,), 20_000.0, every=4, first=1), Trouble("link", (4, 5, 6, 7), 4.0)
    run = simulate(TP, [pause, links], steps=5)
    run.write(tmp_path)
    report = analyze([str(tmp_path)], ACCUSING)
    first, second = report.findings[:2]
    assert report.run.parallel == PARALLEL["tp"]
    assert report.verdict.headline.startswith("Rank 1 keeps 7 ranks waiting in 2 of 5 steps, every 4th")
    assert report.verdict.headline.endswith("In addition, the links between ranks 4-7 are slow (COL109).")
    assert (first.code, second.code) == ("COL112", "COL109")
    assert second.gain
    paused = simulate(TP, [pause], steps=5).step_us
    assert second.gain.ns_per_step / 1_000 == pytest.approx(run.step_us - paused, rel=0.1)


@pytest.mark.parametrize("layout", [replace(PP, scale=0.1), replace(DDP, scale=0.2)])
def test_a_host_that_launches_late_is_predicted(layout: Layout, tmp_path: Path) -> None:
    run = simulate(layout, [Trouble("host", (3,), 12.0)], steps=3)
    run.write(tmp_path)
    first, cost_us = findings_of([str(tmp_path)], ACCUSING)[0], run.step_us - simulate(layout, steps=3).step_us
    assert first.message.startswith("rank 3 keeps 7 ranks waiting in 3 of 3 steps: its device waits")
    assert first.gain
    assert first.gain.kind == "predicted"
    assert first.gain.ns_per_step / 1_000 == pytest.approx(cost_us, rel=0.05)


def test_without_the_trace_of_the_culprit_nobody_is_named(tmp_path: Path) -> None:
    simulate(TP, [Trouble("loader", (5,), 9_000.0)]).write(tmp_path, leave_out=[5])
    assert {found.code for found in findings_of([str(tmp_path)], ACCUSING)} & ACCUSERS == set()


def test_whatif_without_a_straggler_replays_all_ranks(tmp_path: Path) -> None:
    layout = replace(DDP, ranks=3, layers=2)
    run = simulate(layout, [Trouble("loader", (1,), 9_000.0)], steps=2)
    run.write(tmp_path)

    found = perftool.whatif(tmp_path, ["COL103"])

    assert (found.rank, found.ranks, found.steps, found.why_not) == (None, 3, 2, None)
    assert found.measured_step_ns is not None
    assert found.predicted_step_ns is not None
    saved = found.measured_step_ns - found.predicted_step_ns
    assert saved / 1_000 == pytest.approx(run.step_us - simulate(layout, steps=2).step_us, rel=0.02)
    with pytest.raises(PerfToolError, match="COL103 applies to all ranks together, but --rank 1 applies to one rank"):
        perftool.whatif(tmp_path, ["COL103"], rank=1)
    with pytest.raises(PerfToolError, match=r"COL110 .slow-host.: the rule finds nothing in this run"):
        perftool.whatif(tmp_path, ["COL110"])


def test_the_cost_is_also_predicted_from_one_recorded_step(tmp_path: Path) -> None:
    run = simulate(DDP, [Trouble("device", (6,), 1.3)], steps=1)
    run.write(tmp_path)
    case = Case(DDP, (), "COL103", "Rank 6 keeps 7 ranks waiting in the one step recorded")
    report = analyze([str(tmp_path)], ACCUSING)
    assert_named(report.findings, case, run.step_us - simulate(DDP, steps=1).step_us)
    assert report.verdict.headline.startswith(case.says)
    # With a single group, no rank can be late because it waits for a rank of another group.
    assert "only because" not in report.verdict.caveats
    assert report.verdict.headline.endswith("(predicted from one step).")


class TwoTasks(InProcess):
    """Analyses the ranks in two separate stores and joins their tables."""

    @property
    def workers(self) -> int:
        return 2


def test_two_tasks_give_the_report_of_one_including_ranks_that_only_wait(tmp_path: Path) -> None:
    # The traces contain the backend of their groups, which proves that the run uses a device.
    simulate(TP, [Trouble("device", (6,), 1.3)], steps=2).write(tmp_path)
    one, two = (analyze([str(tmp_path)], ACCUSING, schedule=schedule) for schedule in (InProcess(), TwoTasks()))
    assert "Ranks 4, 5, 7 are late in dp only because they wait for rank 6 in tp." in one.verdict.caveats
    assert two.verdict == one.verdict
    assert two.findings == one.findings


def test_the_bound_of_an_unexplained_wait_refers_to_the_median_step(tmp_path: Path) -> None:
    # Rank 0 starts its only step late, because of something that happened before the recording.
    for rank, (begin, wait) in enumerate([(4_000, 100), (0, 4_100), (0, 4_100)]):
        kernels = [
            ("gemm", begin, 1_000, 7), ("ncclDevKernel_AllReduce_Sum", begin + 1_000, wait, 8),
            ("adam", begin + 1_000 + wait, 500, 7),
        ]  # fmt: skip
        slices = [
            ("user_annotation", "ProfilerStep#1", begin, 5_600 - begin, 1),
            *(("kernel", *one) for one in kernels),
        ]
        events = [
            {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 0, "tid": tid}
            for cat, name, ts, dur, tid in slices
        ]
        trace = {"distributedInfo": {"rank": rank, "world_size": 3}, "traceEvents": events}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace), encoding="utf-8")
    report = analyze([str(tmp_path)], ACCUSING)
    assert report.summary["step_time_ms"].value == 5.6
    assert "The recording does not show why" in report.verdict.headline
    assert report.verdict.headline.endswith("this costs up to 4.00 ms of the 5.60 ms step.")
