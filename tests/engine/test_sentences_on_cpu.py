"""Sentences about the parts of the time of a run on the CPU: modules, functions, loops, copies and the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from events import Event, document, step, x

from perftool.engine.analysis import analyze
from perftool.engine.report import overview
from perftool.engine.report.apart import apart_sentence
from perftool.engine.report.device_words import named_modules, named_parts
from perftool.engine.report.functions import functions_sentence, narrow_sentence, optimizer_sentence
from perftool.engine.report.long_calls import LongCalls, long_calls
from perftool.engine.report.modules import annotated_work, backward_passes, modules, op_loop
from perftool.engine.report.moves import moves_sentence
from perftool.engine.report.step_words import steps_and_phases
from perftool.engine.report.verdict_input import OnCpu, VerdictInput
from perftool.engine.rules.pack import shipped_rules
from perftool.store.trace_store import TraceStore

NO_LONG_CALLS = LongCalls()
Opening = Callable[[list[Event]], TraceStore]


def context_of(events: list[Event], folder: Path) -> str:
    path = folder / "trace.json"
    path.write_bytes(document(events))
    return " ".join(analyze([str(path)], []).verdict.context)


def parts_of(store: TraceStore) -> str:
    """Return the sentence about modules or, if there are none, about annotations."""
    return named_parts(VerdictInput(
        summary={}, rules=(), not_applicable=(), modules=modules(store), annotated=annotated_work(store)
    ))  # fmt: skip


def functions_of(store: TraceStore, stepped: bool = True) -> str:
    return functions_sentence(store, stepped, bool(modules(store)))[0]


def repeated(store: TraceStore, steps: int = 1, long: LongCalls = NO_LONG_CALLS) -> str:
    """Return the sentence about what a step repeats. ``long``: its calls that take most of the time."""
    counted = overview.metrics([{"metric": "steps", "value": steps, "numerator": None, "denominator": None}])
    on_cpu = OnCpu(op_loop=op_loop(store), backward_passes=backward_passes(store), long_calls=long)
    run = VerdictInput(
        summary=counted, rules=(), not_applicable=(), modules=modules(store), device="cpu",
        on_cpu=on_cpu,
    )  # fmt: skip
    return steps_and_phases(run, None, "")[1]


def python(name: str, ts: float, dur: float, number: int) -> Event:
    return x(name, ts, dur, "python_function", **{"Python id": number})


def module(name: str, ts: float, dur: float, number: int) -> Event:
    return python(f"nn.Module: {name}", ts, dur, number)


def test_a_report_contains_the_sentences(tmp_path: Path) -> None:
    events = [
        x("PyTorch Profiler (0)", 0, 32_000, "Trace", pid="Spans", tid="PyTorch Profiler"),
        python("run.py(3): <module>", 0, 32_000, 1), python("run.py(5): tokenize", 500, 10_000, 2),
        python("run.py(20): update", 11_000, 20_000, 3),
    ]  # fmt: skip
    for number, at in enumerate((11_000, 21_000)):
        events += [
            step(number, at, 10_000), python("run.py(8): encode", at, 6000, 4), x("aten::mm", at, 2900),
            x("aten::mm", at + 3000, 2900), python("run.py(14): score", at + 6000, 2400, 5),
            *(x("aten::mm", at + 6000 + 50 * k, 40) for k in range(10)), x("aten::copy_", at + 6800, 1500),
            x("Optimizer.step#SparseAdam.step", at + 8500, 1500, "user_annotation"), x("aten::mul", at + 8500, 1400),
        ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_bytes(document(events))
    verdict = analyze([str(path)], []).verdict

    context = " ".join(verdict.context)
    assert "Of the 32.0 ms recorded, 11.0 ms pass before the first complete step, mostly in tokenize" in context
    assert "Time by function, outside PyTorch: encode (run.py:8) 60.0 %; score (run.py:14) 24.0 %" in context
    assert "aten::mm spends more than half of its time in 2 of 12 calls a step." in context
    assert "Copies and fills, which compute nothing, take 15.0 % of the time" in context
    assert "The optimizer (SparseAdam) takes 15.0 % of the time." in context
    assert "All steps (20.0 ms) are within one call to update (run.py:20)." in verdict.caveats


def test_the_time_before_and_after_the_steps_is_given_with_the_functions_that_take_it(store: Opening) -> None:
    """The trace contains the profiler's span, so the time outside the steps is known even without stacks."""
    steps = [event for k in range(4) for event in (step(k, 5000 + 1000 * k, 1000), x("aten::mm", 5000 + 1000 * k, 900))]
    span = x("PyTorch Profiler (0)", 0, 12_000, "Trace", pid="Spans", tid="PyTorch Profiler")
    stacks = [
        python("run.py(3): <module>", 100, 11_900, 1), python("run.py(8): tokenize", 300, 4000, 2),
        python("run.py(20): plot", 9100, 2500, 3),
    ]  # fmt: skip
    short = [step(k, 500 + 1000 * k, 1000) for k in range(4)]

    def said(*events: Event) -> str:
        return apart_sentence(store(list(events)))

    assert "Of the 9.00 ms recorded, 5.00 ms pass before the first complete step." in said(*steps, span)
    assert (
        "Of the 12.0 ms recorded, 5.00 ms pass before the first complete step, mostly in tokenize (run.py), "
        "and 3.00 ms after the last complete step, mostly in plot (run.py)."
    ) in said(*steps, span, *stacks)
    # The profiler stops and saves its trace during the last update, after its span has ended.
    saving = x("Optimizer.step#Adam.step", 8900, 9000, "user_annotation")
    assert "after the last" not in said(*steps, span | {"dur": 9100}, saving)
    # The time before the first step may be part of a step.
    assert "pass before" not in said(
        *short, *(x("aten::mm", one["ts"], 900) for one in short), x("aten::mm", 0, 400), span | {"dur": 4600}
    )


def test_the_time_before_the_ops_of_a_recording_without_steps_is_given(store: Opening) -> None:
    ops = [x("aten::mm" if k % 2 else "aten::exp", 4000 + 100 * k, 90) for k in range(60)]
    setup = [x("aten::normal_", 10, 50)]
    loaded = [python("run.py(8): load", 100, 3800, 2)]

    def said(*events: Event) -> str:
        return apart_sentence(store([python("run.py(3): <module>", 0, 10_000, 1), *events]))

    assert "Of the 10.0 ms recorded, 4.00 ms pass before the repeated ops, mostly in load (run.py)." in said(
        *setup, *loaded, *ops
    )
    assert "Of the 10.0 ms recorded, 4.00 ms pass before the first op, mostly in <module> (run.py)." in said(
        x("aten::mm", 4000, 6000)
    )


def test_copies_and_fills_are_mentioned_if_they_take_a_tenth_of_the_time(store: Opening) -> None:
    """The copy of a backward function counts for the line that ran the forward op."""

    def said(copied_us: int, *more: Event) -> str:
        opened = store([
            step(1, 0, 1000), python("net.py(7): dilate", 0, 300, 1), python("net.py(3): train", 300, 690, 2),
            x("aten::slice", 10, 20, **{"Sequence number": 4}), x("aten::mm", 40, 250), x("aten::exp", 300, 250),
            x("autograd::engine::evaluate_function: SliceBackward0", 600, copied_us + 10,
              **{"Sequence number": 4, "Fwd thread id": 1}),
            x("aten::copy_", 605, copied_us), *more,
        ])  # fmt: skip
        return moves_sentence(opened)

    assert said(90) == ""
    copies = "Copies and fills, which compute nothing, take"
    assert f"{copies} 15.0 % of the time, 100.0 % of it in dilate (net.py:7)." in said(150)
    assert f"{copies} 20.0 % of the time, 75.0 % of it in dilate (net.py:7)." in said(150, x("aten::fill_", 900, 50))


def test_an_optimizer_with_a_large_share_of_the_time_is_named(store: Opening) -> None:
    def said(kind: str, dur: int, *outer: Event) -> str:
        # The last call ends after the last step.
        calls = [
            x(f"Optimizer.step#{kind}.step", at + 10_000 - dur, dur + longer, "user_annotation")
            for at, longer in ((0, 0), (10_000, 90_000))
        ]
        steps = [step(1, 0, 10_000), step(2, 10_000, 10_000)]
        return optimizer_sentence(store([*steps, x("aten::mm", 0, 5900), x("aten::mm", 10_000, 5900), *calls, *outer]))

    lookahead = [
        x("Optimizer.step#Lookahead.step", at, dur, "user_annotation") for at, dur in ((6000, 4000), (16_000, 95_000))
    ]
    assert "The optimizer (SparseAdam) takes 40.0 % of the time." in said("SparseAdam", 4000)
    assert "The optimizer (Adamax) takes 30.0 % of the time." in said("Adamax", 3000, *lookahead)
    assert said("SparseAdam", 1000) == ""


def test_an_optimizer_that_the_first_finding_is_about_is_not_named_again(tmp_path: Path) -> None:
    steps = [step(1, 0, 10_000), step(2, 10_000, 10_000)]
    calls = [x("Optimizer.step#Adam.step", at + 6000, 4000, "user_annotation") for at in (0, 10_000)]
    path = tmp_path / "trace.json"
    path.write_bytes(document([*steps, x("aten::mm", 0, 5900), x("aten::mm", 10_000, 5900), *calls]))
    report = analyze([str(path)], [rule for rule in shipped_rules() if rule.code == "FUS101"])

    assert report.findings[0].code == "FUS101"
    assert "The optimizer" not in " ".join(report.verdict.context)


def test_a_step_of_many_backward_passes_says_how_many(tmp_path: Path) -> None:
    events = [step(1, 0, 10_000)]
    events += [x(name, at, 4500, "user_annotation") for name, at in (("encode", 0), ("decode", 4500))]
    for k in range(9):
        events += [
            x("aten::mul", 1000 * k, 500, **{"Sequence number": k}),
            x("autograd::engine::evaluate_function: MulBackward0", 1000 * k + 500, 400, **{"Sequence number": k}),
        ]
    context = context_of(events, tmp_path)

    assert "A step has 9 backward passes." in context
    assert "By annotation: encode 55.6 %, decode 44.4 % of the work." in context


def test_a_loop_of_ops_is_shown_with_its_length_and_how_often_it_runs(tmp_path: Path) -> None:
    events = [step(1, 0, 10_000)]
    for k in range(20):
        events += [
            x(name, 400 * k + at, 100) for name, at in (("aten::sub", 0), ("aten::topk", 100), ("aten::lt", 200))
        ]
    context = context_of(events, tmp_path)

    said = "A step repeats about 3 ops (aten::topk, aten::sub, aten::lt) 19 times: 76.0 % of the time."
    assert said in context


def test_a_loop_of_unnamed_ops_is_not_mentioned(store: Opening) -> None:
    # The ops take less than a third of each repetition.
    events = [step(1, 0, 10_000)]
    for k in range(20):
        events += [x(name, 400 * k + at, 30) for name, at in (("aten::sub", 0), ("aten::topk", 100), ("aten::lt", 200))]
    opened = store(events)

    assert repeated(opened) == ""


def test_the_layers_of_a_model_are_no_loop(store: Opening) -> None:
    events = [step(1, 0, 10_000)]
    for k in range(12):
        events += [x("aten::linear", 400 * k, 100), x("aten::gelu", 400 * k + 100, 200)]
    opened = store(events)

    assert repeated(opened) == ""


def test_an_annotation_around_the_whole_step_gives_way_to_those_inside_it(store: Opening) -> None:
    opened = store([
        step(1, 0, 10_000), x("md_step", 0, 10_000, "user_annotation"), x("neighbours", 0, 7000, "user_annotation"),
        x("forces", 7000, 3000, "user_annotation"), x("aten::mul", 100, 6000), x("aten::add", 7100, 2000),
    ])  # fmt: skip

    assert "By annotation: neighbours 75.0 %, forces 25.0 % of the work." in parts_of(opened)


def test_a_model_that_a_step_calls_many_times_is_counted(store: Opening) -> None:
    calls = [module("Net_0", 1000 * k, 900, k + 2) for k in range(10)]
    ops = [x("aten::mul", 1000 * k + 50, 800) for k in range(10)]
    opened = store([
        step(1, 0, 10_000), python("eval.py(3): <module>", 0, 10_000, 1), *calls, *ops,
    ])  # fmt: skip

    assert "A step calls Net 10 times." in repeated(opened)


def test_a_layer_that_its_module_calls_again_and_again_is_counted(store: Opening) -> None:
    calls = [module("Cell_0", 100 + 1000 * k, 900, k + 3) for k in range(9)]
    ops = [x("aten::mul", 150 + 1000 * k, 800) for k in range(9)]
    opened = store([
        step(1, 0, 10_000), python("run.py(3): <module>", 0, 10_000, 1), module("Rnn_0", 10, 9900, 2),
        *calls, *ops,
    ])  # fmt: skip

    assert "Each call to Rnn calls the same Cell 9 times: 100.0 % of the work." in repeated(opened)


def test_the_users_functions_that_divide_the_time_are_named(store: Opening) -> None:
    """The caller of both functions has all of the time. The time of library functions belongs to their caller."""
    library = [python("transformers/models/clip/modeling_clip.py(9): forward", 110, 6800, 5)]
    encoded = [python("run.py(8): encode", 100 + 3500 * k, 3500, 3 + 10 * k) for k in range(2)]
    events = [
        python("run.py(3): <module>", 0, 10_000, 1), python("run.py(20): main", 10, 9900, 2), *encoded, *library,
        python("run.py(14): score", 7200, 2600, 4), python("run.py(15): <listcomp>", 7300, 2400, 6),
    ]  # fmt: skip
    opened = store([*events, x("aten::add", 0, 50), x("aten::mul", 120, 6700), x("aten::exp", 7300, 2700)])

    said = functions_of(opened, stepped=False)

    assert "Time by function, outside PyTorch: encode (run.py:8) 70.0 %, 2 calls; score (run.py:14) 26.0 %." in said


@pytest.mark.parametrize(
    ("outer", "times", "said"),
    [
        ("run.py(20): update", 1, "All steps (8.00 ms) are within one call to update (run.py:20). Work before"),
        ("run.py(20): update", 1000, ""),
        ("run.py(20): update", 4, ""),
        ("run.py(20): main", 1, ""),
    ],
    ids=["one call", "a long recording", "a call for each step", "the main function"],
)
def test_a_short_recording_within_one_call_may_not_show_what_the_program_does_between(
    store: Opening, outer: str, times: int, said: str
) -> None:
    """Reinforcement learning, for example, collects data between its updates."""
    length = 2000 * times if times == 1000 else 2000
    steps = [step(k + 1, length * k, length) for k in range(4)]
    calls = 4 if times == 4 else 1
    outside = [python(outer, 4 * length // calls * k, 4 * length // calls, k + 2) for k in range(calls)]
    opened = store([
        *steps, python("run.py(3): <module>", 0, 4 * length, 1), *outside,
        *(x("aten::mul", length * k, length // 2) for k in range(4)),
    ])  # fmt: skip

    assert narrow_sentence(opened).startswith(said)
    assert bool(narrow_sentence(opened)) == bool(said)


def test_a_call_that_ran_when_the_recording_began_counts_with_the_later_calls(store: Opening) -> None:
    """The recording begins inside a call of encode, so that call has no line."""

    def call(name: str, number: int, parent: int | None, ts: float, dur: float) -> Event:
        return x(name, ts, dur, "python_function", **{"Python parent id": parent, "Python id": number})

    events = [
        call("run.py(21): main", 1, None, 0, 10_000), call("run.py(9): encode", 2, 1, 2, 2998),
        call("torch/profiler/profiler.py(1227): step", 3, 2, 4, 20),
        call("torch/autograd/profiler.py(414): _start_trace", 4, 3, 6, 10),
        call("<built-in function perf_counter_ns>", 5, 4, 10, 1),
        call("run.py(8): encode", 6, 1, 3000, 4000), call("run.py(14): score", 7, 1, 7000, 2900),
    ]  # fmt: skip
    opened = store([*events, x("aten::mul", 120, 6700), x("aten::exp", 7300, 2700)])

    assert "Time by function, outside PyTorch: encode (run.py:8) 69.6 %, 2 calls; score" in functions_of(
        opened, stepped=False
    )


def test_a_few_calls_with_most_of_the_time_of_an_op_are_counted(store: Opening) -> None:
    events = [step(1, 0, 10_000), step(2, 10_000, 10_000)]
    for begin in (0, 10_000):
        events += [x("aten::mm", begin + 4000 * k, 3000) for k in range(2)]
        events += [x("aten::mm", begin + 8000 + 100 * k, 90) for k in range(10)]

    def said(ops: list[Event]) -> tuple[str, ...]:
        return long_calls(store(ops), "aten::mm", (), (), True).sentences

    assert said(events) == ("aten::mm spends more than half of its time in 2 of 12 calls a step.",)
    assert said([event for event in events if event["dur"] != 90]) == ()


def test_the_first_call_of_a_module_with_most_of_its_time_is_named_instead_of_its_op(store: Opening) -> None:
    """In the second recording, a different call is the slow one in each step."""

    def recorded(apart: int) -> TraceStore:
        events = [python("run.py(3): <module>", 0, 20_000, 1)]
        for number, begin in enumerate((0, 10_000)):
            events.append(step(1 + number, begin, 10_000))
            slow = apart * number
            for k in range(10):
                at, dur = begin + 100 * k + (5000 if k > slow else 0), 5000 if k == slow else 90
                events += [module("Net_0", at, dur, 10 + k + begin), x("aten::mm", at + 1, dur - 2)]
        return store(events)

    opened, random = recorded(0), recorded(1)
    few = long_calls(opened, "aten::mm", named_modules(modules(opened)), (), True)
    assert few.sentences == ("Net spends more than half of its time in the first of 10 calls a step.",)
    assert repeated(opened, 2, few) == ""
    assert repeated(opened, 2) == "A step calls Net 10 times."
    assert long_calls(random, "aten::mm", named_modules(modules(random)), (), True).sentences == ()


def test_functions_have_the_backward_pass_of_what_they_compute(store: Opening) -> None:
    """The verdict also names what the outermost function computes outside of modules. The time of the backward pass
    does not count for the function that runs it.
    """

    def forward(name: str, at: int, dur: int, number: int) -> Event:
        return x(name, at, dur, **{"Sequence number": number})

    def backward(name: str, at: int, dur: int, number: int) -> list[Event]:
        function = x(f"autograd::engine::evaluate_function: {name}", at, dur, **{"Sequence number": number})
        return [function, x("aten::mul", at, dur)]

    opened = store([
        step(1, 0, 10_000), python("run.py(9): train", 0, 10_000, 1),
        module("Net_0", 0, 1000, 2), forward("aten::add", 10, 900, 1),
        python("run.py(3): penalty", 1000, 1000, 3), forward("aten::norm", 1000, 1000, 2),
        forward("aten::pow", 2000, 1000, 3),
        python("run.py(6): update", 3000, 7000, 4), *backward("PowBackward0", 3000, 3000, 3),
        *backward("NormBackward0", 6000, 2000, 2), *backward("AddBackward0", 8000, 1500, 1),
    ])  # fmt: skip

    named = "train itself (run.py:9, mostly aten::pow) 40.0 %; penalty (run.py:3) 30.0 %; update (run.py:6) 5.0 %."
    said = functions_of(opened)
    assert f"Time by function, outside PyTorch, backward pass included: {named}" in said


def test_work_that_counts_for_two_functions_is_not_divided_among_them(store: Opening) -> None:
    """A gradient that is differentiated again counts for the function that computes it, and for the forward pass."""

    def work(name: str, at: int, dur: int, number: int) -> Event:
        return x(name, at, dur, **{"Sequence number": number})

    opened = store([
        step(1, 0, 10_000), python("run.py(9): train", 0, 10_000, 1),
        python("run.py(3): energy", 0, 2000, 2), work("aten::norm", 0, 2000, 1),
        work("autograd::engine::evaluate_function: NormBackward0", 2000, 4000, 1), work("aten::mul", 2000, 4000, 2),
        work("autograd::engine::evaluate_function: MulBackward0", 6000, 4000, 2), x("aten::mul", 6000, 4000),
    ])  # fmt: skip

    assert functions_of(opened) == ""


def test_the_forward_of_modules_has_no_second_sentence(store: Opening) -> None:
    opened = store([
        step(1, 0, 10_000), python("run.py(9): train", 0, 10_000, 1), module("Net_0", 0, 5000, 2),
        python("run.py(3): forward", 10, 4900, 3), x("aten::add", 20, 4800), x("aten::mul", 5000, 5000),
    ])  # fmt: skip

    assert parts_of(opened) == "By module: Net 49.0 % of the work; 51.0 % is outside of modules."
    assert functions_of(opened) == ""


def test_forward_and_backward_of_an_op_are_added_up(tmp_path: Path) -> None:
    said = context_of([
        step(1, 0, 10_000), x("aten::lstm", 0, 3000), x("aten::mkldnn_rnn_layer", 0, 3000, **{"Sequence number": 1}),
        x("aten::exp", 3000, 1000, **{"Sequence number": 2}),
        x("autograd::engine::evaluate_function: ExpBackward0", 4000, 1000, **{"Sequence number": 2}),
        x("aten::mul", 4000, 1000),
        x("autograd::engine::evaluate_function: MkldnnRnnLayerBackward0", 5000, 5000, **{"Sequence number": 1}),
        x("aten::mkldnn_rnn_layer_backward", 5000, 5000),
    ], tmp_path)  # fmt: skip

    assert "By op, backward pass included: aten::lstm 80.0 %, aten::exp 20.0 % of the work." in said


def test_a_function_with_all_of_the_time_is_not_named(store: Opening) -> None:
    opened = store([
        python("run.py(3): <module>", 0, 10_000, 1), python("run.py(20): main", 10, 9900, 2),
        x("aten::mul", 120, 9700),
    ])  # fmt: skip

    assert functions_of(opened) == ""


def test_unannotated_backward_work_belongs_to_the_annotation_of_its_forward_op(store: Opening) -> None:
    opened = store([
        step(1, 0, 10_000), x("encode", 0, 1000, "user_annotation"), x("loss", 1000, 3000, "user_annotation"),
        x("aten::mul", 0, 1000, **{"Sequence number": 1}), x("aten::exp", 1000, 3000, **{"Sequence number": 2}),
        x("autograd::engine::evaluate_function: ExpBackward0", 4000, 5000, **{"Sequence number": 2}),
        x("aten::mul", 4000, 5000),
        x("autograd::engine::evaluate_function: MulBackward0", 9000, 1000, **{"Sequence number": 1}),
        x("aten::mul", 9000, 1000),
    ])  # fmt: skip

    parts = parts_of(opened)

    assert "By annotation, backward pass included: loss 80.0 %, encode 20.0 % of the work." in parts


def test_a_class_of_modules_inside_and_outside_the_largest_module_counts_as_a_whole(store: Opening) -> None:
    opened = store([
        step(1, 0, 10_000), python("eval.py(3): <module>", 0, 10_000, 1),
        module("Body_0", 0, 6000, 2), module("W8Linear_0", 100, 5500, 3), x("aten::mul", 150, 5400),
        module("W8Linear_1", 6000, 4000, 4), x("aten::mul", 6100, 3600),
    ])  # fmt: skip

    assert "By module: W8Linear 100.0 % of the work." in parts_of(opened)


def test_shares_of_modules_include_inner_modules_and_count_no_work_twice(store: Opening) -> None:
    """Block takes 60 % of the work: 50 % in its submodule Conv and 10 % itself. Neither Block nor its own 10 % appear
    beside Conv.
    """

    opened = store([
        step(1, 0, 10_000), python("run.py(3): <module>", 0, 10_000, 1),
        module("Block_0", 0, 6000, 2), module("Conv_0", 0, 5000, 3), x("aten::mul", 0, 5000),
        x("aten::add", 5000, 1000),
        module("Conv_1", 6000, 2500, 4), x("aten::mul", 6000, 2500),
        module("Norm_0", 8500, 1500, 5), x("aten::div", 8500, 500), module("Scale_0", 9000, 1000, 6),
        x("aten::exp", 9000, 1000),
    ])  # fmt: skip

    assert "By module: Conv 75.0 %, Norm 15.0 % of the work." in parts_of(opened)


def test_a_container_of_modules_is_not_named(store: Opening) -> None:
    opened = store([
        step(1, 0, 10_000), python("run.py(3): <module>", 0, 10_000, 1),
        module("Sequential_0", 0, 6000, 2), module("Conv_0", 0, 3000, 3), x("aten::mul", 0, 3000),
        module("Norm_0", 3000, 3000, 4), x("aten::div", 3000, 3000),
        module("Conv_1", 6000, 4000, 5), x("aten::mul", 6000, 4000),
    ])  # fmt: skip

    assert "By module: Conv 70.0 %, Norm 30.0 % of the work." in parts_of(opened)


def test_a_module_inside_one_of_its_own_class_is_not_named(store: Opening) -> None:
    opened = store([
        step(1, 0, 10_000), python("run.py(3): <module>", 0, 10_000, 1),
        module("Scale_0", 0, 10_000, 2), module("Coupling_0", 0, 5000, 3), x("aten::mul", 0, 5000),
        module("Scale_1", 5000, 3000, 4), module("Coupling_1", 5000, 3000, 5), x("aten::mul", 5000, 3000),
        module("Norm_0", 8000, 2000, 6), x("aten::div", 8000, 2000),
    ])  # fmt: skip

    assert "By module: Coupling 80.0 %, Norm 20.0 % of the work." in parts_of(opened)


def test_modules_inside_a_wrapper_are_named(store: Opening) -> None:
    opened = store([
        step(1, 0, 10_000), python("run.py(3): <module>", 0, 10_000, 1),
        module("DistributedDataParallel_0", 0, 6000, 2), module("Critic_0", 0, 6000, 3), x("aten::mul", 0, 6000),
        module("DistributedDataParallel_1", 6000, 2000, 4), module("Generator_0", 6000, 2000, 5),
        x("aten::mul", 6000, 2000),
        module("Loss_0", 8000, 2000, 6), x("aten::mul", 8000, 2000),
    ])  # fmt: skip

    assert "By module: Critic 60.0 %, Generator 20.0 %, Loss 20.0 % of the work." in parts_of(opened)


def test_work_inside_a_nested_wrapper_counts_once(store: Opening) -> None:
    opened = store([
        step(1, 0, 10_000), python("run.py(3): <module>", 0, 10_000, 1),
        module("FullyShardedDataParallel_0", 0, 10_000, 2), module("Net_0", 0, 10_000, 3),
        module("FullyShardedDataParallel_1", 0, 6000, 4), module("Block_0", 0, 6000, 5), x("aten::mul", 0, 6000),
        module("Head_0", 6000, 4000, 6), x("aten::mul", 6000, 4000),
    ])  # fmt: skip

    assert "By module: Block 60.0 %, Head 40.0 % of the work." in parts_of(opened)
