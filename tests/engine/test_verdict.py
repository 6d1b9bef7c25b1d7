"""The first sentences of a report."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from events import Event, document, kernel, launch, loader, runtime, step, x
from stores import findings_of

from perftool.engine.analysis import analyze
from perftool.engine.report import overview
from perftool.engine.report.causes import causes
from perftool.engine.report.functions import one_off_sentence
from perftool.engine.rules.pack import load_packs
from perftool.model.recorded_on import RECORDED_KEY
from perftool.model.report import Finding, Report, Source, StepLength, Verdict
from perftool.reporters.naming import facts
from perftool.store.trace_store import TraceStore

Opening = Callable[[list[Event]], TraceStore]

# One of the run's threads was ready to run but had no core for 20 % of the recording.
OVERLOADED = {
    "version": 1, "machine": {"cores_allowed": 2},
    "window": {"wall_ns": 100_000, "threads": [{"tid": 1, "name": "python", "cpu_ns": 70_000, "delay_ns": 20_000}]},
}  # fmt: skip


def report_of(
    events: list[Event], folder: Path, kinds: tuple[str, ...] = ("GAP", "STP", "TRC"), **metadata: object
) -> Report:
    """Return the report with the rules of ``kinds``. All rules would take a third longer, and most tests are about
    sentences that need no finding.
    """
    path = folder / "trace.json"
    path.write_bytes(document(events, **metadata))
    return analyze([str(path)], [rule for rule in load_packs() if rule.code.startswith(kinds)])


def found_by(code: str, events: list[Event], folder: Path) -> tuple[Finding, ...]:
    path = folder / "trace.json"
    path.write_bytes(document(events))
    return findings_of([str(path)], [rule for rule in load_packs() if rule.code == code])


def test_a_large_cause_without_a_rule_is_the_headline(tmp_path: Path) -> None:
    copying = [runtime("cudaMemcpyAsync", 0, 600), *launch(1, 700, 10, 720, 280)]
    report = report_of([step(1, 0, 1000), *copying], tmp_path)

    (cause,) = report.verdict.causes
    assert (cause.name, cause.codes, cause.share, cause.ns_per_step) == ("copy", (), 0.6, 600_000)
    assert cause.longest
    assert (cause.longest.ts_ns, cause.longest.dur_ns) == (0, 600_000)
    assert report.verdict.headline.startswith(
        "For 60.0 % of the time (600 us), the device is idle while the host is inside a"
    )


def test_an_annotation_locates_unrecorded_time(tmp_path: Path) -> None:
    policy = x("policy", 100, 700, "user_annotation")
    report = report_of([step(1, 0, 1000), x("aten::mm", 0, 100), policy, x("aten::mm", 900, 100)], tmp_path)

    assert report.verdict.causes[0].within == "policy"
    assert report.verdict.headline.startswith(
        "For 80.0 % of the time (800 us), no op runs, and the recording does not show what the program does between "
        "its ops, mostly inside the annotation policy; "
    )


def test_findings_about_the_trace_are_not_advice(tmp_path: Path) -> None:
    report = report_of([x("aten::add", 0, 100), kernel("add", 0, 100)], tmp_path, kinds=("",))

    assert [finding.code for finding in report.findings] == ["TRC102"]
    assert report.advice == ()


def test_a_backward_pass_makes_a_training_run(store: Opening) -> None:
    forward = [x("aten::add", 10 * at, 5) for at in range(20)]
    numbered = [x("aten::add", 10 * at, 5, **{"Sequence number": at}) for at in range(20)]
    backward = x("autograd::engine::evaluate_function: AddBackward0", 300, 5)
    added = x("torch::autograd::AccumulateGrad", 310, 5)

    assert overview.run(store(forward)).kind == "inference"
    assert overview.run(store(numbered)).kind is None
    # Without an optimizer, a backward pass may serve only to compute gradients of inputs, for attributions.
    assert overview.run(store([*forward, backward])).kind is None
    assert overview.run(store([*forward, backward, added])).kind == "training"


def test_a_busy_device_may_still_be_far_from_its_best(tmp_path: Path) -> None:
    device = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84_929_347_584}]}

    def verdict_of(elements: int, unknown: int = 0) -> Verdict:
        shapes = {"Input Dims": [[elements], [elements]], "Input type": ["float", "float"]}
        events = [step(1, 0, 1000), x("aten::add", 0, 20, **shapes), *launch(1, 5, 5, 15, 985 - unknown)]
        if unknown:
            events += [x("own::op", 30, 20), *launch(2, 35, 5, 1000 - unknown, unknown)]
        return report_of(events, tmp_path, kinds=("ENG",), **device).verdict

    # Two reads and one write of 4 bytes per element at 3.35 TB/s take 358 us and 895 us.
    far, near = verdict_of(100_000_000), verdict_of(250_000_000)
    assert ", but at only 36.4 % of its peak." in far.headline
    assert far.detail == "Pointwise, normalisation and copy kernels take 985 us of 1.00 ms."
    assert " ".join(far.context) == (
        "Largest ops, by share of the work: aten::add 100.0 %, at 36.4 % of its peak. "
        "At the rates that the device reaches on good shapes, the work would take 57.2 % less time; "
        "the table op_shortfalls shows why, and what to change."
    )
    mixed = verdict_of(100_000_000, unknown=197)
    assert ", but at only 45.5 % of its peak (known for 80.0 % of the work)." in mixed.headline
    assert near.headline.startswith("The device is the limit")
    assert "could do" not in near.headline + near.detail


def test_a_trace_without_work_has_no_times(tmp_path: Path) -> None:
    assert report_of([], tmp_path).verdict.detail == "No event in the trace shows work, so no times are known."


def test_the_parts_of_a_step_on_the_cpu_add_up(store: Opening) -> None:
    (only,) = overview.steps(store([step(1, 0, 1000), x("aten::mm", 10, 500), x("aten::to", 600, 100)]))

    assert only.breakdown_ns["cpu_op"] == 600_000
    assert {part: ns for part, ns in only.parts_ns.items() if ns} == {
        "kernel": 500_000,
        "cpu_op": 100_000,
        "other": 400_000,
    }


def test_an_op_without_a_model_does_not_ask_for_a_recording_of_the_machine(tmp_path: Path) -> None:
    machine = {
        "version": 1, "machine": {"processor": "P"}, "process": {"threads": 1},
        "peaks": {"products": {"fp32": 1e11}, "memory_bandwidth": 1e10},
    }  # fmt: skip
    shapes = {"Input Dims": [[100_000], []], "Input type": ["float", "double"]}
    events = [step(1, 0, 1000), x("quantized::linear_dynamic", 0, 400), x("aten::mul", 500, 200, **shapes)]
    verdict = report_of(events, tmp_path, kinds=("ENG", "TRC"), perftoolRecording=machine).verdict

    assert " ".join(verdict.context) == "quantized::linear_dynamic takes the most time: 40.0 %."


def test_a_busy_recording_on_an_overloaded_machine_asks_for_another_one(tmp_path: Path) -> None:
    thread = {"tid": 1, "name": "python", "cpu_ns": 5_000_000, "delay_ns": 4_000_000}
    machine = {"version": 1, "window": {"wall_ns": 9_000_000, "threads": [thread]}}
    events = [step(1, 0, 9000), x("aten::mm", 0, 8900)]

    verdict = report_of(events, tmp_path, perftoolRecording=machine).verdict

    assert verdict.headline == (
        "The machine was overloaded: threads of the run waited for a core for 44.4 % of the recorded time (4.00 ms of "
        "9.00 ms), which made steps longer. Record again on free cores: the times below include this waiting."
    )
    assert not verdict.caveats


def test_an_overloaded_op_is_compared_with_the_peak_by_its_repeated_calls(tmp_path: Path) -> None:
    thread = {"tid": 1, "name": "python", "cpu_ns": 5_000_000, "delay_ns": 4_000_000}
    sizes = [[1000, 100], [100, 1000]]
    repeated = {"name": "aten::mm", "input_dims": sizes, "fp32_ns": 4_000_000, "bf16_ns": 3_000_000}
    machine = {
        "version": 1, "machine": {"processor": "AMD EPYC"}, "process": {"threads": 1}, "ops": [repeated],
        "peaks": {"products": {"fp32": 100e9}, "memory_bandwidth": 20e9},
        "window": {"wall_ns": 9_000_000, "threads": [thread]},
    }  # fmt: skip
    shapes = {"Input Dims": sizes, "Input type": ["float", "float"]}
    events = [step(1, 0, 9000), x("aten::mm", 0, 8900, **shapes)]

    context = " ".join(report_of(events, tmp_path, kinds=("",), perftoolRecording=machine).verdict.context)

    # 200 million operations in 4 ms.
    assert context.startswith(
        "aten::mm takes the most time: 98.9 % (at 50.0 % of the machine's peak, when repeated after the recording)"
    )


def test_advice_that_saves_much_work_comes_before_an_overloaded_machine(tmp_path: Path) -> None:
    thread = {"tid": 1, "name": "python", "cpu_ns": 3_000_000, "delay_ns": 6_000_000}
    sizes = [[1000, 100], [100, 1000]]
    repeated = {"name": "aten::mm", "input_dims": sizes, "fp32_ns": 4_000_000, "bf16_ns": 1_000_000}
    machine = {
        "version": 1, "machine": {"processor": "AMD EPYC"}, "process": {"threads": 1}, "ops": [repeated],
        "peaks": {"products": {"fp32": 100e9, "bf16": 400e9}, "memory_bandwidth": 20e9},
        "window": {"wall_ns": 9_000_000, "threads": [thread]},
    }  # fmt: skip
    shapes = {"Input Dims": sizes, "Input type": ["float", "float"]}
    events = [
        step(1, 0, 9000), x("train.py(3): <module>", 0, 9000, "python_function"), x("aten::mm", 0, 4000, **shapes),
    ]  # fmt: skip

    verdict = report_of(events, tmp_path, kinds=("PRC", "TRC"), perftoolRecording=machine).verdict

    assert verdict.headline.startswith("Up to 35.6 % of the step can be saved: matmuls run mostly in 32-bit precision.")
    assert verdict.caveats.startswith("The machine was overloaded: threads of the run waited for a core for 66.7 %")


def test_waiting_for_a_core_is_not_called_slow_python(tmp_path: Path) -> None:
    thread = {"tid": 1, "name": "python", "cpu_ns": 3_000_000, "delay_ns": 6_000_000}
    machine = {"version": 1, "window": {"wall_ns": 9_000_000, "threads": [thread]}}
    events = [
        step(1, 0, 9000), x("train.py(3): <module>", 0, 9000, "python_function"),
        x("aten::mm", 0, 1000), x("aten::mm", 6000, 2000), x("aten::mm", 8900, 100),
    ]  # fmt: skip
    report = report_of(events, tmp_path, perftoolRecording=machine)

    assert report.verdict.headline == (
        "The machine was overloaded: threads of the run waited for a core for 66.7 % of the recorded time (6.00 ms of "
        "9.00 ms), which made steps longer."
    )
    assert not report.verdict.caveats
    assert "GAP108" not in {found.code for found in report.findings}


def alternating(count: int, long: int, work: list[Event] | None = None) -> list[Event]:
    """Return ``count`` steps of 4 ms on the CPU. Every second step instead takes ``long`` us, and does ``work`` after
    its first 4 ms.
    """
    events, ts = [], 0.0
    for number in range(count):
        odd = number % 2 == 1
        dur = long if odd else 4000
        events += [step(number, ts, dur), x("aten::mm", ts, 3900)]
        events += [{**event, "ts": event["ts"] + ts + 4000} for event in work or []] if odd else []
        ts += dur
    return events


def test_steps_of_two_lengths_are_not_described_by_their_median(tmp_path: Path) -> None:
    ops = [x("aten::linear", 100 + 1000 * at, 990) for at in range(6)]
    report = report_of(alternating(6, 10800, ops), tmp_path)

    assert [(length.steps, length.longest_ns) for length in report.run.lengths] == [(3, 4_000_000), (3, 10_800_000)]
    # All long steps call the op equally often, and the others never do. This is the program's schedule, and loses no
    # time.
    assert report.verdict.caveats.startswith(
        "Steps have two lengths: 3 take 4.00 ms, 3 take 10.8 ms; the long ones call aten::linear 6 instead of 0 times, "
        "which takes 5.94 ms more."
    )
    assert [(found.gain, found.advice) for found in report.findings if found.code == "STP101"] == [(None, False)]
    assert "6 steps, mean 7.40 ms" in facts(report)
    # Gains are shares of the mean step, because no step is as long as the median of an even number of steps.
    assert all(found.gain.ns_per_step <= 7_400_000 for found in report.findings if found.gain)


@pytest.mark.parametrize(("longest", "lengths"), [(1318, 0), (838, 2)])
def test_long_steps_further_apart_than_the_two_groups_have_no_length(
    longest: int, lengths: int, store: Opening
) -> None:
    """The steps of a recording on a busy machine. The long steps differ by up to 712 ms, but the two groups by only 232
    ms.
    """
    events, ts = [], 0
    for number, dur in enumerate((804, 328, 324, 800, longest, 374, 606, 366)):
        events += [step(number, ts, 1000 * dur), x("aten::mm", ts, 1000 * dur - 100)]
        ts += 1000 * dur

    assert len(overview.lengths(store(events))) == lengths


def test_a_function_that_only_the_long_steps_run_is_named(tmp_path: Path) -> None:
    saving = x("/home/user/train.py(9): save", 100, 6500, "python_function")
    report = report_of(alternating(6, 10800, [saving, x("aten::copy_", 110, 480)]), tmp_path)

    # 6.5 ms in every second step are 3.25 ms of the mean step.
    (first, *_) = report.advice
    assert (first.code, first.gain and first.gain.ns_per_step) == ("STP101", 3_250_000)
    assert first.location.source == Source("/home/user/train.py", 9, "save", 6.5 / 6.8, 6_500_000)
    assert report.verdict.headline == (
        "Up to 3.25 ms of each step (7.40 ms on average) is lost: only the long steps run save (train.py:9), for 6.50 "
        "ms."
    )
    assert "Steps have two lengths: 3 take 4.00 ms, 3 take 10.8 ms." in report.verdict.caveats


def test_an_evaluation_in_every_second_step_loses_no_time(tmp_path: Path) -> None:
    evaluation = x("/home/user/train.py(9): evaluate", 100, 6500, "python_function")
    report = report_of(alternating(6, 10800, [evaluation, x("aten::relu", 110, 6480)]), tmp_path)

    assert "STP101" not in {found.code for found in report.advice}
    assert (
        "Steps have two lengths: 3 take 4.00 ms, 3 take 10.8 ms; only the long ones run evaluate (train.py:9), for "
        "6.50 ms."
    ) in report.verdict.caveats


def test_on_an_overloaded_machine_long_steps_need_work_of_their_own(tmp_path: Path) -> None:
    def caveats_of(work: list[Event]) -> str:
        return report_of(alternating(6, 10800, work), tmp_path, perftoolRecording=OVERLOADED).verdict.caveats

    assert caveats_of([]).startswith("The machine was overloaded")
    assert caveats_of([x("aten::relu", 0, 6500)]).startswith("Steps have two lengths")


def test_times_of_uneven_steps_are_parts_of_the_mean_step_and_of_the_recording(tmp_path: Path) -> None:
    """Steps of 13, 338, 13, 9 and 9 ms, which run Python except for one millisecond."""
    events, ts = [], 0
    for number, dur in enumerate((13_000, 338_000, 13_000, 9_000, 9_000)):
        events += [step(number, ts, dur), x("train.py(3): simulate", ts + 1000, dur - 1000, "python_function")]
        events += [x("aten::mm", ts, 500), x("aten::mm", ts + 500, 500), x("aten::relu", ts + dur // 2, 1)]
        ts += dur
    report = report_of(events, tmp_path)

    assert report.run.mean_step_ns == 76_400_000
    assert "5 steps, mean 76.4 ms, median 13.0 ms" in facts(report)
    (cause, *_) = report.verdict.causes
    assert cause.ns_per_step > 70_000_000
    assert all(f.gain.share_of_step == f.gain.ns_per_step / 76_400_000 for f in report.findings if f.gain)
    assert report.verdict.headline.startswith(
        "For 98.7 % of the time (377 ms of the 382 ms recorded), no op computes while the program runs Python, mostly "
        "in simulate (train.py);"
    )


def test_a_built_in_function_that_takes_most_of_the_python_is_named(tmp_path: Path) -> None:
    events = [
        *(step(number, number * 100_000, 100_000) for number in range(3)),
        x("train.py(3): main", 0, 300_000, "python_function"),
        *(
            x("<built-in function collect>", number * 100_000 + 10_000, 90_000, "python_function")
            for number in range(3)
        ),
        *(x("aten::mm", number * 100_000, 10_000) for number in range(3)),
    ]

    assert report_of(events, tmp_path).verdict.headline.startswith(
        "For 90.0 % of the time (90.0 ms a step), no op computes while the program runs Python, mostly garbage "
        "collection in main (train.py)"
    )


def test_without_added_work_the_growing_part_is_named(tmp_path: Path) -> None:
    events = alternating(6, 10800, [loader(100, 6000)])
    events += [loader(step["ts"] + 3910, 50) for step in events if step["dur"] == 4000]
    caveats = report_of(events, tmp_path).verdict.caveats

    assert "; the long ones spend 5.95 ms more on waiting for data." in caveats


def test_long_first_steps_and_one_exception_are_not_a_second_length(store: Opening) -> None:
    def lengths(durs: list[int]) -> tuple[StepLength, ...]:
        starts = [sum(durs[:number]) for number in range(len(durs))]
        events = [e for number, (ts, dur) in enumerate(zip(starts, durs, strict=True)) for e in
                  (step(number, ts, dur), x("aten::mm", ts, dur - 10))]  # fmt: skip
        return overview.lengths(store(events))

    assert lengths([9000, 9000, 4000, 4000, 4000, 4000]) == ()
    assert lengths([4000, 4000, 4000, 9000, 4000, 4000]) == ()
    assert len(lengths([4000, 9000, 4000, 4000, 9000, 4000])) == 2


def test_a_recording_that_is_nearly_all_warm_up_says_so_first(tmp_path: Path) -> None:
    events = [step(0, 0, 1_000_000), x("entire_frame_compile", 10, 900_000), x("aten::mm", 950_000, 1000)]
    for number in range(1, 6):
        ts = 1_000_000 + 1000 * number
        events += [step(number, ts, 1000), x("aten::mm", ts, 100)]
    verdict = report_of(events, tmp_path).verdict

    assert verdict.headline.startswith(
        "99.4 % of the 1.01 s recorded is warm-up, 900 ms of it compilation: record later"
    )
    assert verdict.steady.startswith("The steady steps: ")
    assert "warm-up" not in " ".join(verdict.context)


def test_a_single_event_is_compared_with_the_whole_recording(tmp_path: Path) -> None:
    """A compilation in one iteration does not slow down the other iterations."""
    name = "execute_context_0(0)_generation_8(8)"
    usual = [
        x(name, at, 10_000, "user_annotation") for at in (*range(0, 50_000, 10_000), *range(110_000, 160_000, 10_000))
    ]
    slow = [x(name, 50_000, 60_000, "user_annotation"), x("entire_frame_compile", 50_100, 50_000)]

    found = report_of([*usual, *slow], tmp_path, kinds=("RCP", "SRV"))

    assert found.verdict.headline == (
        "Up to 50.0 ms of the 160 ms recorded is lost: requests wait while the server compiles."
    )


def test_a_cause_that_is_one_long_stretch_is_compared_with_the_recording(tmp_path: Path) -> None:
    copying = [runtime("cudaMemcpyAsync", 300, 7000), *launch(1, 7400, 10, 7420, 80)]
    usual = [
        event for at in range(7500, 11_500, 1000) for event in (step(at, at, 1000), *launch(at, at, 5, at + 10, 900))
    ]

    found = report_of([step(1, 0, 7500), *copying, *usual], tmp_path)

    assert found.verdict.headline == (
        "For 60.9 % of the time (7.00 ms of the 11.5 ms recorded), the device is idle while the host is inside a copy "
        "call; the longest stretch takes 7.00 ms."
    )


def test_the_largest_of_several_causes_is_not_the_whole_loss(tmp_path: Path) -> None:
    waits = [x("aten::add", 0, 150), runtime("cudaMemcpyAsync", 150, 130), *launch(1, 280, 10, 300, 700)]

    found = report_of([step(1, 0, 1000), *waits], tmp_path)

    assert found.verdict.headline == (
        "Up to 290 us of the 1.00 ms step is lost: the device waits for the host, 51.7 % of that time "
        "while the host runs framework ops."
    )


def test_gains_leave_out_a_long_call_that_only_one_of_a_few_steps_makes(tmp_path: Path, store: Opening) -> None:
    """Five steps do not show how often a plot recurs. All steps together would halve the share of the other gains."""
    starts = (0, 10_000, 20_000, 60_000, 70_000)
    events = [
        event
        for k, ts in enumerate(starts)
        for event in (
            step(k, ts, 40_000 if k == 2 else 10_000),
            x("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", ts, 4000, "user_annotation"),
            x("aten::mm", ts + 4000, 5900),
        )
    ]

    def python(name: str, ts: float, dur: float, number: int) -> Event:
        return x(name, ts, dur, "python_function", **{"Python id": number})

    plots = [python("plot.py(7): draw", 30_000, 29_000, 1), python("plot.py(9): axis", 31_000, 20_000, 2)]

    report = report_of([*events, *plots], tmp_path)
    (gain,) = [found.gain for found in report.findings if found.code == "GAP102"]
    assert gain is not None
    assert gain.share_of_step == pytest.approx(0.4, abs=0.02)
    sentence = (
        "Step 2 takes 40.0 ms instead of 10.0 ms: it alone calls draw (plot.py:7), which takes 29.0 ms. "
        "5 steps do not show how often that recurs, so gains do not include it."
    )
    assert sentence in report.verdict.caveats
    assert not any(found.gain for found in report.findings if found.code == "STP101")

    assert one_off_sentence(store([*events, *plots])) in report.verdict.caveats
    twice = one_off_sentence(store([*events, *plots, python("plot.py(7): draw", 70_500, 10, 3)]))
    assert "it alone calls axis (plot.py:9)" in twice


def test_advice_that_gains_little_is_only_in_the_table(tmp_path: Path) -> None:
    module = {"Python id": 1}
    events = [
        step(1, 0, 20_000), x("train.py(3): <module>", 0, 20_000, "python_function"),
        x("nn.Module: Net_0", 0, 12_000, "python_function", **module), x("aten::mm", 0, 12_000),
        x("nn.Module: Loss_0", 12_000, 7_000, "python_function", **module), x("aten::exp", 12_000, 7_000),
        x("Optimizer.step#SGD.step", 19_100, 800, "user_annotation"),
        *(x("aten::add_", 19_100 + 8 * k, 2) for k in range(100)),
    ]  # fmt: skip
    report = report_of(events, tmp_path, kinds=("FUS", "GAP"))

    assert report.advice[0].code == "FUS101"
    assert re.fullmatch(r"Ops are computing for 9\S+ % of the time\.", report.verdict.headline)
    assert "By module: Net 62.5 %, Loss 36.5 % of the work." in " ".join(report.verdict.context)


def test_the_largest_op_is_shown_with_the_call_around_it_and_its_shapes(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[60_000, 256], [60_000, 1]]}
    events = [step(1, 0, 10_000), x("aten::cosine_similarity", 1000, 3000), x("aten::div", 1010, 2900, **shapes)]

    assert " ".join(report_of(events, tmp_path).verdict.context).startswith(
        "aten::div takes the most time: 29.0 %, mostly inside aten::cosine_similarity, on shapes such as [60000,256]"
    )


def test_a_gap_that_nothing_explains_is_placed_between_ops(store: Opening) -> None:
    opened = store([step(1, 0, 10_000), x("aten::detach", 0, 100), x("aten::embedding", 9000, 1000)])
    (cause,) = causes(opened, (), (), "cpu")

    assert cause.longest
    assert (cause.longest.dur_ns, cause.longest.name) == (8_900_000, "between aten::detach and aten::embedding")


def test_gaps_are_placed_between_the_ops_with_most_of_them(tmp_path: Path) -> None:
    events = [step(1, 0, 10_000)]
    for k in range(5):
        events += [x("aten::to", 1000 * k, 100), x("aten::empty", 1000 * k + 800, 200)]
    events += [x("aten::mm", 5000, 100), x("aten::add", 7000, 3000)]
    headline = report_of(events, tmp_path).verdict.headline

    assert headline.startswith("For 54.0 % of the time (5.40 ms), no op runs, ")
    assert "much of it between aten::to and aten::empty (5 times, 3.50 ms); " in headline
    assert headline.endswith("with_stack=True) would show what the program does.")
    assert "the longest stretch takes 1.90 ms. Stacks" in headline


def test_overhead_that_no_single_op_has_is_given_with_the_number_of_ops(store: Opening) -> None:
    """Each of five kinds of op takes a fifth of the overhead."""
    free = [f"aten::{name}" for name in ("view", "expand", "transpose", "empty", "as_strided")]
    events = [step(1, 0, 10_000), step(2, 10_000, 10_000)]
    for at in range(0, 20_000, 2000):
        for place, name in enumerate(free):
            events += [x(name, at + 400 * place, 300), x("aten::mul", at + 400 * place + 300, 80)]

    text = causes(store(events), (), (), "cpu")[0].text

    assert text.endswith("or call other ops (50 ops a step: larger batches or fewer ops reduce this)")


def test_a_cause_names_the_op_that_takes_most_of_its_time(store: Opening) -> None:
    events = [step(1, 0, 10_000), step(2, 10_000, 10_000)]
    for begin in (0, 10_000):
        events += [x("aten::mm", begin, 4000), x("aten::unbind", begin + 4000, 5000)]
        events += [x("aten::select", begin + 4000 + 100 * k, 80) for k in range(50)]
    (cause, *_) = causes(store(events), (), (), "cpu")

    assert (cause.share, cause.ns_per_step) == (0.5, 5_000_000)
    assert cause.text.startswith("no op computes while ")
    assert "or call other ops, mostly in aten::unbind (1 call a step)" in cause.text


def test_long_first_steps_get_no_advice(tmp_path: Path) -> None:
    events = [step(k, 20_000 * min(k, 2) + 10_000 * max(k - 2, 0), 20_000 if k < 2 else 10_000) for k in range(8)]
    events += [x("aten::mm", one["ts"], 9000) for one in events]

    assert [found.advice for found in found_by("STP101", events, tmp_path)] == [False]


def test_other_work_between_calls_of_a_module_gets_no_advice(tmp_path: Path) -> None:
    """A detector that calls a small network for each image, and another network for some images."""
    events = []
    for number in range(9):
        ts, images = 20_000 * number, {3: 8, 6: 7, 7: 8}.get(number, 0)
        events += [step(number, ts, 3000 + 2000 * images), x("aten::mm", ts, 2000)]
        events += [x("aten::conv2d", ts + 3000 + 2000 * image, 1800) for image in range(images)]
    report = report_of(events, tmp_path, **{RECORDED_KEY: {"version": 1, "steps": {"called": "PNet"}}})

    assert [found.advice for found in report.findings if found.code == "STP101"] == [False]
    assert "A step is one call of PNet." in report.verdict.context
    assert [found.advice for found in found_by("STP101", events, tmp_path)] == [True]


def test_a_wait_for_the_first_batch_gets_no_advice(tmp_path: Path) -> None:
    workers = "_MultiProcessingDataLoaderIter"
    events = [step(0, 0, 10_000), loader(0, 8000, workers)]
    for k in range(1, 5):
        events += [step(k, 9000 + 1000 * k, 1000), loader(9000 + 1000 * k, 10, workers)]
    events += [x("aten::mm", 9100 + 1000 * k, 800) for k in range(1, 5)]

    assert [found.advice for found in found_by("GAP102", events, tmp_path)] == [False]


def test_the_layers_of_a_decoder_are_no_loop_of_small_ops(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[4, 8], [8, 8]]}
    events = [x(f"aten::op{k % 20}", 20 * k, 12, **shapes) for k in range(20 * 120)]

    assert found_by("GAP113", events, tmp_path) == ()
