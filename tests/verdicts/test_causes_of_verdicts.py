"""A small trace for each cause that once led to a wrong verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from events import Event, document, kernel, launch, loader, memcpy, runtime, step, x
from stores import findings_of

from perftool.engine.analysis import analyze
from perftool.engine.report import overview
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.model.report import Finding, Report
from perftool.store.trace_store import TraceStore

PACK = load_pack(builtin_folder())


def findings_by(code: str, events: list[Event], folder: Path) -> tuple[Finding, ...]:
    path = folder / "trace.json"
    path.write_bytes(document(events))
    return findings_of([str(path)], [rule for rule in PACK if rule.code == code])


def report_of(events: list[Event], folder: Path, *codes: str) -> Report:
    """Return the report on ``events`` by the rules in ``codes`` only."""
    path = folder / "trace.json"
    path.write_bytes(document(events))
    return analyze([str(path)], [rule for rule in PACK if rule.code in codes])


def test_the_profilers_share_of_small_ops_is_told(tmp_path: Path) -> None:
    def below(ops: int) -> str:
        return report_of(
            [step(1, 0, 1000), *(x("aten::add", 4.5 * at, 4) for at in range(ops))], tmp_path, "TRC105"
        ).verdict.below

    told = "The profiler takes at least 10.1 % of the recorded time (estimated) and slows small ops most"
    assert told in below(201)
    assert "profiler" not in below(200)


def test_before_its_first_recorded_work_a_device_with_a_queue_is_not_idle(tmp_path: Path) -> None:
    copy = [runtime("cudaMemcpyAsync", 0, 10, 1), memcpy("Memcpy HtoD (Pinned -> Device)", 6000, 1000, 1)]
    report = report_of([step(1, 0, 10000), *copy, *launch(2, 20, 5, 7000, 3000)], tmp_path)

    assert report.summary["device_unknown_ratio"].value == 0.6
    assert report.summary["device_idle_ratio"].value == 0.0
    assert report.idle_causes == ()


def test_a_device_that_begins_at_once_was_idle_before(tmp_path: Path) -> None:
    report = report_of([step(1, 0, 10000), x("aten::add", 0, 6000), *launch(1, 6000, 10, 6010, 3990)], tmp_path)

    assert report.summary["device_unknown_ratio"].value == 0.0
    assert report.summary["device_idle_ratio"].value == pytest.approx(0.601)


def test_a_fetch_counts_in_full_even_while_the_device_finishes_the_step_before(tmp_path: Path) -> None:
    first = [step(1, 0, 1000), *launch(1, 900, 5, 905, 595)]
    second = [step(2, 1000, 2000), loader(1000, 1500), *launch(2, 2500, 5, 2505, 495)]
    report = report_of([*first, *second], tmp_path, "GAP102")

    (finding,) = (finding for finding in report.findings if finding.code == "GAP102")
    assert finding.evidence["wait_ns"] == 1_500_000
    assert report.summary["dataloader_ratio"].value == finding.evidence["wait_ratio"]
    # In the replay, the two steps take 3 ms. Without the fetch, the host needs 1.5 ms for both, and the device 1.1 ms.
    assert finding.gain is not None
    assert (finding.gain.kind, finding.gain.ns_per_step) == ("predicted", 1_500_000 // 2)


def test_faster_kernels_gain_nothing_if_the_host_sets_the_pace(tmp_path: Path) -> None:
    events: list[Event] = [step(1, 0, 10000)]
    for at in range(10):
        op = x("aten::mm", 1000 * at, 990, **{"Input type": ["float", "float"]})
        events += [op, *launch(at + 1, 1000 * at + 980, 5, 1000 * at + 985, 900, "ampere_sgemm_128x64_tn")]
    found = findings_by("PRC101", [*events, kernel("last", 9990, 10)], tmp_path)

    assert [finding.gain and finding.gain.share_of_step < 0.09 for finding in found] == [True]


def add_launching(number: int, at: float, work_at: float, work: float = 100) -> list[Event]:
    return [x("aten::add", at, 20), *launch(number, at + 5, 5, work_at, work)]


def test_after_the_last_recorded_work_the_state_of_the_device_may_be_unknown(tmp_path: Path) -> None:
    recorded = [event for at in range(4) for event in add_launching(at + 1, 100 * at, 100 * at + 10)]
    lost = [x("aten::add", 100 * at, 20) for at in range(5, 9)]
    report = report_of([step(1, 0, 1000), *recorded, *lost], tmp_path)

    assert report.summary["device_unknown_ratio"].value == 0.5
    assert report.summary["device_idle_ratio"].value == pytest.approx(0.2)


def test_after_a_wait_that_returned_a_device_is_idle(tmp_path: Path) -> None:
    recorded = [event for at in range(4) for event in add_launching(at + 1, 100 * at, 100 * at + 10)]
    on_host = [runtime("cudaDeviceSynchronize", 390, 50), *(x("aten::add", 100 * at, 20) for at in range(5, 9))]
    report = report_of([step(1, 0, 1000), *recorded, *on_host], tmp_path)

    assert report.summary["device_unknown_ratio"].value == 0.0
    assert report.summary["device_idle_ratio"].value == 0.6


def test_a_kernel_that_only_waits_is_not_work(tmp_path: Path) -> None:
    waiting = kernel("spin_kernel", 0, 1000, stream=8)
    report = report_of([step(1, 0, 1000), *launch(1, 0, 10, 200, 300), waiting], tmp_path)

    assert report.summary["device_busy_ratio"].value == 0.3
    assert [row.name for row in report.top_device_ops] == ["k"]


def compiling_steps(lengths: list[float], compiles: list[float]) -> list[Event]:
    """Return steps of ``lengths`` us, in which compiling a graph takes ``compiles`` us."""
    events, at = [], 0.0
    for number, (length, compiled) in enumerate(zip(lengths, compiles, strict=True), 1):
        frames = [x("entire_frame_compile", at, compiled)] if compiled else []
        events += [step(number, at, length), *frames, *launch(number, at + length - 20, 5, at + length - 15, 10)]
        at += length
    return events


def test_the_first_steps_that_compile_count_in_no_number_of_a_step(tmp_path: Path) -> None:
    report = report_of(
        compiling_steps([5000, 3000, 100, 100, 100], [4000, 2000, 0, 0, 0]), tmp_path, "STP102", "GAP105"
    )

    assert [step.left_out for step in report.steps] == ["warm-up", "warm-up", None, None, None]
    assert report.summary["step_time_ms"].value == 0.1
    assert report.summary["window_ms"].value == 0.3
    assert report.summary["compile_ratio"].value == 0.0
    assert [finding.code for finding in report.findings] == ["STP102"]


@pytest.mark.parametrize("compiles", [[4000, 4000, 4000, 0], [4000, 0, 4000, 4000], [4000, 4000, 4000, 4000]])
def test_compiling_in_every_step_is_not_warm_up(compiles: list[float], store: Callable[..., TraceStore]) -> None:
    steps = overview.steps(store(compiling_steps([5000] * 4, compiles)))

    assert [step.left_out for step in steps] == [None] * 4


def test_a_recording_of_the_start_up_gives_no_gains(tmp_path: Path) -> None:
    slow = [runtime("cudaLaunchKernel", 0, 6000, 1), kernel("first", 6000, 10, 1)]
    rest = [event for at in range(20) for event in launch(at + 2, 6500 + 100 * at, 5, 6506 + 100 * at, 10)]
    report = report_of([step(1, 0, 10000), *slow, *rest], tmp_path, "BAT101", "GAP101", "GAP104", "STP103")

    assert "start-up" in report.verdict.headline
    assert {finding.gain for finding in report.findings} == {None}


def test_a_trace_that_lacks_most_events_has_no_idle_time(tmp_path: Path) -> None:
    ops = [x("aten::add", 100 * at, 20, **{"External id": 7 * at}) for at in range(150)]
    works = [event for at in range(150) for event in launch(at + 1, 100 * at + 5, 5, 100 * at + 10, 10)]
    report = report_of([step(1, 0, 15000), *ops, *works], tmp_path, "GAP101", "GAP104", "TRC109")

    assert report.verdict.headline.startswith("Many events are missing from the recording")
    assert report.summary["device_idle_ratio"].value is None
    assert report.idle_causes == ()
    assert [finding.code for finding in report.findings] == ["TRC109"]


def test_the_wrapper_of_compiled_code_is_python_and_what_it_calls_is_not(tmp_path: Path) -> None:
    region = [x("Torch-Compiled Region: 0/0", 0, 900), x("aten::mm", 100, 300)]
    report = report_of([step(1, 0, 1000), *region, *launch(1, 890, 5, 895, 105)], tmp_path)

    assert {cause.name: cause.total_ns for cause in report.idle_causes} == {
        "python": 590_000,
        "framework_op": 300_000,
        "launch_call": 5_000,
    }


def test_a_step_shows_collectives_as_communication_while_nothing_computes(tmp_path: Path) -> None:
    works = [*launch(1, 0, 5, 10, 490), *launch(2, 20, 5, 300, 600, "ncclDevKernel_AllReduce_Sum_f32")]
    (shown,) = report_of([step(1, 0, 1000), *works], tmp_path).steps

    assert (shown.breakdown_ns["kernel"], shown.breakdown_ns["communication"]) == (890_000, 0)
    assert (shown.time_ns["kernel"], shown.time_ns["communication"]) == (490_000, 400_000)
    assert sum(shown.time_ns.values()) == shown.dur_ns


def test_the_cost_of_a_few_steps_is_a_gain_of_the_mean_step(tmp_path: Path) -> None:
    waits = [step(1, 0, 100), *launch(1, 0, 5, 5, 95), step(2, 100, 100), *launch(2, 100, 5, 105, 95)]
    late = [step(3, 200, 9800), loader(200, 9700), *launch(3, 9900, 5, 9905, 95)]
    report = report_of([*waits, *late], tmp_path, "GAP102")

    (finding,) = (finding for finding in report.findings if finding.code == "GAP102")
    # Only one of the three steps waits; it waits for 9.7 ms.
    assert report.run.mean_step_ns == 3_333_333
    assert finding.gain
    assert finding.gain.ns_per_step <= 9_700_000 / 3
    assert finding.gain.share_of_step == finding.gain.ns_per_step / report.run.mean_step_ns


def test_compiled_code_gets_no_advice_to_compile(tmp_path: Path) -> None:
    region = x("Torch-Compiled Region: 0/0", 0, 900)
    works = [event for at in range(24) for event in launch(at + 1, 40 * at, 5, 40 * at + 6, 5)]
    report = report_of([step(1, 0, 1000), region, *works], tmp_path, "GAP101", "GAP104")

    assert [finding.code for finding in report.findings] == ["GAP104", "GAP101"]
    assert [finding.code for finding in report.findings if "already compiled" not in finding.fix] == ["GAP101"]
    assert not any("torch.compile" in finding.fix for finding in report.findings)


def test_lines_are_named_if_only_ops_have_stacks(tmp_path: Path) -> None:
    stack = {"Call stack": "train.py(12): step;train.py(3): main"}
    first = [x("aten::add", 0, 20, **stack), *launch(1, 0, 10, 10, 90)]
    second = [x("aten::mul", 300, 20, **stack), *launch(2, 300, 10, 310, 690)]
    (finding,) = findings_by("GAP101", [step(1, 0, 1000), *first, *second], tmp_path)

    assert [(place.file, place.line) for place in finding.location.sources] == [("train.py", 12)]


def test_a_simulated_trace_gets_no_advice_about_its_recorder(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(document([x("aten::add", 0, 10)], simulated="by a test"))
    report = analyze([str(path)], [rule for rule in PACK if rule.code == "TRC102"])

    assert report.findings == ()
    assert [rule.code for rule in report.not_applicable] == ["TRC102"]


def test_a_run_without_device_events_is_not_called_a_cpu_run(tmp_path: Path) -> None:
    events = [
        step(1, 0, 100_000),
        x("nccl:all_to_all", 100, 500, "user_annotation"),
        x("## backward ##", 40_000, 40_000, "user_annotation"),
        x("aten::mm", 1000, 39_500),
        x("aten::item", 79_000, 20_000),
    ]
    path = tmp_path / "trace.json"
    path.write_bytes(document(events))
    report = analyze([str(path)])

    assert report.device.type is None
    assert report.verdict.headline.startswith("The run uses a device (nccl:all_to_all shows it), but none of")
    assert (
        "for 38.5 ms of 100 ms in ## backward ##: the host waits for the threads of the autograd"
        in report.verdict.detail
    )
    assert "20.0 ms in aten::item" in report.verdict.detail
    assert "CPU" not in " ".join([report.verdict.headline, *(found.message for found in report.findings)])


def test_unrecorded_time_without_an_annotation_has_no_reason(tmp_path: Path) -> None:
    events = [step(1, 0, 1000), x("aten::cudnn_convolution", 0, 100), x("aten::mm", 900, 100)]
    report = report_of(events, tmp_path)

    assert (
        "No op runs on the host for 800 us of 1.00 ms, and the recording does not show what the host does "
        "in that time." in report.verdict.detail
    )


def test_an_annotation_around_the_forward_is_not_a_wait_for_a_collective(tmp_path: Path) -> None:
    around = x("hccl:all_to_all", 100, 800, "user_annotation")
    events = [
        step(1, 0, 1000),
        *launch(1, 0, 10, 20, 80),
        x("aten::mm", 100, 790),
        around,
        *launch(2, 890, 5, 900, 100),
    ]

    assert {row.name for row in report_of(events, tmp_path).idle_causes} == {
        "framework_op",
        "launch_call",
        "launch_latency",
    }


def test_a_recording_of_graph_capture_says_so_and_gives_no_advice_on_the_host(tmp_path: Path) -> None:
    capture = [runtime("hipStreamBeginCapture", 200, 5), runtime("hipStreamEndCapture", 795, 5)]
    python = x("model.py(3): forward", 0, 1000, "python_function")
    report = report_of(
        [*launch(1, 0, 10, 20, 80), python, *capture, *launch(2, 890, 5, 900, 100)], tmp_path, "GAP106", "STP103"
    )

    assert "), the device cannot work while graphs are captured; " in report.verdict.headline
    assert report.verdict.headline.endswith("This time does not recur: record after the capture.")
    assert [found.code for found in report.findings] == ["STP103"]


def test_shares_of_kernels_refer_to_the_known_time(tmp_path: Path) -> None:
    copy = [runtime("cudaMemcpyAsync", 0, 10, 1), memcpy("Memcpy HtoD (Pinned -> Device)", 6000, 1000, 1)]
    report = report_of([step(1, 0, 10000), *copy, *launch(2, 20, 5, 7000, 3000, "gemm")], tmp_path)

    top = report.top_device_ops[0]
    assert (top.name, top.share) == ("gemm", 0.75)
    assert "(75.0 % in gemm)" in report.verdict.headline


def test_a_loss_in_unusual_steps_keeps_its_bound(tmp_path: Path) -> None:
    events: list[Event] = []
    at = 0.0
    for number in range(12):
        wait = 6000 if number % 6 >= 4 else 10
        events += [step(number, at, 2000 + wait), loader(at, wait, "_MultiProcessingDataLoaderIter")]
        events += launch(number, at + wait + 10, 10, at + wait + 20, 1900)
        at += 2000 + wait

    (finding,) = findings_by("GAP102", events, tmp_path)
    assert finding.gain is not None
    assert (finding.gain.kind, round(finding.gain.share_of_step, 2)) == ("bound", 0.5)
    assert finding.short_fix == "Make batches cheaper, or add workers while cores are free"


def test_the_line_of_unfused_kernels_is_chosen_by_their_time_on_the_device(tmp_path: Path) -> None:
    def ops(number: int, at: float, host: float, work_at: float, work: float) -> list[Event]:
        """Return two pointwise kernels of ``work`` us each, launched within ``host`` us."""
        half = host / 2
        return [
            event
            for n in range(2)
            for event in (
                x("aten::mul", at + n * half, half),
                *launch(number + n, at + n * half, half - 1, work_at + n * work, work),
            )
        ]

    def line(function: str, at: float, dur: float) -> Event:
        return x(f"/home/me/model.py({function}", at, dur, "python_function")

    def product(number: int, at: float, work_at: float) -> list[Event]:
        return [x("aten::mm", at, 10), *launch(number, at, 5, work_at, 10)]

    events = [step(1, 0, 10_000), line("7): rotary", 0, 1000), line("9): norm", 1000, 100)]
    events += [
        *ops(1, 0, 900, 1200, 100),
        *product(5, 950, 1400),
        *ops(11, 1000, 50, 1410, 4000),
        *product(15, 1090, 9500),
    ]
    (finding,) = findings_by("FUS108", events, tmp_path)

    assert [(place.function, place.ns) for place in finding.location.sources] == [
        ("norm", 8_000_000),
        ("rotary", 200_000),
    ]
    assert "places" not in finding.evidence
