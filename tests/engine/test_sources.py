"""The lines of code behind findings: the user's own frames, with their time and location."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from builders.reports import finding
from events import Event, document, kernel, loader, runtime, step, x
from stores import findings_of, store_over

from perftool.engine.analysis import answered_by, empty_report
from perftool.engine.report.compose import conclude_only
from perftool.engine.report.source_places import place_sources
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.model.own_code import innermost, is_own
from perftool.model.report import Finding, Location, Source
from perftool.model.rule import Rule
from perftool.store.trace_store import TraceStore

Opening = Callable[..., TraceStore]

PACK = load_pack(builtin_folder())


def function(name: str, ts: float, dur: float) -> Event:
    return x(name, ts, dur, "python_function")


def only(code: str) -> list[Rule]:
    return [rule for rule in PACK if rule.code == code]


def found(code: str, *events: Event) -> Finding:
    with store_over(list(events)) as store:
        return answered_by(conclude_only, store, only(code)).findings[0]


def found_by_rank(store: TraceStore, code: str) -> list[Finding]:
    """Return one finding for each rank of ``store``."""
    return sorted(answered_by(conclude_only, store, only(code)).findings, key=lambda finding: finding.rank or 0)


def lines(finding: Finding) -> list[tuple[str | None, int | None, str, int]]:
    return [(one.file, one.line, one.function, one.ns) for one in finding.location.sources]


# A step of 1 ms in which the host runs Python, and the device works only in the last 20 %.
STARVED = (
    step(1, 0, 1000),
    runtime("cudaLaunchKernel", 800, 10, 5),
    kernel("gemm", 820, 180, 5),
    x("aten::mm", 795, 20),
)


def test_python_between_the_ops_is_named_by_the_users_innermost_function() -> None:
    stacks = (
        function("threading.py(1032): _bootstrap", 0, 1000),
        function("train.py(10): main", 1, 998),
        function("data.py(7): load", 10, 600),
        function("torch/utils/data/dataloader.py(3): __next__", 20, 500),
        function("/opt/lib/python3.11/site-packages/pkg/a.py(1): inner", 30, 400),
        function("<built-in function sum>", 40, 300),
    )
    one = found("GAP106", *STARVED, *stacks)

    assert lines(one) == [("data.py", 7, "load", 600_000), ("train.py", 10, "main", 194_000)]
    assert "with_stack" not in one.fix


def test_dead_work_is_named_by_the_outermost_function_that_does_no_other_work() -> None:
    name = "autograd::engine::evaluate_function: AddmmBackward0"

    def in_step(ts: int) -> list[Event]:
        dead, used = {"Sequence number": ts + 1}, {"Sequence number": ts + 2}
        return [
            function("model.py(9): classify", ts + 5, 290), function("model.py(5): forward", ts + 10, 270),
            function("nn.Module: Net_0", ts + 15, 250), x("aten::linear", ts + 20, 230, **dead),
            function("nn.Module: Net_0", ts + 400, 110), x("aten::linear", ts + 405, 100, **used),
            x(name, ts + 600, 100, **used), x("Optimizer.step#SGD.step", ts + 800, 50, "user_annotation"),
        ]  # fmt: skip

    whole = [step(1, 0, 1000), step(2, 1000, 1000), function("train.py(1): main", 0, 2000)]
    assert lines(found("STP104", *whole, *in_step(0), *in_step(1000)))[0][:3] == ("model.py", 9, "classify")


def test_work_of_the_backward_pass_is_named_by_the_line_of_the_forward_op() -> None:
    forward = [x("aten::select", 20 * at, 10, **{"Sequence number": at}) for at in range(1, 21)]
    name = "autograd::engine::evaluate_function: SelectBackward0"
    backward = [x(name, 500 + 20 * at, 20, **{"Sequence number": at, "Fwd thread id": 1}) for at in range(1, 21)]
    stacks = (
        function("train.py(30): main", 0, 999),
        function("train.py(10): forward", 10, 450),
        function("torch/_tensor.py(5): backward", 470, 500),
    )
    one = found("FUS120", step(1, 0, 1000), *forward, *backward, *stacks)

    assert lines(one) == [("train.py", 10, "forward", 200_000)]


def test_device_work_of_the_backward_pass_is_named_by_the_line_of_the_forward_op() -> None:
    """The line to edit is the line that calls the output layer, not the line that starts the backward pass."""
    hidden, weight, logits = [8, 16], [16, 20_000], [8, 20_000]

    def op(name: str, ts: float, dur: float, *dims: list[int], **args: object) -> Event:
        return x(name, ts, dur, **{"Input Dims": list(dims), "Concrete Inputs": ["", "1"], **args})

    work = (
        op("aten::mm", 20, 80, hidden, weight, **{"Sequence number": 1}),
        op("aten::_log_softmax", 110, 40, logits, [], **{"Sequence number": 2}),
        x("autograd::engine::evaluate_function: MmBackward0", 500, 400, **{"Sequence number": 1, "Fwd thread id": 1}),
        op("aten::mm", 510, 380, logits, weight[::-1]),
    )
    stacks = (
        function("train.py(30): main", 0, 999),
        function("train.py(10): forward", 10, 190),
        function("torch/_tensor.py(5): backward", 470, 500),
    )
    one = found("FUS118", step(1, 0, 1000), *work, *stacks)

    assert lines(one) == [("train.py", 10, "forward", 500_000)]


def test_a_function_that_ran_when_the_recording_began_has_no_line(store: Opening) -> None:
    """PyTorch gives such a function the line that it had reached when the recording began. Here, that is the line of
    prof.step() in a training loop.
    """

    def numbered(name: str, number: int, parent: int | None, ts: float, dur: float) -> Event:
        return x(name, ts, dur, "python_function", **{"Python parent id": parent, "Python id": number})

    stacks = (
        numbered("prog.py(52): <module>", 1, None, 0, 990),
        numbered("prog.py(48): main", 2, 1, 2, 988),
        numbered("torch/profiler/profiler.py(1227): step", 3, 2, 4, 20),
        numbered("torch/autograd/profiler.py(414): _start_trace", 4, 3, 6, 10),
        numbered("<built-in function perf_counter_ns>", 5, 4, 10, 1),
        numbered("prog.py(27): batch_of", 6, 2, 30, 160),
        numbered("<built-in function collect>", 7, 2, 200, 590),
    )
    # In ``cut``, every function has a parent that is missing from the trace, as if its beginning had been lost. So the
    # functions count as called during the recording, and their lines are right.
    cut = [{**event, "args": {**event["args"], "Python parent id": 9}} for event in stacks]
    one, other = found_by_rank(store([*STARVED, *stacks], [*STARVED, *cut]), "GAP106")

    assert lines(one)[:2] == [("prog.py", None, "main", 613_000), ("prog.py", 27, "batch_of", 160_000)]
    assert [str(source) for source in one.location.sources[:2]] == ["main (prog.py)", "prog.py:27 batch_of"]
    assert lines(other)[0][:3] == ("prog.py", 48, "main")


def test_unused_work_of_a_module_is_named_by_the_line_that_calls_the_module() -> None:
    """As in MAML, two of three calls of a module have no backward pass. The finding names the lines of these calls."""
    backward = "autograd::engine::evaluate_function: AddmmBackward0"
    events = [function("meta.py(39): forward", 1, 1990)]
    for at in (0, 1000):
        numbers = [{"Sequence number": at + number} for number in (1, 3, 4)]
        events += [step(at // 1000 + 1, at, 1000), x("aten::linear", at + 60, 100, **numbers[0])]
        events += [x("aten::mean", at + 165, 5, **numbers[1]), x("aten::linear", at + 230, 60)]
        events += [x("aten::linear", at + 400, 100, **numbers[2]), x(backward, at + 600, 100, **numbers[2])]
        events += [x("Optimizer.step#SGD.step", at + 800, 50, "user_annotation")]
        for line, ts, dur in ((94, 10, 200), (66, 220, 90), (58, 390, 120)):
            events += [called("nn.Module: Learner_0", at + ts, dur, line)]
            events += [function("learner.py(70): forward", at + ts + 1, dur - 2)]
    one = found("STP104", *events)

    assert lines(one) == [("meta.py", 94, "forward", 400_000), ("meta.py", 66, "forward", 180_000)]


def test_the_examples_and_lines_of_slow_steps_are_not_those_of_other_steps() -> None:
    durations = [1000, 4000, 4000, 9000, 4000, 5000, 9500, 4000]
    begins = [sum(durations[:number]) for number in range(len(durations))]
    events = [step(number, at, dur) for number, (at, dur) in enumerate(zip(begins, durations, strict=True))]
    for at, dur in zip(begins[1:], durations[1:], strict=True):
        events += [function("train.py(10): train", at + 100, dur - 300), function("data.py(3): load", at + 200, 1000)]
    one = found("STP101", *events)

    assert [place.step for place in one.related] == [6, 3]
    assert lines(one) == [("train.py", 10, "train", 15_900_000), ("data.py", 3, "load", 2_000_000)]


def test_the_body_of_a_loop_counts_for_the_function_with_the_loop() -> None:
    body = [function("images.py(5): normalize", 10 + 20 * n, 18) for n in range(20)]
    inner = [function("images.py(9): scale", 12 + 20 * n, 10) for n in range(20)]
    one = found("GAP106", *STARVED, function("train.py(10): preprocess", 1, 790), *body, *inner)

    assert lines(one) == [("train.py", 10, "preprocess", 790_000)]


def test_functions_none_of_which_runs_for_most_of_the_time_are_named_by_their_caller(store: Opening) -> None:
    features = [function(f"dates.py({line}): {name}", at, 180)
                for line, name, at in ((3, "hour", 20), (9, "day", 210), (15, "year", 400))]  # fmt: skip
    stacks = (
        function("train.py(10): main", 1, 998), function("data.py(5): add_features", 10, 620),
        function("data.py(8): <listcomp>", 15, 600), *features, function("data.py(30): stack", 640, 60),
    )  # fmt: skip
    one, other = found_by_rank(store([*STARVED, *stacks], [*STARVED, stacks[0], *features]), "GAP106")

    assert lines(one)[0] == ("data.py", 5, "add_features", 620_000)
    assert [function for _, _, function, _ in lines(one)[1:]] == ["year", "hour"]
    # A function that runs for nearly all of the recorded time does not show where the time goes.
    assert lines(other)[0][2] == "main"


def test_comprehensions_of_several_functions_are_named_after_their_functions() -> None:
    stacks = (
        function("train.py(10): main", 1, 998), function("crf.py(69): score", 10, 60),
        function("crf.py(74): <listcomp>", 15, 50), function("crf.py(79): forward", 72, 723),
        function("crf.py(88): <listcomp>", 75, 300), function("crf.py(133): log_sum_exp", 376, 419),
        function("crf.py(135): <listcomp>", 378, 415), function("crf.py(124): argmax", 380, 190),
    )  # fmt: skip
    one = found("GAP106", *STARVED, *stacks)

    # log_sum_exp and the function that it calls take more than half of the time together, but line 88 takes more than
    # either of them.
    assert lines(one)[0] == ("crf.py", 79, "forward", 723_000)
    assert [line[:3] for line in lines(one)[1:]] == [("crf.py", 88, "forward"), ("crf.py", 135, "log_sum_exp")]


def test_output_is_placed_at_its_own_lines() -> None:
    prints = [called("<built-in function print>", 1000 * n + 100, 50, 169) for n in range(3)]
    waits = [called("<built-in function sum>", 1000 * n + 200, 700, 163) for n in range(3)]
    steps = [event for n in range(3) for event in (step(n, 1000 * n, 990), kernel("gemm", 1000 * n + 950, 30))]
    one = found("SYN103", *steps, function("train.py(10): main", 1, 2990), *prints, *waits)

    assert lines(one) == [("train.py", 169, "main", 150_000)]


def test_without_user_functions_modules_are_named() -> None:
    one = found("GAP106", *STARVED, function("nn.Module: Net_0", 1, 700), function("torch/nn/a.py(1): f", 2, 600))

    assert lines(one) == [(None, None, "nn.Module: Net_0", 700_000)]


def test_code_of_a_package_is_the_place_only_if_the_users_own_code_names_none(store: Opening) -> None:
    library = [
        function("timm/models/vit.py(7): forward", 10, 600), function("_pytest/main.py(3): main", 700, 90),
    ]  # fmt: skip
    main, load = function("train.py(10): main", 1, 998), function("data.py(3): load", 620, 80)
    # The package that the user's code calls comes before the packages that this package calls in turn.
    trainer = function("trainer/loop.py(7): fit", 2, 996), function("trainer/data.py(9): read", 10, 600)
    reading = function("columns/table.py(3): parse", 12, 590)
    ranks = ([main, *library, load], library, [main, *library], [main, *trainer, reading], [load, *library])
    opened = store(*([*STARVED, *own] for own in ranks), perftoolInstalled=["timm", "_pytest", "trainer", "columns"])
    places = [[(file, name) for file, _, name, _ in lines(one)] for one in found_by_rank(opened, "GAP106")]

    assert places[0] == [("train.py", "main"), ("data.py", "load")]
    assert places[1] == [("timm/models/vit.py", "forward")]
    assert places[2] == [("timm/models/vit.py", "forward"), ("train.py", "main")]
    assert places[3][0] == ("trainer/data.py", "read")
    # A function that runs only briefly is named, even if it is the only one of the user's functions.
    assert places[4] == [("data.py", "load")]


def test_without_stacks_nothing_is_named_and_the_fix_says_how_to_record_them() -> None:
    one = found("GAP101", *STARVED)

    assert one.location.sources == ()
    assert "record again with stacks" in " ".join(one.fix.split())


def test_work_of_the_device_is_named_by_the_call_that_launched_it() -> None:
    copies = [
        event
        for n in range(3)
        for event in (
            step(n, 1000 * n, 990),
            function(f"train.py({n + 20}): step", 1000 * n + 5, 500),
            loader(1000 * n + 10, 400),
            runtime("cudaLaunchKernel", 1000 * n + 450, 10, n),
            kernel("gemm", 1000 * n + 470, 500, n),
        )
    ]

    assert {name for _, _, name, _ in lines(found("GAP102", *copies))} == {"step"}


def test_a_call_stack_of_an_op_names_the_users_innermost_line() -> None:
    stack = "/env/lib/python3.7/site-packages/torch/optim/sgd.py(5): step;train.py(54): <module>"

    assert innermost(stack) == ("train.py", 54, "<module>")
    assert innermost("torch/a.py(1): f;threading.py(2): g;nonsense") is None


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("train.py", True), ("./train.py", True), ("src/models/net.py", True), ("C:\\work\\train.py", True),
        ("/opt/venv/bin/tune", False), ("/home/u/bin/train.py", True),
        ("/home/u/proj/train.py", True), ("/home/u/torch/train.py", True), ("transformers/pipelines/base.py", True),
        ("torch/nn/modules/module.py", False), ("threading.py", False), ("multiprocessing/spawn.py", False),
        ("/usr/lib/python3.11/threading.py", False), ("/usr/lib/python3/dist-packages/a.py", False),
        ("C:\\Python\\Lib\\site-packages\\a\\b.py", False), ("<string>", False), ("<frozen runpy>", False),
        ("/tmp/torchinductor_root/hp/chpxorlf.py", False), ("/tmp/torch.nn.conv.made_x1.py", False),
        ("/home/u/train.v2.py", True), ("/home/u/torch.test.py", True), ("/", True),
    ],
)  # fmt: skip
def test_which_files_are_the_users_own(file: str, own: bool) -> None:
    assert is_own(file) is own


def test_a_file_named_like_a_module_belongs_to_its_package() -> None:
    stack = "/tmp/torch_geometric.nn.conv.gcn_conv_made_x1.py(96): collect;layers.py(35): forward"

    assert innermost(stack, {"torch_geometric"}) == ("layers.py", 35, "forward")
    assert innermost(stack, {"another"}) == ("/tmp/torch_geometric.nn.conv.gcn_conv_made_x1.py", 96, "collect")


def placed(file: str | None, *roots: Path, shorten: bool = False) -> tuple[str | None, bool]:
    source = Source(file, 3, "main", 1.0)
    report = empty_report([])
    object.__setattr__(report, "findings", (finding(location=Location(sources=(source,))),))
    source = place_sources(report, roots, shorten=shorten).findings[0].location.sources[0]
    return source.file, source.here


def test_files_of_another_machine_are_found_by_the_end_of_their_path(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    for file in (project / "src" / "train.py", other / "lib" / "net.py"):
        file.parent.mkdir(parents=True)
        file.touch()

    assert placed("/home/u/run/src/train.py", project) == ("src/train.py", True)
    assert placed("C:\\u\\src\\train.py", project) == ("src/train.py", True)
    assert placed("train.py", project) == ("train.py", False)
    assert placed("train.py", project, project / "src") == ("src/train.py", True)
    assert placed("lib/net.py", project, other) == ("lib/net.py", True)
    assert placed("../../project/src/train.py", project) == ("src/train.py", True)
    assert placed("/home/u/a/b/c/net.py", project) == ("/home/u/a/b/c/net.py", False)
    assert placed("/home/u/a/b/c/net.py", project, shorten=True) == ("b/c/net.py", False)
    assert placed(None, project) == (None, False)


def test_a_path_that_no_system_can_hold_is_searched_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frame names may be 64 kB long, so a path component may exceed 255 characters, and a path may have 32,000
    components.
    """
    assert placed("/home/u/" + "a" * 300 + "/train.py", tmp_path) == ("/home/u/" + "a" * 300 + "/train.py", False)
    looked = []
    monkeypatch.setattr(os.path, "isfile", lambda path: looked.append(path))
    many = [Source("/".join("a" * 30_000), 3, "main", 1.0)] * 3
    report = empty_report([])
    object.__setattr__(report, "findings", (finding(location=Location(sources=tuple(many))),))

    place_sources(report, [tmp_path])

    assert len(looked) == 2048


def called(name: str, ts: float, dur: float, line: int) -> Event:
    return {**function(name, ts, dur), "args": {"Call line": line}}


def test_the_recorded_line_of_a_call_is_named() -> None:
    stacks = (
        function("train.py(10): main", 1, 790),
        called("torch/utils/data/dataloader.py(3): __next__", 10, 200, 14),
        called("<built-in function sum>", 300, 400, 15),
        function("torch/nn/a.py(1): inside", 310, 300),
    )
    one = found("GAP106", *STARVED, *stacks)

    assert lines(one)[:2] == [("train.py", 15, "main", 400_000), ("train.py", 14, "main", 200_000)]


def test_a_line_of_a_file_that_a_library_wrote_is_no_line_of_the_function_around(tmp_path: Path) -> None:
    stacks = (
        function("train.py(10): main", 1, 790),
        called("torch_geometric/nn/conv/gcn_conv.py(3): forward", 10, 700, 14),
        function("/tmp/torch_geometric.nn.conv.made_x1.py(116): propagate", 20, 600),
        called("torch_geometric/nn/aggr/base.py(9): __call__", 30, 500, 245),
    )
    (tmp_path / "trace.json").write_bytes(document([*STARVED, *stacks], perftoolInstalled=["torch_geometric"]))
    (one,) = findings_of([str(tmp_path / "trace.json")], only("GAP106"))

    assert lines(one) == [("train.py", 14, "main", 700_000), ("train.py", 10, "main", 90_000)]


@pytest.mark.parametrize(("inside", "line"), [(True, 7), (False, 9)])
def test_anomaly_detection_is_named_by_the_line_that_switches_it_on_or_else_by_the_backward_pass(
    inside: bool, line: int
) -> None:
    switch = called("torch/autograd/anomaly_mode.py(113): __init__", 10, 5, 7)
    pass_ = called("torch/autograd/__init__.py(243): backward", 100, 800, 9)
    node = x("autograd::engine::evaluate_function: MulBackward0", 200, 600)
    checks = [x(name, 300 + 100 * at, 50) for at, name in enumerate(("aten::isnan", "aten::_is_any_true"))]
    main = function("train.py(3): train", 1, 990)
    one = found("GAP115", step(1, 0, 1000), main, *([switch] if inside else []), pass_, node, *checks)

    assert lines(one)[0][:3] == ("train.py", line, "train")


def test_the_body_of_a_loop_counts_for_the_line_that_calls_it() -> None:
    body = [called("images.py(5): normalize", 10 + 20 * n, 18, 12) for n in range(20)]
    inner = [called("<built-in function sin>", 12 + 20 * n, 10, 6) for n in range(20)]
    one = found("GAP106", *STARVED, function("train.py(10): preprocess", 1, 790), *body, *inner)

    assert lines(one) == [("train.py", 10, "preprocess", 430_000), ("train.py", 12, "preprocess", 360_000)]


def test_a_function_that_waits_for_the_next_batch_is_never_the_place_of_a_loss(tmp_path: Path) -> None:
    path = "vllm/distributed/device_communicators/shm_broadcast.py"
    events = [
        x("worker.py(3): main", 0, 400_000, "python_function"),
        *(x("execute_context_0(0)_generation_8(8)", at, 10_000, "user_annotation") for at in range(0, 400_000, 20_000)),
        *(x("aten::mm", at, 10_000) for at in range(0, 400_000, 20_000)),
        *(x(f"{path}(830): acquire_read", at + 10_000, 9_000, "python_function") for at in range(0, 400_000, 20_000)),
        *(
            x("vllm/utils.py(44): sched_yield", at + 11_000, 7_000, "python_function")
            for at in range(0, 400_000, 20_000)
        ),
    ]
    (tmp_path / "trace.json").write_bytes(document(events))
    (found,) = findings_of([str(tmp_path / "trace.json")], only("SRV103"))

    assert [(line.file, line.function) for line in found.location.sources] == [("worker.py", "main")]
    # The function takes 200 ms, but it waits for 180 ms of that time.
    assert found.location.sources[0].ns <= 20_000_000


def test_time_outside_the_model_of_a_server_is_never_placed_inside_the_model() -> None:
    runner = "vllm/v1/worker/gpu_model_runner.py"
    decodes = [
        event
        for at in range(0, 200_000, 10_000)
        for event in (
            x("execute_context_0(0)_generation_8(8)", at, 9_000, "user_annotation"),
            function(f"{runner}(3700): execute_model", at, 9_000),
            function(f"{runner}(1920): _prepare_inputs", at, 2_000),
            function(f"{runner}(3620): _model_forward", at + 2_000, 6_000),
            function("vllm/models/llama.py(99): forward", at + 2_100, 5_900),
            x("aten::mm", at + 6_000, 1_000),
        )
    ]

    named = lines(found("SRV103", *decodes))
    assert [place[:3] for place in named] == [(runner, 1920, "_prepare_inputs"), (runner, 3700, "execute_model")]
