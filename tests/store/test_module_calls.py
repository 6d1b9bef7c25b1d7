"""Whether a backward pass goes through each call of a module."""

from __future__ import annotations

from events import Event, step, x
from stores import store_over

BACKWARD = "autograd::engine::evaluate_function: {}Backward0"


def module(name: str, ts: float, dur: float, forward: str = "net.py(20): forward") -> list[Event]:
    inside = x(forward, ts + 1, dur - 2, "python_function")
    return [x(f"nn.Module: {name}", ts, dur, "python_function"), inside]


def op(ts: float, number: int) -> Event:
    return x("aten::linear", ts, 20, **{"Sequence number": number, "Fwd thread id": 0})


def backward(ts: float, number: int) -> Event:
    return x(BACKWARD.format("Addmm"), ts, 20, **{"Sequence number": number, "Fwd thread id": 1})


def calls(*events: Event) -> list[tuple[str, int | None, bool | None]]:
    with store_over([step(1, 0, 1000), *events]) as store:
        store.build(["module_calls"])
        found = store.select("SELECT module, line, differentiated FROM module_calls ORDER BY ts")
    return [(one["module"], one["line"], one["differentiated"]) for one in found]


def test_a_call_with_a_differentiated_op_is_told_from_one_without() -> None:
    trained = [*module("Net_0", 0, 100), op(10, 1), backward(500, 1)]
    unused = [*module("Net_0", 200, 100), x("aten::linear", 210, 20)]
    frozen = [*module("Frozen_3", 320, 100, "frozen.py(7): forward"), op(330, 5), op(430, 5)]

    assert calls(*trained, *unused, *frozen) == [("Net", 20, True), ("Net", 20, False), ("Frozen", 7, False)]


def test_a_call_is_differentiated_if_the_backward_pass_runs_one_of_its_numbers() -> None:
    many = [event for at in range(10) for event in (op(400 + at, 8), backward(600 + 30 * at, 8))]
    assert calls(*module("Net_0", 0, 100), op(10, 5), *many) == [("Net", 20, False)]
    assert calls(*module("Net_0", 0, 100), op(10, 5), *many, backward(950, 6)) == [("Net", 20, True)]


def test_a_call_inside_a_checkpoint_is_differentiated() -> None:
    around = x("CheckpointFunction", 0, 120, **{"Sequence number": 1, "Fwd thread id": 0})
    inside = [*module("Net_0", 10, 100), x("aten::linear", 20, 20)]
    again = [*module("Net_0", 505, 10), x("aten::linear", 507, 3)]

    assert calls(around, *inside, backward(500, 1), *again) == [("Net", 20, True), ("Net", 20, True)]


def test_it_is_unknown_if_most_backward_functions_differentiate_ops_that_were_not_recorded() -> None:
    events = [*module("Net_0", 0, 100), x("aten::linear", 10, 20), op(300, 50), backward(500, 2), backward(530, 3)]

    assert calls(*events) == [("Net", 20, None)]
