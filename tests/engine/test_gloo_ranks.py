"""Ranks on CPUs that reduce with gloo: which rank keeps the others waiting, and at what cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from events import document, meta, step, x
from stores import findings_of

from perftool.engine.analysis import analysed, analyze
from perftool.engine.rules.pack import shipped_rules
from perftool.model.report import Report
from perftool.readers.discover import find_inputs

STEPS, RANKS = 5, 3
COLLECTIVES = [rule for rule in shipped_rules() if rule.code.startswith("COL")]
# A rank's work before the first reduction, between the two and after both, and the duration of a reduction; all in us.
FORWARD, BACKWARD, UPDATE, WIRE = 4_000, 2_000, 1_000, 1_500
SLEEP = 20_000


def _write(
    folder: Path, sleeper: int | None, *, computes: bool = False, rows: int = 512, steps: int = STEPS, awake: int = 0
) -> int:
    """Write the trace of each rank, and return the length of a step in us. After ``awake`` steps, the rank ``sleeper``
    sleeps for SLEEP in each step, or computes for that time if ``computes`` is set. Its inputs have ``rows`` rows
    instead of 512.
    """
    size = {rank: {"Input Dims": [[rows if rank == sleeper else 512, 512], [512, 512]], "Input type": ["float"] * 2}
            for rank in range(RANKS)}  # fmt: skip
    begin, events = 0, {rank: [meta("thread_name", "pt_gloo_runloop", tid=2)] for rank in range(RANKS)}
    for number in range(steps):
        asleep = {rank: SLEEP if rank == sleeper and number >= awake else 0 for rank in range(RANKS)}
        forward = {rank: FORWARD + computes * asleep[rank] for rank in range(RANKS)}
        ready = {rank: begin + 100 + asleep[rank] + FORWARD + 7 * rank for rank in range(RANKS)}
        first_done = max(ready.values()) + WIRE
        # Each bucket's reduction runs in its own thread, so both wait at the same time.
        second = {rank: at + BACKWARD for rank, at in ready.items()}
        second_done = max(max(second.values()), first_done) + WIRE
        end = second_done + 50 + UPDATE + 100
        for rank, at in ready.items():
            events[rank] += [
                step(number, begin, end - begin),
                x("aten::linear", at - forward[rank] - 20, forward[rank] + 20),
                x("aten::mm", at - forward[rank], forward[rank], **size[rank]),
                x("c10d::allreduce_", at - 10, 5),
                _gloo(at, first_done, 2),
                x("aten::mm", at, BACKWARD - 20),
                x("c10d::allreduce_", second[rank] - 10, 5),
                _gloo(second[rank], second_done, 3),
                # The program waits here for both reductions. Threads need a moment to wake up.
                x("torch.distributed.ddp.reducer::copy_bucket_to_grad", second_done + 30, 10),
                x("aten::add_", second_done + 50, UPDATE),
            ]
        begin = end
    for rank, found in events.items():
        info = {"backend": "gloo", "rank": rank, "world_size": RANKS}
        (folder / f"rank{rank}.json").write_bytes(document(found, distributedInfo=info))
    return begin // steps


def _gloo(begin: int, end: int, thread: int) -> dict[str, Any]:
    shape = {"Input Dims": [[262_144]], "Input type": ["float"]}
    return x("gloo:all_reduce", begin, end - begin, cat="user_annotation", tid=thread, **shape)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, int]:
    """A run in which rank 1 sleeps, a run in which no rank does, and the cost of the sleep per step in us."""
    late, well = tmp_path_factory.mktemp("late"), tmp_path_factory.mktemp("well")
    took = _write(late, 1)
    return late, well, took - _write(well, None)


@pytest.fixture(scope="module")
def report(runs: tuple[Path, Path, int]) -> Report:
    return analyze([str(runs[0])])


def test_a_rank_that_sleeps_is_named_with_the_cost(report: Report, runs: tuple[Path, Path, int]) -> None:
    first = report.findings[0]
    assert report.verdict.headline.startswith(
        "Rank 1 keeps 2 ranks waiting in 5 of 5 steps: no op computes on it for 20"
    )
    assert first.code == "COL103"
    assert first.gain
    assert first.gain.kind == "predicted"
    assert first.gain.ns_per_step / 1_000 == pytest.approx(runs[2], rel=0.1)


@pytest.mark.parametrize(
    ("rows", "words", "advice"),
    [(512, "the same number of ops, each ", "Find what runs on this rank's cores but not on rank"),
     (2048, "the same number of ops, on 3", "Give every rank the same amount of work")],
    ids=["slow core", "more data"],
)  # fmt: skip
def test_larger_inputs_are_not_taken_for_a_slow_core(rows: int, words: str, advice: str, tmp_path: Path) -> None:
    _write(tmp_path, 1, computes=True, rows=rows)
    first = findings_of([str(tmp_path)], COLLECTIVES)[0]
    assert first.code == "COL103"
    assert words in first.message

    assert first.short_fix.startswith(advice)


def test_nobody_is_named_in_a_healthy_run(runs: tuple[Path, Path, int]) -> None:
    assert findings_of([str(runs[1])], COLLECTIVES) == ()


@pytest.mark.parametrize(("steps", "awake", "named"), [(25, 7, True), (25, 8, False), (7, 1, False)])
def test_a_rank_on_cpus_is_named_only_if_late_beyond_chance(
    steps: int, awake: int, named: bool, tmp_path: Path
) -> None:
    _write(tmp_path, 1, steps=steps, awake=awake)

    codes = [found.code for found in findings_of([str(tmp_path)], COLLECTIVES)]

    assert ("COL103" in codes) == named


def test_waiting_in_two_reductions_at_once_counts_once(runs: tuple[Path, Path, int]) -> None:
    with analysed(find_inputs([str(runs[0])])) as opened:
        _, ranks = opened.query("SELECT rank, waited_ns FROM ranks ORDER BY rank")
        _, pairs = opened.query("SELECT last_rank, waited_ns, exposed_ns FROM waits_for WHERE rank = 0")
    waited = {rank: ns / STEPS for rank, ns in ranks}
    # Rank 0 waits from its first reduction until rank 1 arrives at the second, and also computes during BACKWARD.
    assert waited[0] == pytest.approx(1_000 * (SLEEP + BACKWARD), rel=0.01)
    assert waited[1] < 0.01 * waited[0]
    assert [last for last, _, _ in pairs] == [1]
    assert pairs[0][1] == pytest.approx(waited[0], rel=0.01)
    assert pairs[0][2] == pytest.approx(1_000 * SLEEP, rel=0.01)
