"""On a CPU run, ops are the device's work. A run on an accelerator without device events is not a CPU run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from events import Event, kernel, runtime, step, x
from stores import Rows

from perftool.store.trace_store import TraceStore

COMPUTE = [step(1, 0, 1000), x("aten::mm", 100, 300)]


def _work(rows: Rows, events: list[Event]) -> list[tuple[str, int, int]]:
    found = rows("device_ops", events)
    assert all(row["id"] == row["op"] == row["launch"] for row in found)
    return [(row["name"], row["ts"], row["dur"]) for row in sorted(found, key=lambda row: row["ts"])]


def test_an_op_computes_when_most_of_its_time_is_its_own(rows: Rows) -> None:
    events = [
        step(1, 0, 1000),
        x("aten::linear", 100, 100), x("aten::t", 101, 5), x("aten::addmm", 110, 80), x("aten::copy_", 112, 20),
        x("aten::softmax", 300, 100), x("aten::_softmax", 305, 90),
    ]  # fmt: skip
    assert _work(rows, events) == [("aten::addmm", 110_000, 80_000), ("aten::_softmax", 305_000, 90_000)]


def test_ops_that_compute_nothing_or_belong_to_a_loader_are_not_work(rows: Rows) -> None:
    names = ["aten::empty", "aten::view", "autograd::engine::evaluate_function: X", "MyBackward"]
    others = [x(name, 500 + 20 * at, 10) for at, name in enumerate(names)]
    loader = x("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 700, 100, "user_annotation")
    assert _work(rows, [*COMPUTE, *others, loader, x("aten::stack", 710, 80)]) == [("aten::mm", 100_000, 300_000)]


def test_idle_time_is_the_time_between_its_ops(rows: Rows) -> None:
    assert [(row["ts"], row["dur"]) for row in rows("device_busy", COMPUTE)] == [(100_000, 300_000)]
    assert [(row["ts"], row["end"]) for row in rows("gaps", COMPUTE)] == [(0, 100_000), (400_000, 1_000_000)]
    # As in PyTorch's TensorBoard plugin, this work also counts as time in ops.
    assert [(row["cpu_op"], row["kernel"], row["compute"]) for row in rows("steps", COMPUTE)] == [(300_000, 0, 300_000)]


@pytest.mark.parametrize(
    "sign",
    [
        [kernel("gemm", 500, 10)],
        [runtime("cudaLaunchKernel", 500, 10)],
        [x("aten::record_stream", 500, 1)],
        [x("autograd::engine::evaluate_function: AddmmBackward0", 500, 100, tid=9), x("aten::mm", 510, 50, tid=9)],
    ],
)
def test_a_run_on_an_accelerator_without_events_is_not_a_cpu_run(sign: list[Event], rows: Rows) -> None:
    assert not [row for row in rows("device_ops", [*COMPUTE, *sign]) if row["id"] == row["op"]]


@pytest.mark.parametrize(
    "metadata", [{"deviceProperties": [{"name": "some device"}]}, {"distributedInfo": {"backend": "nccl", "rank": 0}}]
)
def test_metadata_may_name_another_device(metadata: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": COMPUTE, **metadata}))
    with TraceStore() as store:
        store.add_trace(str(path))
        assert not store.has_rows("device_ops")


@pytest.mark.parametrize(("rate", "known"), [(2e11, ["P, 1 thread"]), (1e11, []), (5e-324, [])])
def test_a_rate_that_the_run_exceeds_was_measured_wrongly(rate: float, known: list[str], rows: Rows) -> None:
    """2 * 1024^3 operations in 12 ms are 179 GFLOP/s."""
    product = {"Input Dims": [[1024, 1024], [1024, 1024]], "Input type": ["float", "float"]}
    recorded = {
        "version": 1, "machine": {"processor": "P"}, "process": {"threads": 1}, "peaks": {"products": {"fp32": rate}},
    }  # fmt: skip
    found = rows(
        "rated_devices", [step(1, 0, 13_000), x("aten::mm", 100, 12_000, **product)], perftoolRecording=recorded
    )

    assert [row["device"] for row in found] == known


@pytest.mark.parametrize(("delay_us", "known"), [(1300, ["P, 1 thread"]), (1301, [])])
def test_an_overloaded_machine_shows_no_rates(delay_us: int, known: list[str], rows: Rows) -> None:
    product = {"Input Dims": [[1024, 1024], [1024, 1024]], "Input type": ["float", "float"]}
    thread = {"tid": 1, "name": "python", "cpu_ns": 11_000_000, "delay_ns": 1000 * delay_us}
    recorded = {
        "version": 1, "machine": {"processor": "P"}, "process": {"threads": 1}, "peaks": {"products": {"fp32": 2e11}},
        "window": {"wall_ns": 13_000_000, "threads": [thread]},
    }  # fmt: skip
    found = rows(
        "rated_devices", [step(1, 0, 13_000), x("aten::mm", 100, 12_000, **product)], perftoolRecording=recorded
    )

    assert [row["device"] for row in found] == known
