"""How a report ends if the device is busy."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from events import Event, document, kernel, launch, runtime, step, x

from perftool.api import analyze
from perftool.engine.report import left
from perftool.engine.report.efficiency import efficiency
from perftool.engine.report.left import LargeOp, Left
from perftool.store.trace_store import TraceStore

Opening = Callable[..., TraceStore]

H100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84_929_347_584}]}
BF16 = "c10::BFloat16"
# 2 * 4096^3 operations take 138.9 us at an H100's peak rate, and 173.6 us at the 80 % that can be reached.
PRODUCT: dict[str, Any] = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": [BF16, BF16]}


def sentences(store: TraceStore) -> str:
    return " ".join(left.left(store, efficiency(store, "cuda")).sentences())


def one_op(work_us: float, **shapes: Any) -> list[Event]:
    """Return a step in which one op keeps the device busy."""
    return [step(1, 0, work_us + 20), x("aten::mm", 1, 10, **shapes), *launch(1, 2, 5, 10, work_us, "gemm")]


def test_a_device_at_its_attainable_rate_has_nothing_left(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(document(one_op(175, **PRODUCT), **H100))
    found = " ".join(analyze(str(path)).verdict.context)

    assert "aten::mm 100.0 %, at 79.4 % of its peak. " in found
    assert found.endswith("further savings require less work (fewer operations, smaller types, larger batches).")


def test_shares_are_of_all_work_whatever_the_number_of_shapes(store: Opening) -> None:
    """Many small shapes of one op add up, and so do ops too small for the table of the report."""
    times = [*[("my::large", 100, n) for n in range(4)], *[("my::small", 5, n) for n in range(80)]]
    times += [(f"my::op{n}", 2, 1) for n in range(100)]
    events: list[Event] = [step(1, 0, 1020)]
    at = 10
    for number, (name, work_us, size) in enumerate(times):
        events.append(x(name, 1 + number, 0.9, **{"Input Dims": [[size, 8]], "Input type": [BF16]}))
        events += launch(number + 1, 1.1 + number, 0.5, at, work_us, f"{name} kernel")
        at += work_us

    found = sentences(store(events, **H100))

    assert re.findall(r"my::\w+ [\d.]+ %", found) == ["my::large 40.0 %", "my::small 40.0 %"]


def test_an_op_far_above_its_model_proves_nothing(store: Opening) -> None:
    # 8 times as many operations, which take 1111 us at the peak rate.
    found = sentences(store(one_op(400, **{**PRODUCT, "Input Dims": [[8192, 8192], [8192, 8192]]}), **H100))

    assert "aten::mm 100.0 %, faster than modelled. " in found
    assert "The peak is unknown for 100.0 % of the work." in found


def test_an_op_without_shapes_advises_to_record_shapes(store: Opening) -> None:
    found = sentences(store(one_op(175), **H100))

    text = "Largest ops, by share of the work: aten::mm 100.0 %. The peak is unknown for 100.0 % of "
    assert text + "the work. Shapes were not " in found
    assert "record_shapes=True" in found


def test_products_in_graphs_are_not_judged_by_the_few_outside_graphs(tmp_path: Path) -> None:
    def headline(graph_us: float) -> str:
        events: list[Event] = [
            step(1, 0, 195 + graph_us),
            x("aten::mm", 1, 10, **PRODUCT),
            *launch(1, 2, 5, 10, 175, "gemm"),
            runtime("cudaGraphLaunch", 12, 5, 2),
            kernel("ampere_bf16_s16816gemm_bf16_128x128", 185, graph_us, 2),
        ]
        path = tmp_path / "trace.json"
        path.write_bytes(document(events, **H100))
        return analyze(str(path)).verdict.headline

    assert "its matmuls reach 79.4 % of their roofline" in headline(150)
    assert "matmuls reach" not in headline(1500)


@pytest.mark.parametrize(
    ("ops", "ending"),
    [
        ([LargeOp("mm", 0.9, 0.5, "", True, 0.06), LargeOp("add", 0.1, 0.8, "", True, 0.0)],
         "At the rates that the device reaches on good shapes, the work would take 6.0 % less time; the table "
         "op_shortfalls shows why, and what to change."),
        ([LargeOp("mm", 0.9, 0.8, "", True, 0.0), LargeOp("mine", 0.1, None, "no cost model for this op", False, 0.0)],
         "mm 90.0 %, at 80.0 % of its peak. The peak is unknown for 10.0 % of the work."),
        ([LargeOp("mm", 0.6, 0.8, "", True, 0.0), LargeOp("conv", 0.4, 0.3, "", False, 0.0, " in 3 of 4 calls", 0.1)],
         "conv 40.0 %, at 30.0 % of its peak in 3 of 4 calls. The peak is unknown for 10.0 % of the work."),
        ([LargeOp("mm", 0.6, 0.8, "", True, 0.0), LargeOp("conv", 0.4, 0.3, "", False, 0.0)],
         "conv 40.0 %, at 30.0 % of its peak. "),
        ([LargeOp("mm", 0.6, 0.8, "", True, 0.0), LargeOp("all_reduce", 0.35, None, "", True, 0.0),
          *([LargeOp("tiny", 0.01, 0.1, "", False, 0.0)] * 5)],
         "The ops that do 95.0 % of the work run as fast as the device can on good shapes, and the others are small: "
         "further savings require less work (fewer operations, smaller types, larger batches)."),
    ],
)  # fmt: skip
def test_the_ending_follows_from_the_ops(ops: list[LargeOp], ending: str) -> None:
    assert " ".join(Left(ops, "").sentences()).endswith(ending)


def test_a_recording_without_work_says_so(tmp_path: Path) -> None:
    """An export without events, made after the profiler's schedule had started its next cycle."""
    path = tmp_path / "trace.json"
    path.write_bytes(document([x("PyTorch Profiler (0)", 0, 100, cat="Trace")]))
    verdict = analyze(str(path)).verdict

    assert verdict.headline == "The recording contains no work: neither ops nor device events."
    assert verdict.below == ""


def test_the_calls_of_most_of_an_ops_time_speak_for_it() -> None:
    row = {
        "name": "aten::cat", "source": "op", "kind": "copy", "engine": None, "input_dims": "[[[64,128]],[]]",
        "input_types": '["TensorList","Scalar"]', "calls": 50, "kernel_ns": 1000, "unsized_ns": 300,
        "unsized_calls": 20, "bounded_ns": 700, "bounded_calls": 30, "best_ns": 350.0, "judged": False, "lost_ns": 0,
    }  # fmt: skip
    mostly = row | {"unsized_ns": 700, "unsized_calls": 30, "bounded_ns": 300, "bounded_calls": 20}
    alone = row | {"unsized_ns": 1000, "unsized_calls": 50, "bounded_ns": 0, "bounded_calls": 0, "best_ns": None}

    assert [left._named(left._op(one, 1000)) for one in (row, row | {"bounded_ns": 950}, mostly, alone)] == [
        "aten::cat 100.0 %, at 50.0 % of its peak in 30 of 50 calls",
        "aten::cat 100.0 %, at 36.8 % of its peak",
        "aten::cat 100.0 %, dtypes of its tensor list not recorded for 30 of 50 calls",
        "aten::cat 100.0 %, dtypes of its tensor list not recorded",
    ]
