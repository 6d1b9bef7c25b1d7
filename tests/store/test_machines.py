"""What a recorder states about the machine may be wrong. Impossible numbers are unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from events import document, step, x

from perftool.api import analyze, open_trace
from perftool.store.machines import (
    ignored_targets_of,
    loader_calls_of,
    op_speeds_of,
    padded_inputs_of,
    repeated_calls_of,
    trials_of,
)

RECORDING = {
    "version": 1,
    "machine": {"cores_allowed": 2},
    "process": {"threads": 2, "loader_workers": 1},
    "steps": {"recorded": 2, "recorded_ns": 1_000_000, "before_ns": 900_000},
    "window": {
        "wall_ns": 2_000_000, "cpu_ns": 1_000_000, "system_ns": 500_000, "page_faults": 100, "page_bytes": 4096,
        "grown_bytes": 0, "threads": [{"tid": 1, "name": "python", "cpu_ns": 1_000_000, "delay_ns": 900_000}],
    },
}  # fmt: skip


COUNTED = (
    ("machine", "cores_allowed"), ("process", "threads"), ("process", "loader_workers"), ("steps", "recorded"),
    ("steps", "before_ns"), ("steps", "recorded_ns"), ("window", "cpu_ns"), ("window", "page_faults"),
)  # fmt: skip


@pytest.mark.parametrize("value", [2**62, 2**31, 0])
def test_an_impossible_number_fails_no_rule(tmp_path: Path, value: int) -> None:
    """Each rank has another impossible number."""
    events = [step(k, 1000 * k, 1000) for k in range(2)] + [x("aten::mm", 100 * k, 90) for k in range(20)]
    for rank, (part, name) in enumerate(COUNTED):
        described = {**RECORDING, part: {**RECORDING[part], name: value}}
        info = {"rank": rank, "world_size": len(COUNTED)}
        path = tmp_path / f"rank{rank}.json"
        path.write_bytes(document(events, perftoolRecording=described, distributedInfo=info))

    report = analyze([str(tmp_path)])

    assert "TRC001" not in [found.code for found in report.findings]
    assert {each.rank for each in report.steps} == set(range(len(COUNTED)))


PRODUCT = {"name": "aten::mm", "input_dims": [[8, 8], [8, 8]], "fp32_ns": 200, "bf16_ns": 100}
REPEATED = {"module": "Linear_0", "path": "Net > Linear", "calls": 2, "repeated": 1, "modules": 3}
THREAD = {"tid": 7, "name": "python", "cpu_ns": 1_000, "delay_ns": 10}
PADDED = {"path": "Net > Embedding", "vocabulary": 9, "width": 4, "tokens": 64, "padded": 20, "cut": 8, "empty": 4}
FRAMES = {"path": "Net", "axis": 1, "width": 80, "tokens": 640, "padded": 200, "cut": 0}
IGNORED = {"path": "Net > CrossEntropyLoss", "classes": 9, "targets": 64, "ignored": 20}
TRIAL = {"path": "Net", "calls": 2, "base_ns": 90, "bf16_ns": 50, "failed": ["channels_last", "x"], "backward": True}
TRIAL |= {"error": "E: x", "error_line": "a.py:7"}
CALL = {"file": "a.py", "line": 7, "function": "load", "inside": "sort (b.py)", "samples": 30, "fetching": 40}
LIBRARY = {"file": "", "line": 0, "function": "", "inside": "stack (c.py)", "samples": 10, "fetching": 40}
# For each table: the member of a recording from which it is made, a value of the member, and the rows for that value.
STATED: dict[str, tuple[str, object, list[tuple[object, ...]]]] = {
    "op_speeds": ("ops", [PRODUCT, PRODUCT], [("aten::mm", "[[8,8],[8,8]]", 200, None, 100, None, None)]),
    "repeated_calls": ("repeated_calls", [REPEATED, REPEATED], [("Linear_0", "Net > Linear", 2, 1, 3)]),
    "machine_threads": (
        "window", {**RECORDING["window"], "threads": [THREAD, {**THREAD, "cpu_ns": 2_000}]}, [("7", 1_000, 10)],
    ),
    "padded_inputs": (
        "padded_inputs", [PADDED, PADDED, FRAMES],
        [("Net > Embedding", 9, 4, None, 64, 20, 8, 4), ("Net", None, 80, 1, 640, 200, 0, None)],
    ),
    "ignored_targets": ("ignored_targets", [IGNORED, IGNORED], [("Net > CrossEntropyLoss", 9, 64, 20)]),
    "trials": (
        "trials", [TRIAL], [("Net", 2, True, 90, 50, None, None, None, None, "channels_last", "E: x", "a.py:7")],
    ),
    "loader_calls": (
        "loader_calls", [CALL, CALL, LIBRARY],
        [("a.py", 7, "load", "sort (b.py)", 30, 40), (None, None, None, "stack (c.py)", 10, 40)],
    ),
}  # fmt: skip


def test_what_a_recorder_states_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    stated = {member: value for member, value, _ in STATED.values()}
    path.write_bytes(document([step(0, 0, 1000), x("aten::mm", 0, 90)], perftoolRecording={**RECORDING, **stated}))
    with open_trace(path) as trace:
        found = {table: trace.query(f"SELECT * EXCLUDE (rank) FROM {table}")[1] for table in STATED}
    assert found == {table: rows for table, (_, _, rows) in STATED.items()}


# Values of the members that make no sense.
SENSELESS: dict[str, tuple[Callable[..., list[tuple[Any, ...]]], list[object]]] = {
    "ops": (op_speeds_of, [
        "aten::mm", {"name": 1}, [1], [{**PRODUCT, "name": 5}], [{**PRODUCT, "input_dims": "x"}],
        [{**PRODUCT, "input_dims": [[8] * 1000]}], [{**PRODUCT, "fp32_ns": 0}], [{**PRODUCT, "fp32_ns": 2**62}],
    ]),
    "repeated_calls": (repeated_calls_of, [
        5, {"module": "Linear_0"}, [None], [{**REPEATED, "module": 1}], [{**REPEATED, "path": "x" * 1001}],
        [{**REPEATED, "repeated": 2}], [{**REPEATED, "calls": 2**62}], [{**REPEATED, "modules": 0}],
    ]),
    "padded_inputs": (padded_inputs_of, [
        5, {"path": "Net"}, [None], [{**PADDED, "path": 1}], [{**PADDED, "path": "x" * 1001}],
        [{**PADDED, "width": -1}], [{**PADDED, "axis": 1}], [{**PADDED, "vocabulary": None, "axis": 3}],
        [{**PADDED, "padded": 64}], [{**PADDED, "cut": 21}], [{**PADDED, "empty": 21}], [{**PADDED, "tokens": 2**62}],
        [{**PADDED, "padded": 0}],
    ]),
    "ignored_targets": (ignored_targets_of, [
        5, [None], [{**IGNORED, "path": 1}], [{**IGNORED, "classes": 0}], [{**IGNORED, "ignored": 65}],
        [{"path": "Net"}],
    ]),
    "trials": (trials_of, [
        5, [None], [{**TRIAL, "path": 1}], [{**TRIAL, "calls": 0}], [{**TRIAL, "base_ns": 2**62}], [{"path": "N"}],
    ]),
    "loader_calls": (loader_calls_of, [
        5, [None], [{**CALL, "line": 0}], [{**CALL, "function": ""}], [{**CALL, "samples": 41}],
        [CALL, {**CALL, "line": 8}], [CALL, {**CALL, "line": 8, "samples": 1, "fetching": 41}],
        [{**CALL, "fetching": 2**62}], [{**CALL, "file": 1, "inside": None}],
    ]),
}  # fmt: skip


@pytest.mark.parametrize("member", SENSELESS)
def test_what_makes_no_sense_is_left_out(member: str) -> None:
    """Each value is that of a rank, so that rows show the value that they come from."""
    rows_of, values = SENSELESS[member]
    assert (
        rows_of({rank: {"perftoolRecording": {**RECORDING, member: value}} for rank, value in enumerate(values)}) == []
    )


def test_shapes_that_nest_deeply_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    described = {**RECORDING, "ops": [{**PRODUCT, "input_dims": "nested"}]}
    text = document([step(0, 0, 1000), x("aten::mm", 0, 90)], perftoolRecording=described)
    path.write_bytes(text.replace(b'"nested"', b"[" * 990 + b"]" * 990))
    with open_trace(path) as trace:
        assert trace.query("SELECT * FROM op_speeds")[1] == []


LONG = "p" * 184


def test_a_text_that_is_cut_is_marked(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    secret = "Zq8vTr5nLw2kXy7mPd4sHf9jBc3gRt6e"
    machine, steps = {"processor": LONG + secret}, {"called": LONG + secret}
    described = {**RECORDING, "machine": machine, "steps": steps, "peaks": {"products": {"fp32": 1e11}}}
    path.write_bytes(document([step(0, 0, 1000)], env={"HF_TOKEN": secret}, perftoolRecording=described))
    with open_trace(path) as trace:
        (row,) = trace.query("SELECT processor, step_module FROM machines")[1]
    assert row == (LONG + secret[:15] + "…",) * 2
