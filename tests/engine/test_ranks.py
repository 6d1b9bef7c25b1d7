"""Many ranks are analysed separately and merged. The report equals the report from a single store with all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from events import begin, document, end, kernel, launch, loader, memcpy, runtime, step, x
from stores import findings_of

from perftool.engine.analysis import analysed, analyze, report_on
from perftool.engine.ranks.choice import choose_schedule
from perftool.engine.ranks.schedule import IN_PROCESS, Processes
from perftool.engine.rules import allowance
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.errors import InputError, SettingsError
from perftool.model.report import Finding, Report
from perftool.model.rule import Rule
from perftool.readers.discover import find_inputs
from perftool.reporters.json import as_dict, render_json

RULES = load_pack(builtin_folder())
STEP = 10_000
A100 = {"id": 0, "name": "NVIDIA A100-SXM4-80GB"}


def rank_events(late: int = 0, clock: float = 0.0, compute: int = 2000, steps: int = 3) -> list[dict[str, Any]]:
    """Return steps of 10 ms with a loader, launches, a kernel of ``compute`` us, and an all-reduce that ends at 9 ms.

    This rank reaches the all-reduce ``late`` us after the others, and its clock is ``clock`` us ahead.
    """
    events = []
    for number in range(steps):
        at = clock + number * STEP
        events += [
            step(number, at, STEP),
            loader(at + 10, 500 + number),
            x("aten::mm", at + 600, 400 + number),
            runtime("cudaLaunchKernel", at + 700, 20, 10 * number + 1),
            runtime("cudaLaunchKernel", at + 800, 20, 10 * number + 2),
            # The host waits for the device until the all-reduce ends.
            runtime("cudaDeviceSynchronize", at + 1000, 8000 + number),
            kernel("gemm", at + 900, compute - number, 10 * number + 1),
            kernel("ncclDevKernel_AllReduce", at + 5000 + late, 4000 - late + number, 10 * number + 2, stream=9,
                   **{"Collective name": "allreduce", "Process Group Name": "0", "In msg nelems": 9, "dtype": "Float"}),
        ]  # fmt: skip
    return events


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of four ranks. The second rank is late, the third rank's clock is 5 ms ahead, and the fourth rank computes
    more.
    """
    for rank, events in enumerate(
        [rank_events(), rank_events(late=3000), rank_events(clock=5000), rank_events(compute=4000)]
    ):
        write(tmp_path / f"rank{rank}.json", events, rank, 4)
    return tmp_path


def write(path: Path, events: list[dict[str, Any]], rank: int | None, world: int = 1, **metadata: Any) -> str:
    info = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": world}}
    path.write_bytes(document(events, **info, **metadata))
    return str(path)


def in_one_store(paths: Sequence[str], rules: Sequence[Rule] = RULES) -> Report:
    with analysed(find_inputs(paths, as_one_run=True)) as run:
        return report_on(run.whole, rules)


def only(*codes: str) -> list[Rule]:
    return [rule for rule in RULES if rule.code in codes]


def found(findings: Sequence[Finding]) -> list[tuple[str, int | None]]:
    return sorted((finding.code, finding.rank) for finding in findings)


def test_the_report_is_that_of_one_store(folder: Path) -> None:
    expected = in_one_store([str(folder)])

    assert ("COL103", 1) in found(expected.findings)
    assert ("COL108", 3) in found(expected.findings)
    assert as_dict(analyze([str(folder)], RULES, schedule=Processes(2))) == as_dict(expected)


def test_ranks_of_unequal_length_read_together_or_separately_give_one_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pinning saves nothing on the first rank, because its device is busy during the copies and its steps are short.
    for rank, lengths in enumerate([[STEP], [STEP, 3 * STEP], [STEP, 3 * STEP, 2 * STEP]]):
        write(tmp_path / f"rank{rank}.json", uneven(rank, lengths), rank, 3, deviceProperties=[A100])
    rules = only("CPY101", "ENG104", "GAP101", "COL102")
    together = analyze([str(tmp_path)], rules)
    monkeypatch.setattr("perftool.engine.ranks.batch.BATCH_BYTES", 1)

    assert render_json(analyze([str(tmp_path)], rules)) == render_json(together)
    pageable = [found for found in together.findings if found.code == "CPY101"]
    assert {found.rank: found.gain.kind for found in pageable if found.gain}[0] == "predicted"
    assert together.efficiency
    assert together.efficiency.best_ns


def uneven(rank: int, lengths: Sequence[int]) -> list[dict[str, Any]]:
    """Return steps of ``lengths`` us, with matmuls whose sizes differ between ranks and a copy from pageable memory."""
    events, at = [], 0
    for number, us in enumerate(lengths):
        first = 100 * number
        events += [
            step(number, at, us),
            *(event for nth in range(9) for event in product(at + 30 * nth, first + nth, 1000 + 37 * nth + 11 * rank)),
            *launch(first + 20, at + 300, 10, at + 400, us - 500, "rest"),
            x("aten::to", at + 400, 2000),
            runtime("cudaMemcpyAsync", at + 450, 1900, first + 21),
            memcpy("Memcpy HtoD (Pageable -> Device)", at + 2000, 20, first + 21, stream=9),
            runtime("cudaDeviceSynchronize", at + 2500, us - 2560),
        ]
        at += us
    return events


def product(at: int, number: int, rows: int) -> list[dict[str, Any]]:
    shapes = {"Input Dims": [[rows, 333], [333, 77]], "Input type": ["float", "float"]}
    return [x("aten::mm", at, 20, **shapes), *launch(number, at + 5, 5, at + 12, 10, "gemm")]


def test_times_count_from_the_zero_of_the_first_file(tmp_path: Path) -> None:
    for rank, base in enumerate([7_000_000_000, 9_000_000_000]):
        write(tmp_path / f"rank{rank}.json", rank_events(), rank, 2, baseTimeNanoseconds=base)

    joined = analyze([str(tmp_path)], only("COL102"))

    assert [one.ts_ns for one in joined.steps if one.rank == 1 and one.name == "ProfilerStep#0"] == [2_000_000_000]


def test_a_rank_has_its_load_waiting_and_clock(folder: Path) -> None:
    ranks = analyze([str(folder)], only("COL103")).ranks

    shown = [(r.rank, r.status, r.steps, r.compute_ns, r.waited_ns, r.offset_ns, r.spread_ns) for r in ranks]
    assert shown == [
        (0, "ok", 3, 5_997_000, 9_000_000, 0, 0),
        (1, "ok", 3, 5_997_000, 0, 0, 0),
        (2, "ok", 3, 5_997_000, 9_000_000, -5_000_000, 0),
        (3, "ok", 3, 11_997_000, 9_000_000, 0, 0),
    ]


def test_clocks_change_no_number_of_a_rank(folder: Path, tmp_path: Path) -> None:
    rules = only("COL102", "COL103", "GAP101")
    before = analyze([str(folder)], rules)
    write(folder / "rank2.json", rank_events(clock=0), 2, 4)
    after = analyze([str(folder)], rules)

    assert after.summary == before.summary
    assert [(f.code, f.rank, f.message) for f in after.findings] == [
        (f.code, f.rank, f.message) for f in before.findings
    ]


def test_a_damaged_rank_is_reported_and_the_others_analysed(folder: Path) -> None:
    (folder / "rank1.json").write_bytes(b"\x00\x01 this is not a trace")
    whole = (folder / "rank3.json").read_bytes()
    (folder / "rank3.json").write_bytes(whole[: len(whole) * 2 // 3])

    report = analyze([str(folder)], only("TRC000", "TRC101"))

    assert [(rank.rank, rank.status) for rank in report.ranks] == [(0, "ok"), (1, "unreadable"), (2, "ok"), (3, "ok")]
    assert {code for code, _ in found(report.findings)} >= {"TRC000", "TRC101"}
    assert [read.status for read in report.inputs] == ["ok", "ok", "truncated", "unreadable"]
    assert {one.rank for one in report.steps} == {0, 2, 3}


def test_a_run_without_readable_files_is_an_error(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_text("no trace")
    with pytest.raises(InputError, match="rank1"):
        analyze([str(tmp_path)], RULES)


def test_a_rank_without_device_work_is_a_finding(tmp_path: Path) -> None:
    """Only the trace of the other rank shows that the run has a device."""
    host = [event for event in rank_events() if event["cat"] != "kernel"]
    paths = [write(tmp_path / f"rank{at}.json", events, at, 2) for at, events in enumerate([rank_events(), host])]

    assert found(findings_of(paths, only("TRC103"))) == [("TRC103", 1)]


def test_events_that_cannot_become_slices_are_issues_of_their_file(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "rank0.json", rank_events(), 0, 2),
        write(tmp_path / "rank1.json", [*rank_events(), begin("open", 5), end(9, "other"), x("back", 3, -1)], 1, 2),
    ]

    joined = analyze(paths, only("TRC101"))

    assert [len(read.issues) for read in joined.inputs] == [0, 3]


def test_a_missing_rank_is_a_finding(folder: Path) -> None:
    (folder / "rank2.json").unlink()

    report = analyze([str(folder)], only("TRC107"))

    (missing,) = [finding for finding in report.findings if finding.code == "TRC107"]
    assert missing.message == "no trace of 1 of the run's 4 ranks was read: rank 2"
    assert [rank.rank for rank in report.ranks] == [0, 1, 3]


def test_ranks_given_twice_or_not_at_all_get_free_numbers(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "a.json", rank_events(), None),
        write(tmp_path / "b.json", rank_events(late=1000), 0),
        write(tmp_path / "c.json", rank_events(late=2000), 0),
    ]

    joined = analyze(paths, only("COL103"), as_one_run=True)

    assert [read.rank for read in joined.inputs] == [2, 0, 1]
    issues = [issue.message for read in joined.inputs for issue in read.issues]
    assert issues == [
        "the trace does not state its rank; its host, process and name suggest rank 2",
        "rank 0 was already read; this file is shown as rank 1",
    ]


def test_ranks_read_together_or_separately_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    # Sorted as text, these numbers would have a different order.
    ranks = [1, 2, 10]
    for rank in ranks:
        events = rank_events(steps=1, clock=rank * 10.0, late=100 * rank, compute=2000 + 300 * rank)
        write(tmp_path / f"rank{rank}.json", events, rank, 11)
    rules = only("COL102", "COL103", "COL108", "GAP101", "GAP102")

    report = analyze([str(tmp_path)], rules)

    assert [rank.rank for rank in report.ranks] == ranks
    assert [rank.offset_ns for rank in report.ranks] == [0, -10_000, -90_000]
    assert report.summary["steps"].value == 3
    # With a user's rule, each trace is a separate task.
    apart = analyze([str(tmp_path)], [*rules, rule("USR904", "SELECT 'never' AS subject WHERE false")])
    assert [one.rank for one in apart.steps] == ranks
    assert as_dict(apart) == as_dict(report)


def test_all_times_of_a_collective_count_from_the_zero_of_the_run(tmp_path: Path) -> None:
    """Times in a trace count from the zero of that trace. The second trace's zero is 1 ms later."""
    paths = [
        write(tmp_path / f"rank{rank}.json", rank_events(), rank, 2, baseTimeNanoseconds=10**18 + rank * 1_000_000)
        for rank in range(2)
    ]
    times = []
    for rules in ([], [rule("USR904", "SELECT 'never' AS subject WHERE false")]):
        with analysed(find_inputs(paths), rules) as run:
            times.append([(row["rank"], row["ts"], row["ready"]) for row in run.store.rows("collectives")])
    assert times[0] == times[1]


def test_a_row_without_a_rank_is_about_the_run_if_all_ranks_agree(folder: Path) -> None:
    for rank in (2, 3):
        (folder / f"rank{rank}.json").unlink()
    rules = [
        rule("USR901", "SELECT 'told by a log' AS subject, NULL::INTEGER AS rank"),
        rule("USR902", "SELECT 'the same everywhere' AS subject"),
        rule("USR903", "SELECT 'its own' AS subject, max(ts) AS n FROM device_ops WHERE kind = 'collective'"),
    ]

    assert [(finding.code, finding.rank) for finding in findings_of([str(folder)], rules)] == [
        ("USR901", None), ("USR902", None), ("USR903", 0), ("USR903", 1),
    ]  # fmt: skip


def test_omissions_of_a_rank_are_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in (2, 3):
        (folder / f"rank{rank}.json").unlink()
    many = rule("USR901", "SELECT 'n' || range AS subject FROM range(2000)")
    findings = findings_of([str(folder)], [*only("TRC001"), many])
    assert sum(finding.code == "USR901" for finding in findings) == 1_000
    assert [finding.message for finding in findings if "it found too many rows" in finding.message]
    monkeypatch.setattr(allowance, "MOST_BYTES", 0)
    (finding,) = findings_of([str(folder)], [*only("TRC001"), many])
    assert finding.message.startswith("rule USR901 failed: third-party rules may use")


def rule(code: str, sql: str) -> Rule:
    """Return a rule with scope "rank" and the query ``sql``."""
    pattern = next(rule for rule in RULES if rule.code == "TRC106")
    return replace(pattern, code=code, sql=sql, message="said", needs=(), params=())


@pytest.mark.parametrize(
    ("jobs", "scheduler", "expected"),
    [(None, None, IN_PROCESS), (1, "local", IN_PROCESS), (2, None, Processes(2)), (8, "local", Processes(3))],
)
def test_small_inputs_are_read_in_this_process_by_default(
    jobs: int | None, scheduler: str | None, expected: Any, tmp_path: Path
) -> None:
    paths = [write(tmp_path / f"{name}.json", rank_events(), None) for name in "abc"]
    assert choose_schedule(paths, jobs, scheduler) == expected


@pytest.mark.parametrize(
    ("jobs", "scheduler", "message"),
    [(0, None, "--jobs 0"), (2, "dask://somewhere:1", "--jobs requires"), (None, "slurm", "expected local, dask://")],
)
def test_a_wrong_schedule_is_refused(jobs: int | None, scheduler: str | None, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        choose_schedule(["a", "b"], jobs, scheduler)
