"""Device time of modules in forward, backward and recomputation, and outside of modules."""

from __future__ import annotations

from pathlib import Path

from events import Event, document, launch, step, x
from stores import store_over

from perftool.api import analyze
from perftool.engine.report.modules import modules
from perftool.model.modules import ModuleTime
from perftool.reporters.modules import module_label, path_tail

BACKWARD = "autograd::engine::evaluate_function: {}Backward0"


def module(name: str, ts: float, dur: float) -> Event:
    return x(f"nn.Module: {name}", ts, dur, "python_function")


def op(name: str, ts: float, correlation: int, us: float, **args: int) -> list[Event]:
    """Return an op of 8 us that launches a kernel of ``us`` microseconds."""
    return [x(f"aten::{name}", ts, 8, **args), *launch(correlation, ts + 1, 5, 10 * ts + 5_000, us, f"{name}_kernel")]


def backward(name: str, ts: float, correlation: int, us: float, sequence: int) -> list[Event]:
    function = x(BACKWARD.format(name), ts, 10, **{"Sequence number": sequence, "Fwd thread id": 1})
    return [function, *op(f"{name.lower()}_backward", ts + 1, correlation, us)]


def trained() -> list[Event]:
    """Return a training step of a model with two layers, each a matmul and an activation."""
    events = [step(1, 0, 20_000), module("Model_0", 10, 190)]
    for layer in range(2):
        at, number = 20 + 80 * layer, 2 * layer
        events += [module(f"Layer_{layer}", at, 60), module(f"Linear_{layer}", at + 5, 20)]
        events += op("mm", at + 10, number + 1, 100, **{"Sequence number": number, "Fwd thread id": 0})
        events += op("gelu", at + 40, number + 2, 10, **{"Sequence number": number + 1, "Fwd thread id": 0})
    for place, (name, sequence, us) in enumerate((("Gelu", 3, 20), ("Mm", 2, 200), ("Gelu", 1, 20), ("Mm", 0, 200))):
        events += backward(name, 210 + 30 * place, 10 + place, us, sequence)
    return [*events, *op("_fused_adamw_", 400, 20, 30)]


def modules_of(events: list[Event]) -> tuple[ModuleTime, ...]:
    with store_over(events) as store:
        return modules(store)


def test_work_belongs_to_the_modules_of_its_launch_or_its_forward_op(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(document(trained()))
    found = analyze(str(path), rules=[]).modules
    assert [(one.path, one.modules, one.calls, one.forward_ns, one.backward_ns, one.own_ns) for one in found] == [
        ("Model", 1, 1, 220_000, 440_000, 0),
        ("Model > Layer", 2, 2, 220_000, 440_000, 60_000),
        ("Model > Layer > Linear", 2, 2, 200_000, 400_000, 600_000),
        (None, 0, 0, 30_000, 0, 30_000),
    ]
    assert [one.depth for one in found] == [1, 2, 3, 0]
    assert round(found[0].share + found[-1].share, 9) == 1
    assert [module_label(one) for one in found] == ["Model", "Layer x2", "Linear x2", "outside of modules"]


def test_the_backward_pass_of_ops_from_before_the_recording_is_left_out() -> None:
    events = [
        event
        for event in trained()
        if event.get("args", {}).get("Sequence number", 2) > 1 or "Backward" in event["name"]
    ]
    found = modules_of(events)
    assert [(one.path, one.backward_ns) for one in found if one.depth < 2] == [("Model", 220_000), (None, 0)]


def test_modules_that_checkpointing_calls_again_are_those_of_the_forward_pass() -> None:
    events = [step(1, 0, 20_000), module("Model_0", 10, 100), module("Layer_0", 20, 60), module("Linear_0", 25, 20)]
    events += op("mm", 30, 1, 100)
    events += [x(BACKWARD.format("Checkpoint"), 200, 100, **{"Sequence number": 7, "Fwd thread id": 1})]
    events += [module("Layer_0", 210, 60), module("Linear_0", 215, 20), *op("mm", 220, 2, 100)]
    found = modules_of(events)
    assert [(one.path, one.calls, one.forward_ns, one.backward_ns) for one in found] == [
        ("Model", 1, 100_000, 100_000),
        ("Model > Layer", 2, 100_000, 100_000),
        ("Model > Layer > Linear", 2, 100_000, 100_000),
    ]


def test_a_module_that_only_starts_the_backward_pass_is_not_its_place() -> None:
    events = [step(1, 0, 20_000), module("Meta_0", 10, 500), module("Learner_0", 20, 60)]
    events += op("mm", 30, 1, 100, **{"Sequence number": 1, "Fwd thread id": 0})
    events += backward("Mm", 200, 2, 200, 1)
    found = modules_of(events)
    assert [(one.path, one.forward_ns, one.backward_ns) for one in found] == [
        ("Meta", 100_000, 200_000),
        ("Meta > Learner", 100_000, 200_000),
    ]


def test_without_modules_the_table_is_empty() -> None:
    events = [event for event in trained() if event["cat"] != "python_function"]
    assert modules_of(events) == ()


def test_modules_too_short_to_matter_are_left_out() -> None:
    events = [step(1, 0, 20_000), module("Large_0", 10, 30), *op("mm", 15, 1, 5000)]
    events += [module("Small_0", 50, 30), *op("add", 55, 2, 1)]
    assert [one.path for one in modules_of(events)] == ["Large"]


def test_a_path_keeps_its_innermost_modules() -> None:
    path = "Model > Encoder > Layer > Attention"
    assert path_tail(path, 40) == path
    assert path_tail(path, 25) == "… > Layer > Attention"
    assert path_tail(path, 5) == "… > Attention"
