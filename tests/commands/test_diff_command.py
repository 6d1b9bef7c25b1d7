"""``diff`` on traces, folders and saved reports, with its exit codes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from builders.program import Run
from events import begin, document, end, kernel, launch, runtime, step, x

# These tests are about step times, so one rule is enough.
DIFF = ("diff", "--select", "GAP101")


def run_of(name: str, step_us: int) -> str:
    """Write a trace with ten steps of about ``step_us``."""
    events, at = [], 0
    for number in range(10):
        dur = step_us + number % 3 * step_us // 100
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": at, "dur": dur},
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": at + 1, "dur": dur - 2},
        ]
        at += dur + 1
    Path(name).write_text(json.dumps({"traceEvents": [{"pid": 1, "tid": 1, **event} for event in events]}))
    return name


@pytest.mark.parametrize(
    ("new_us", "limit", "code"),
    [(1000, "slower:5%", 0), (1200, "slower:5%", 1), (1200, "slower:50%", 0), (500, "slower:5%", 0)],
)
def test_the_condition_decides_the_exit_code(run: Run, new_us: int, limit: str, code: int) -> None:
    new = "base.json" if new_us == 1000 else "new.json"
    arguments = (run_of("base.json", 1000), run_of(new, new_us), "--fail-if", limit)
    assert run(*DIFF, *arguments) == code
    assert run.out.startswith("Median step 1.01 ms -> ")


def test_saved_reports_compare_like_their_traces(run: Run) -> None:
    paths = []
    for name, step_us in (("base", 1000), ("new", 1200)):
        paths.append(f"{name}-report.json")
        saved = ("--select", "GAP101", "--output-format", "json", "-o", paths[-1])
        assert run("analyze", run_of(f"{name}.json", step_us), *saved) == 0
    assert run(*DIFF, "base.json", "new.json", "--output-format", "json") == 0
    traced = json.loads(run.out)
    assert run(*DIFF, *paths, "--output-format", "json", "--fail-if", "slower:5%") == 1
    saved = json.loads(run.out)
    assert saved["interval"] == traced["interval"]
    assert saved["breakdown"] == traced["breakdown"]
    assert saved["base"]["name"] == "base-report.json"


def test_a_trace_with_the_keys_of_a_saved_report_is_a_trace(run: Run) -> None:
    assert run("analyze", "--select", "GAP101", run_of("base.json", 1000), "--output-format", "json") == 0
    saved = json.loads(run.out)
    slow = json.loads(Path(run_of("new.json", 1200)).read_bytes())
    Path("both.json").write_text(json.dumps({**saved, **slow}))

    assert run(*DIFF, "base.json", "both.json", "--fail-if", "slower:5%") == 1


def test_as_one_run_makes_a_folder_one_run(run: Run) -> None:
    Path("a").mkdir()
    for world in (2, 4):
        trace = Path(run_of(f"a/{world}.json", 1000))
        trace.write_text(json.dumps({**json.loads(trace.read_text()), "distributedInfo": {"world_size": world}}))
    assert run(*DIFF, "a", "a") == 0
    assert "a contains 2 recordings; analysing the newest: 4" in run.err
    assert run(*DIFF, "a", "a", "--as-one-run") == 0


def test_a_configuration_that_comes_with_the_inputs_does_not_turn_the_gate_off(run: Run) -> None:
    base = folder_of("base", rank_of(0, 1000), rank_of(1, 1000))
    new = folder_of("new", rank_of(0, 1000), rank_of(1, 2000))
    Path("new/habana_perf_tool.toml").write_text('exclude = ["rank1*"]\n')
    assert run(*DIFF, base, new, "--fail-if", "slower:5%") == 1
    assert "is ignored, because the author of the inputs may have written it" in run.err
    assert run(*DIFF, "new/rank0.json", new, "--fail-if", "slower:5%", "--trust-config") == 0


def test_the_gate_does_not_pass_too_few_steps(run: Run) -> None:
    Path("base.json").write_bytes(document(passes(3, 1000)))
    base, new = (str(Path(name).resolve()) for name in ("base.json", with_launches("new.json", 10, steps=3)))
    assert run(*DIFF, base, new, "--fail-if", "slower:1%", "--output-format", "markdown") == 2
    assert run.err.splitlines()[-1].startswith("habana_perf_tool: the runs are not judged: 3 steps are too few")
    assert "significance cannot be judged" in run.out
    assert "GAP101" in run.out.split("**New findings**")[1]
    assert str(Path.cwd()) not in run.out


def folder_of(name: str, *ranks: bytes) -> str:
    Path(name).mkdir()
    for rank, trace in enumerate(ranks):
        Path(name, f"rank{rank}.json").write_bytes(trace)
    return name


def rank_of(rank: int, step_us: int, count: int = 10, first: int = 0) -> bytes:
    """Return a trace of ``rank`` with ``count`` steps, which are numbered from ``first``."""
    events = [
        part
        for number in range(count)
        for part in (step(first + number, number * step_us, step_us), x("aten::mm", number * step_us + 1, step_us - 2))
    ]
    return document(events, distributedInfo={"rank": rank, "world_size": 2, "backend": "nccl"})


SLOW = rank_of(1, 2000)


def steps_of(rank: int, more: Sequence[dict[str, Any]] = ()) -> bytes:
    """Return a trace of one of 13 ranks, with ten steps of 1 ms and ``more`` events."""
    return document([*passes(10, 1000), *more], distributedInfo={"rank": rank, "world_size": 13, "backend": "nccl"})


def test_the_gate_fails_if_ranks_are_damaged(run: Run) -> None:
    """Each rank from 1 on has lost something."""
    whole = steps_of(1)
    unplaced = [{"dur": None}, *({"ph": phase, "ts": ts} for phase in "BECs" for ts in (None, "10 us"))]
    unknown = [{"ph": "x"}, {"ph": None}, {"name": None}]
    event = x("aten::mm", 1, 2)
    impossible = [kernel("k", 20, dur, number) for number, dur in enumerate((-1, 10**13, 10**9))]
    damaged = {
        "rank1.json.gz: the gzip stream is damaged": b"\x1f\x8b\x08" + bytes(5) + b"\0\3" + b"garbage" * 999,
        "rank2.json: the trace is truncated": steps_of(2)[: len(whole) // 2],
        "rank3.json: the trace is truncated": b'{"traceEvents":[garbage' * 500,
        "rank4.json: 1 event (": steps_of(4).replace(b'"ProfilerStep#3"', bytes(16)),
        "rank5.json: empty file": b"",
        "rank6.json: 1 event with no start time": steps_of(6, [event | {"dur": None}]),
        "rank7.json: 9 events with no start time": steps_of(7, [event | one for one in unplaced]),
        f"rank8.json: {len(unknown)} events without a known phase or a name": steps_of(
            8, [event | one for one in unknown]
        ),
        "rank9.json: 3 device events of impossible length": steps_of(9, impossible),
        "rank10.json: 1 device event of impossible length was set aside (the first: late at ts ": steps_of(
            10, late_work(0, "late", 6, 500_000)
        ),
        "rank11.json: 30 objects in the event array without any event key were left out": steps_of(
            11, [{"event": one} for one in passes(10, 4000, first=10, at=10_000)[:30]]
        ),
        "rank12.json: ": steps_of(12) + steps_of(12),
    }
    # An empty object is no loss.
    folder_of("base", steps_of(0, [{}]))
    folder_of("new", steps_of(0))
    for said, trace in damaged.items():
        Path("new", said.split(":")[0]).write_bytes(trace)
    assert run(*DIFF, "base", "new", "--fail-if", "slower:5%", "--output-format", "json") == 2
    sentence = "habana_perf_tool: the new run is incomplete, so it is not judged: new/rank"
    assert run.err.splitlines()[-1].startswith(sentence)
    lost = json.loads(run.out)["new"]["lost"]
    assert [said for said in damaged if not any(text.startswith(f"new/{said}") for text in lost)] == []
    assert any("bytes after the event array were not used" in text for text in lost)
    assert run(*DIFF, "base", "new") == 0
    assert "The new run is incomplete: new/rank" in run.out


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (rank_of(1, 2000, 0), "base has complete steps of ranks 0-1, new has complete steps of rank 0"),
        (b"{}", "base has ranks 0-1, new has rank 0"),
    ],
)
def test_the_gate_fails_if_a_rank_is_missing(run: Run, other: bytes, sentence: str) -> None:
    base = folder_of("base", rank_of(0, 1000), rank_of(1, 1000))
    new = folder_of("new", rank_of(0, 1000), other)
    assert run(*DIFF, base, new, "--fail-if", "slower:5%") == 2
    said = f"habana_perf_tool: the ranks differ, so the runs are not judged: {sentence}"
    assert run.err.splitlines()[-1].startswith(said)


def test_the_gate_fails_for_a_saved_report_on_a_cut_off_trace(run: Run) -> None:
    base = folder_of("base", rank_of(0, 1000), rank_of(1, 1000))
    new = folder_of("new", rank_of(0, 1000), SLOW[: len(SLOW) // 2])
    assert run("analyze", "--select", "GAP101", new, "--output-format", "json", "-o", "report.json") == 0
    note = "run is incomplete: new/rank1.json: the trace is truncated."
    assert run(*DIFF, base, "report.json", "--output-format", "markdown", "--fail-if", "slower:5%") == 2
    assert f"The new {note}" in run.out
    assert run(*DIFF, "report.json", base, "--fail-if", "slower:5%") == 2
    assert f"The base {note}" in run.out
    assert run(*DIFF, base, "report.json", "--output-format", "json") == 0
    assert json.loads(run.out)["new"]["lost"] == ["new/rank1.json: the trace is truncated"]


def without_steps(rank: int, dur_us: int) -> bytes:
    return document([x("aten::mm", 0, dur_us)], distributedInfo={"rank": rank, "world_size": 2, "backend": "nccl"})


@pytest.mark.parametrize(
    ("slow", "code", "sentence"),
    [
        # The many steps of a fast rank must not hide a slow rank that has fewer steps, with other numbers.
        (rank_of(1, 2000, 9, first=100), 1, ""),
        (rank_of(1, 2000, 4), 2, "the new run is not judged: each rank needs at least 5 complete steps, and rank 1"),
        (without_steps(1, 20_000), 2, "so the runs are not judged: base has complete steps of ranks 0-1"),
    ],
)  # fmt: skip
def test_the_gate_judges_each_rank(run: Run, slow: bytes, code: int, sentence: str) -> None:
    base = folder_of("base", rank_of(0, 1000), rank_of(1, 1000))
    new = folder_of("new", rank_of(0, 1000), slow)
    assert run(*DIFF, base, new, "--fail-if", "slower:5%") == code
    assert sentence in run.err


def test_the_gate_does_not_pass_a_rank_that_has_no_steps_on_both_sides(run: Run) -> None:
    new = folder_of("new", rank_of(0, 1000), without_steps(1, 20_000))
    assert run(*DIFF, new, new, "--fail-if", "slower:5%") == 2
    assert "the base run is not judged: each rank needs at least 5 complete steps, and rank 1 has fewer" in run.err
    assert run.out.startswith("Median step 1.00 ms -> 1.00 ms")


def test_the_gate_names_all_ranks_with_too_few_steps(run: Run) -> None:
    few = folder_of("few", rank_of(0, 1000, 4), rank_of(1, 1000, 4))
    assert run(*DIFF, few, few, "--fail-if", "slower:5%") == 2
    assert "each rank needs at least 5 complete steps, and ranks 0-1 have fewer" in run.err


def test_the_gate_fails_if_device_work_is_missing(run: Run) -> None:
    for name, on_device in (("base", True), ("new", False)):
        Path(f"{name}.json").write_bytes(document(passes(10, 1000, on_device=on_device)))
        saved = ("--output-format", "json", "-o", f"{name}-report.json")
        assert run("analyze", "--select", "GAP101", f"{name}.json", *saved) == 0
    sentence = "the runs are not judged: base has device work of rank 0, new has device work of no rank"
    assert run(*DIFF, "base.json", "base.json", "--fail-if", "slower:5%") == 0
    for base, new in (("base.json", "new.json"), ("base-report.json", "new-report.json")):
        assert run(*DIFF, base, new, "--fail-if", "slower:5%") == 2
        assert sentence in run.err


def with_launches(name: str, kernels: int, step_us: int = 1000, *, steps: int = 10, around: Sequence[str] = ()) -> str:
    """Write a trace with ten launches in each step. Only the first ``kernels`` of them have a kernel. Calls named
    ``around`` enclose the last two launches.
    """
    events = []
    for number in range(steps):
        at = number * step_us
        events += [step(number, at, step_us), x("aten::mm", at + 1, step_us - 100)]
        for call in range(10):
            begin = at + 20 + 10 * call
            events += launch(10 * number + call, begin, 4, begin + step_us // 2, 4)[: 1 + (call < kernels)]
        events += [runtime(called, at + 95 + 90 * place, 2) for place, called in enumerate(around)]
    Path(name).write_bytes(document(events))
    return name


CAPTURE = ("cudaStreamBeginCapture", "cudaStreamEndCapture")


@pytest.mark.parametrize(
    ("kernels", "around", "code", "sentence"),
    [
        (4, (), 2, "the new run is incomplete, so it is not judged: "
                   "rank 0: 60.0 % of the kernels that its steps launched"),
        (8, (), 2, "the new run is not judged: "
                   "rank 0 lacks 20.0 % of the kernels that its steps launched (base: 0.0 %)"),
        # Calls inside a capture do not launch anything.
        (8, CAPTURE, 0, ""),
    ],
)  # fmt: skip
def test_the_gate_does_not_judge_a_run_that_lacks_kernels(
    run: Run, kernels: int, around: Sequence[str], code: int, sentence: str
) -> None:
    base, new = with_launches("base.json", 10), with_launches("new.json", kernels, around=around)
    trc = ("--select", "TRC")
    assert run("diff", *trc, base, new, "--fail-if", "slower:5%") == code
    assert sentence in run.err
    for name in (base, new):
        assert run("analyze", *trc, name, "--output-format", "json", "-o", f"{name}.report") == 0
    assert run("diff", *trc, f"{base}.report", f"{new}.report", "--fail-if", "slower:5%") == code
    assert sentence in run.err
    assert run("lint", new, *trc, "--budget", "step_time_ms<=1000") == (1 if code else 0)
    assert ("BUD102" in run.out) == (kernels < 5)
    # Kernels that both runs lack are no difference.
    assert run("diff", *trc, new, new, "--fail-if", "slower:5%") == (0 if kernels > 5 else 2)


def test_the_gate_fails_for_a_run_without_steps(run: Run) -> None:
    Path("empty.json").write_text('{"traceEvents": []}')
    assert run(*DIFF, run_of("base.json", 1000), "empty.json", "--fail-if", "slower:5%") == 2
    assert run.err.splitlines()[-1] == "habana_perf_tool: the new run has no complete step, so it is not judged"
    assert run.out.startswith("Step times cannot be compared")
    assert run(*DIFF, "base.json", "empty.json") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.json", "new.json"], "missing.json: no such file"),
        (["new.json", "new.json", "--fail-if", "worse"], "--fail-if 'worse': expected slower:N%"),
    ],
)
def test_what_cannot_run_exits_2(run: Run, arguments: list[str], message: str) -> None:
    run_of("new.json", 1000)
    assert run(*DIFF, *arguments) == 2
    assert message in run.err
    assert run.out == ""


def test_the_gate_does_not_judge_a_run_whose_device_work_ends_early(run: Run) -> None:
    events: list[dict[str, Any]] = []
    for number in range(30):
        at = 10_000 * number
        events += [step(number, at, 9000), x("aten::mm", at, 8000)]
        if number < 6:
            events += launch(number, at, 10, at + 100, 8000)
    Path("new.json").write_bytes(document(events))
    base = run_of("base.json", 1000)

    assert run(*DIFF, base, "new.json", "--fail-if", "slower:5%") == 2
    assert "rank 0: 24 of its 30 steps are incomplete" in run.err
    assert run("lint", "new.json", "--select", "GAP101", "--budget", "step_time_ms<=1000") == 1
    assert "BUD102" in run.out


def annotated(name: str, *, outer: bool) -> str:
    """Write a trace with 20 calls of ``micro_batch``. If ``outer`` is set, each pair of them is inside one of 10 calls
    of ``train_step``.
    """
    events = []
    for number in range(20):
        at = 1000 * number
        events += [x("train_step", at, 1990, "user_annotation")] if outer and number % 2 == 0 else []
        events.append(x("micro_batch", at + 1, 980, "user_annotation"))
        for call in range(8):
            events += launch(8 * number + call, at + 50 * call + 2, 4, at + 100 * call + 50, 90)
    Path(name).write_bytes(document(events))
    return name


def test_the_gate_does_not_compare_steps_of_different_calls(run: Run) -> None:
    base, new = annotated("base.json", outer=True), annotated("new.json", outer=False)
    for name in (base, new):
        assert run("analyze", "--select", "GAP101", name, "--output-format", "json", "-o", f"{name}.report") == 0
    assert json.loads(Path("base.json.report").read_text())["run"]["step_unit"] == "one call of train_step"

    assert run(*DIFF, base, base, "--fail-if", "slower:5%") == 0
    for suffix in ("", ".report"):
        assert run(*DIFF, base + suffix, new + suffix, "--fail-if", "slower:5%") == 2
        assert "in the base run a step is one call of train_step, in the new run one call of micro_batch" in run.err


@pytest.mark.parametrize("launched", [0, 3])
def test_a_long_incomplete_step_hides_no_time(run: Run, launched: int) -> None:
    def steps(slow_us: int) -> list[dict[str, Any]]:
        events = []
        for number in range(10):
            at, dur = number * 1000, slow_us if number == 9 else 1000
            events += [step(number, at, dur), x("aten::mm", at + 1, dur - 2)]
            for work in range(launched if number == 9 else 8):
                events += launch(10 * number + work, at + 5 * work + 2, 2, at + 100 * work + 50, 90)
        return events

    Path("base.json").write_bytes(document(steps(1000)))
    Path("new.json").write_bytes(document(steps(120_000)))
    assert run(*DIFF, "base.json", "base.json", "--fail-if", "slower:5%") == 0
    assert run(*DIFF, "base.json", "new.json", "--fail-if", "slower:5%") == 2
    assert "its recording takes " in run.err


def test_the_gate_does_not_compare_steps_that_were_found_in_different_ways(run: Run) -> None:
    events = []
    for number in range(10):
        at = 2000 * number
        events += [x("aten::mm", at, 1900), x("Optimizer.step#SGD.step", at + 1900, 100, "user_annotation")]
        events += [x("aten::add_", at + 1910, 50)]
    Path("new.json").write_bytes(document(events))

    assert run(*DIFF, run_of("base.json", 1000), "new.json", "--fail-if", "slower:5%") == 2
    assert (
        "in the base run the profiler marks steps, in the new run each step ends with a call to the optimizer"
        in run.err
    )


def test_steps_without_length_are_no_steps(run: Run) -> None:
    base = run_of("base.json", 1000)
    events = [{**event, "dur": 0} for event in json.loads(Path(base).read_text())["traceEvents"]]
    Path("new.json").write_text(json.dumps({"traceEvents": events}))

    assert run(*DIFF, base, "new.json", "--fail-if", "slower:5%") == 2
    assert run("lint", "new.json", "--select", "GAP101", "--budget", "step_time_ms<=1000") == 2


@pytest.mark.parametrize("until", [98_000, 58_000])
def test_a_kernel_as_long_as_the_recording_hides_no_slow_steps(run: Run, until: int) -> None:
    Path("base.json").write_bytes(document(passes(10, 9000)))
    Path("new.json").write_bytes(document([*late_work(0, "persistent", 10, until), *passes(10, 10_000)]))

    assert run(*DIFF, "base.json", "new.json", "--fail-if", "slower:5%") == 1
    assert "-> 10.0 ms" in run.out
    assert run("lint", "new.json", "--select", "GAP101", "--budget", "step_time_ms<=9") == 1


def passes(count: int, dur_us: int, *, first: int = 0, at: int = 0, on_device: bool = True) -> list[dict[str, Any]]:
    """Return steps of ``dur_us`` with one op each and, if ``on_device`` is set, one kernel."""
    events: list[dict[str, Any]] = []
    for number in range(first, first + count):
        events += [step(number, at, dur_us), x("aten::mm", at + 1, dur_us - 2)]
        events += launch(number, at + 2, 3, at + 6, dur_us - 20) if on_device else []
        at += dur_us
    return events


def late_work(number: int, name: str, at: int, end: int, call: str = "cudaLaunchKernel") -> list[dict[str, Any]]:
    """Return a call, and the work that it launches on a separate stream and that lasts until ``end``."""
    return [runtime(call, at, 2, 900 + number), kernel(name, at + 3, end - at - 3, 900 + number, stream=20 + number)]


def chained(count: int, dur_us: int) -> list[dict[str, Any]]:
    """Return steps that each launch work that ends shortly after the work of the previous step."""
    whole = count * dur_us
    works = (late_work(number, "late", number * dur_us + 8, whole + number) for number in range(count))
    return [*passes(count, dur_us), *(event for work in works for event in work)]


@pytest.mark.parametrize(
    "slow",
    [
        # Only the first of these steps has a known length.
        chained(10, 50_000),
        # The slow steps are incomplete.
        [*passes(10, 1000), *passes(9, 50_000, first=10, at=10_000, on_device=False)],
        # Most of the work is outside the steps.
        [*passes(10, 1000), x("aten::mm", 10_000, 450_000)],
    ],
)  # fmt: skip
def test_the_gate_does_not_judge_a_recording_that_its_steps_do_not_describe(
    run: Run, slow: list[dict[str, Any]]
) -> None:
    Path("base.json").write_bytes(document(passes(10, 1000)))
    Path("new.json").write_bytes(document(slow))
    for name in ("base", "new"):
        saved = ("--select", "GAP101", "--output-format", "json", "-o", f"{name}-report.json")
        assert run("analyze", f"{name}.json", *saved) == 0

    for base, new in (("base.json", "new.json"), ("base-report.json", "new-report.json")):
        assert run(*DIFF, base, new, "--fail-if", "slower:5%") == 2
        assert "its recording takes " in run.err
        assert " per step (base: 1.00 ms), but its median step grew less" in run.err


def test_all_work_counts_as_part_of_the_recording(run: Run) -> None:
    """Each rank has steps until 10 ms, and other work until 130 ms."""
    ours = {"cat": "habana_perf_tool"}
    works = [
        [{**begin("work", 10_000), "ph": "b", "id": 1}, {**end(130_000), "ph": "e", "id": 1}],
        [{**begin("work", 10_000), "pid": 0, "tid": 7}, {**end(130_000), "pid": 0, "tid": 8}],
        [{**kernel("slow", 10_000, 120_000), "cat": None}],
        # The category of the events that ``annotate`` adds.
        *([begin("work", 10_000, **ours, **where), end(130_000, **ours, **where)]
          for where in ({}, {"pid": 9}, {"pid": 9, "tid": 9})),
        [event | ours for event in passes(30, 4000, first=10, at=10_000)],
    ]  # fmt: skip
    for rank, work in enumerate(works):
        info = {"rank": rank, "world_size": len(works)}
        Path(f"rank{rank}.json").write_bytes(document([*passes(10, 1000), *work], distributedInfo=info))
    assert run("analyze", ".", "--select", "GAP101", "--output-format", "json") == 0
    report = json.loads(run.out)
    assert [(rank["steps"], rank["recorded_ns"]) for rank in report["ranks"]] == [(10, 130_000_000)] * len(works)
    assert {one["dur_ns"] for one in report["steps"]} == {1_000_000}


def decodes(durs_us: Sequence[int]) -> bytes:
    events, at = list[dict[str, Any]](), 0
    for dur in durs_us:
        events += [x("execute_context_0(0)_generation_4(4)", at, dur, "user_annotation"), x("aten::mm", at, dur - 1)]
        at += dur
    return document(events)


def test_the_gate_does_not_judge_a_server_whose_median_iteration_hides_slow_ones(run: Run) -> None:
    usual, slow = [1000] * 11, [50_000] * 9
    for name, durs in (("base", usual * 2), ("new", usual + slow), ("few", usual)):
        Path(f"{name}.json").write_bytes(decodes(durs))
        saved = ("--select", "GAP101", "--output-format", "json", "-o", f"{name}-report.json")
        assert run("analyze", f"{name}.json", *saved, "--summary-jsonl", "n.jsonl") == 0
    for ending in (".json", "-report.json"):
        assert run(*DIFF, f"base{ending}", f"new{ending}", "--fail-if", "slower:5%") == 2
        assert "a decode iteration takes 23.1 ms on average (base: 1.00 ms), but the median iteration" in run.err
        assert run(*DIFF, f"base{ending}", f"few{ending}", "--fail-if", "slower:5%") == 0
    lines = map(json.loads, Path("n.jsonl").read_text().splitlines())
    assert [line["iteration_ms"] for line in lines] == [{"decode": 1.0}, {"decode": 23.05}, {"decode": 1.0}]


def compiling(count: int, warm_up: int, slow_us: int = 200_000) -> bytes:
    """Return a run of ``count`` steps of 20 ms. Its first ``warm_up`` steps compile, and take ``slow_us``."""
    events, at = [], 0
    for number in range(count):
        dur = slow_us if number < warm_up else 20_000
        events += [step(number, at, dur), x("aten::mm", at + dur - 19_000, 18_000)]
        if number < warm_up:
            events.append(x("_compile.compile_inner (dynamo_timed)", at + 1, dur - 20_000))
        at += dur
    return document(events)


@pytest.mark.parametrize(
    ("base", "new", "said"),
    [
        ((20, 0), (20, 10), "it has 10 warm-up steps (base: 0), and if all but the first 2 count, its recording takes "
                            "100 ms per step (base: 20.0 ms)"),
        ((20, 3), (20, 10), "it has 10 warm-up steps (base: 3), and if all but the first 2 count, its recording takes "
                            "100 ms per step (base: 30.0 ms)"),
        # A start-up of two steps, or a longer one that the base has, too.
        ((20, 0), (20, 2, 5_000_000), ""),
        ((20, 10), (20, 10, 600_000), ""),
        ((60, 9), (60, 10), ""),
        ((20, 10), (20, 0), ""),
    ],
)  # fmt: skip
def test_warm_up_steps_that_the_base_lacks_hide_no_time(
    run: Run, base: tuple[int, ...], new: tuple[int, ...], said: str
) -> None:
    for steps in (base, new):
        # Each name stands for one content, so that the analysis is remembered.
        Path(f"{steps}.json").write_bytes(compiling(*steps))
    assert run(*DIFF, f"{base}.json", f"{new}.json", "--fail-if", "slower:5%") == (2 if said else 0)
    assert said in run.err


def test_a_report_without_the_length_of_the_recording_is_judged_by_its_steps(run: Run) -> None:
    for name, count in (("base", 10), ("new", 12)):
        Path(f"{name}.json").write_bytes(document(passes(count, 1000)))
        assert run("analyze", "--select", "GAP101", f"{name}.json", "--output-format", "json") == 0
        report = json.loads(run.out)
        assert report["ranks"][0].pop("recorded_ns") == count * 1_000_000
        Path(f"{name}-report.json").write_text(json.dumps(report))

    assert run(*DIFF, "base-report.json", "new-report.json", "--fail-if", "slower:5%") == 0


def test_optimizers_that_take_turns_count_in_the_unit_of_a_step(run: Run) -> None:
    events, at = [], 0
    for number in range(20):
        events += [x("aten::mm", at, 900), x("Optimizer.step#Adam.step", at + 900, 90, "user_annotation")]
        events += [x("aten::add_", at + 901 + 4 * op, 3) for op in range(3 + 4 * (number % 2))]
        at += 1000
    Path("run.json").write_bytes(document(events))
    assert run("analyze", "--select", "GAP101", "run.json", "--output-format", "json", "-o", "r.json") == 0
    assert json.loads(Path("r.json").read_text())["run"]["step_unit"] == "2 calls of the optimizer"
