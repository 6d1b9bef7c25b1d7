"""Blocks of memory, their uses, and the blocks that are live at a peak."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from events import Event, instant, launch, loader, step, x
from hypothesis import given, settings
from stores import store_over

from perftool.store import derive

KINDS = 'SELECT addr, kind, ts // 1000 AS ts, "end" // 1000 AS "end" FROM allocations ORDER BY id'


def memory(ts: float, addr: int, size: int, allocated: int, device_type: int = 1, **args: Any) -> Event:
    fields = {"Device Type": device_type, "Device Id": 0, "Addr": addr, "Bytes": size, "Total Allocated": allocated}
    return instant("[memory]", ts, **fields, **args)


def select(events: list[Event], sql: str, *tables: str) -> list[tuple[Any, ...]]:
    with store_over(events) as store:
        store.build([*tables])
        return [tuple(row.values()) for row in store.select(sql)]


def training_step(number: int, at: float) -> list[Event]:
    return [
        step(number, at, 100),
        x("aten::linear", at + 10, 10),
        *launch(number, at + 11, 2, at + 12, 5),
        x("autograd::engine::evaluate_function: AddmmBackward0", at + 40, 20),
        x("Optimizer.step#AdamW.step", at + 70, 20, "user_annotation"),
        x("aten::_foreach_add_", at + 72, 10),
    ]


# Everything that happens to the blocks of the second step, by address.
STORY = [
    *training_step(1, 0), *training_step(2, 100), *training_step(3, 200),
    memory(5, 1, 100, 1100),  # kept by the program from the first step on
    memory(111, 2, 10, 1110),  # saved for the backward pass
    memory(112, 3, 20, 1130), memory(113, 3, -20, 1110),
    memory(114, 4, 30, 1140), memory(122, 4, -30, 1110),
    memory(115, 5, 40, 1150),  # a result that the next step replaces
    memory(141, 2, -10, 1140), memory(142, 6, 50, 1190),  # a gradient
    memory(143, 7, 60, 1250), memory(150, 7, -60, 1190),
    memory(173, 8, 70, 1260),  # state of the optimizer
    memory(174, 9, 80, 1340), memory(188, 9, -80, 1260),
    memory(205, 6, -50, 1210), memory(211, 5, -40, 1170), memory(212, 99, -500, 670),
]  # fmt: skip


def test_the_kind_of_a_block_follows_from_its_times() -> None:
    found = {row[0]: row[1:] for row in select(STORY, KINDS, "allocations")}

    assert found == {
        1: ("kept", 5, None), 2: ("activations", 111, 141), 3: ("workspace", 112, 113), 4: ("temporary", 114, 122),
        5: ("kept", 115, 211), 6: ("gradients", 142, 205), 7: ("temporary", 143, 150),
        8: ("optimizer_state", 173, None), 9: ("workspace", 174, 188), 99: ("before_recording", None, 212),
    }  # fmt: skip


def test_the_kinds_of_a_step_add_up_to_what_the_allocator_says() -> None:
    peaks = "SELECT step, kind, peak_bytes, end_bytes, allocated FROM memory_steps WHERE step = 2 ORDER BY kind"

    assert select(STORY, peaks, "memory_steps") == [
        (2, "before_recording", 1000, 1000, 1340), (2, "gradients", 50, 50, 1340), (2, "kept", 140, 140, 1340),
        (2, "optimizer_state", 70, 70, 1340), (2, "workspace", 80, 0, 1340),
    ]  # fmt: skip
    assert select(STORY, "SELECT kind, op, bytes, count FROM memory_peak", "memory_peak") == [
        ("before_recording", None, 1000, None), ("kept", None, 100, 1),
        ("workspace", "aten::_foreach_add_", 80, 1), ("optimizer_state", "aten::_foreach_add_", 70, 1),
        ("gradients", None, 50, 1), ("kept", "aten::linear", 40, 1),
    ]  # fmt: skip


def test_blocks_made_by_loaders_are_inputs() -> None:
    events = [*training_step(1, 0), loader(2, 6), memory(4, 1, 10, 10), memory(95, 1, -10, 0)]

    assert select(events, KINDS, "allocations") == [(1, "inputs", 4, 95)]


def test_blocks_that_a_module_makes_and_keeps_are_parameters() -> None:
    events = [
        x("torch/nn/modules/linear.py(96): __init__", 0, 20, "python_function"),
        x("aten::empty", 5, 5), memory(6, 1, 10, 10), memory(7, 2, 10, 20), memory(9, 2, -10, 10),
        *training_step(1, 100), memory(190, 3, 4, 14),
    ]  # fmt: skip

    found = select(events, "SELECT addr, kind FROM allocations ORDER BY addr", "allocations")
    assert found[:2] == [(1, "parameters"), (2, "workspace")]


def test_the_last_step_may_end_after_the_recording() -> None:
    events = [*training_step(1, 0), memory(11, 1, 10, 10), memory(20, 2, 10, 20)]

    assert [row[1] for row in select(events, KINDS, "allocations")] == [None, None]


def test_an_address_that_is_allocated_again_was_released() -> None:
    events = [x("aten::a", 0, 50), memory(1, 7, 10, 10), memory(20, 7, 30, 30), memory(40, 7, -30, 0)]

    assert [row[2:] for row in select(events, KINDS, "allocations")] == [(1, 20), (20, 40)]


def test_without_addresses_there_are_no_blocks_and_no_peak() -> None:
    events = [x("aten::a", 0, 50), instant("[memory]", 5, **{"Device Type": 0, "Device Id": -1, "Bytes": 4})]

    assert select(events, "SELECT count(*) FROM memory", "memory") == [(1,)]
    for table in ("allocations", "memory_steps", "memory_peak"):
        assert select(events, f"SELECT count(*) FROM {table}", table) == [(0,)]


def test_the_op_that_computes_the_module_and_the_own_line_are_named() -> None:
    events = [
        x("train.py(7): step", 0, 100, "python_function"), x("nn.Module: Linear_0", 5, 80, "python_function"),
        x("torch/nn/functional.py(1): linear", 6, 70, "python_function"), x("aten::addmm", 10, 50),
        x("aten::empty", 11, 5), memory(12, 1, 10, 10), x("aten::to", 90, 5), x("aten::empty_strided", 91, 2),
        memory(92, 2, 10, 20), memory(99, 3, 10, 30),
    ]  # fmt: skip

    fields = select(events, "SELECT op, module, line FROM allocations ORDER BY ts", "allocations")
    line = "train.py(7): step"
    assert fields == [("aten::addmm", "nn.Module: Linear_0", line), ("aten::to", None, line), (None, None, line)]


def test_the_own_line_is_that_of_the_call_where_it_was_recorded() -> None:
    kind = "python_function"
    events = [
        x("train.py(7): step", 0, 100, kind), x("nn.Module: Linear_0", 5, 20, kind, **{"Call line": 9}),
        x("torch/nn/functional.py(1): linear", 6, 18, kind),
        x("train.py(30): helper", 40, 40, kind, **{"Call line": 11}),
        memory(2, 1, 4, 4), memory(10, 2, 4, 8), memory(50, 3, 4, 12), memory(90, 4, 4, 16),
    ]  # fmt: skip

    lines = select(events, "SELECT line FROM allocations ORDER BY ts", "allocations")
    assert [line for (line,) in lines] == [
        "train.py(7): step", "train.py(9): step", "train.py(30): helper", "train.py(7): step"
    ]  # fmt: skip


def test_a_function_that_ran_when_the_recording_began_has_no_line() -> None:
    kind = "python_function"
    events = [
        x("train.py(7): step", 0, 100, kind, **{"Python parent id": None}), x("<built-in function time>", 2, 1, kind),
        x("train.py(30): helper", 40, 20, kind, **{"Call line": 11}), memory(50, 3, 4, 12), memory(70, 4, 4, 16),
        x("nn.Module: Linear_0", 80, 10, kind, **{"Call line": 9}), memory(85, 5, 4, 20),
    ]  # fmt: skip

    lines = select(events, "SELECT line FROM allocations ORDER BY ts", "allocations")
    assert [line for (line,) in lines] == ["train.py(30): helper", "train.py: step", "train.py(9): step"]


def test_passes_end_where_the_next_forward_begins() -> None:
    backward = "autograd::engine::evaluate_function: MmBackward0"
    events = [
        x("aten::mm", 0, 5), x(backward, 10, 20), x("aten::mm", 12, 5), x("aten::detach", 31, 1), x(backward, 33, 7),
        x("aten::mm", 50, 5), x(backward, 60, 10), memory(61, 1, 1, 1),
    ]  # fmt: skip

    sql = 'SELECT ts // 1000, "end" // 1000 FROM backward_passes ORDER BY ts'
    assert select(events, sql, "backward_passes") == [(10, 40), (60, 70)]


@st.composite
def recordings(draw: st.DrawFn) -> list[Event]:
    """Allocations and frees at a few addresses, inside nested ops. Some addresses were allocated before the
    recording.
    """
    events, live, allocated = [], dict.fromkeys(range(3), 16), 48
    for at in range(draw(st.integers(1, 40))):
        address = draw(st.integers(0, 6))
        size = -live.pop(address) if address in live else draw(st.integers(1, 64))
        if size > 0:
            live[address] = size
        allocated += size
        events.append(memory(10 * at + 1, address + 1, size, allocated))
    for number in range(draw(st.integers(0, 6))):
        events.append(x(f"op{number}", draw(st.integers(0, 300)), draw(st.integers(1, 200)), tid=1))
    return events


@settings(max_examples=5)
@given(recordings())
def test_blocks_alive_at_the_peak_add_up(events: list[Event]) -> None:
    live: dict[int, int] = {}
    best, then = -1, 0
    for args in (event["args"] for event in events if event["name"] == "[memory]"):
        if args["Bytes"] > 0:
            live[args["Addr"]] = args["Bytes"]
        else:
            live.pop(args["Addr"], None)
        if args["Total Allocated"] > best:
            best, then = args["Total Allocated"], sum(live.values())

    sums = """SELECT coalesce(sum(bytes), 0)::BIGINT,
                     coalesce(sum(bytes) FILTER (kind IS DISTINCT FROM 'before_recording'), 0)::BIGINT
              FROM memory_peak"""
    assert select(events, sums, "memory_peak") == [(best, then)]


def test_the_context_of_an_allocation_does_not_depend_on_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "SELECT * FROM _memory_places ORDER BY id"
    whole = select(STORY, sql, "_memory_places")
    monkeypatch.setattr(derive, "MOST_AT_ONCE", 5)

    assert whole == select(STORY, sql, "_memory_places")
    assert any(row[1] is not None for row in whole)
