"""Compares ops with the device's peak. Every kernel counts once, and unknown values stay empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from events import Event, document, kernel, launch, memcpy, runtime, step, x

from perftool.engine.report.efficiency import (
    IN_GRAPHS,
    IN_GRAPHS_OF_A_STRANGER,
    LITTLE_KNOWN,
    NO_SHAPES,
    UNKNOWN_DEVICE,
    efficiency,
)
from perftool.errors import InputError
from perftool.op_costs.sizes import Sizes
from perftool.store.captures import read_capture
from perftool.store.readings import Reading
from perftool.store.shortfalls import shape_text
from perftool.store.trace_store import TraceStore

H100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84_929_347_584}]}
BF16 = "c10::BFloat16"
PRODUCT: dict[str, Any] = {"Input Dims": [[8944, 1024], [1024, 2816]], "Input type": [BF16, BF16]}
Row = dict[str, Any]


def op(name: str, ts: float, work_us: float, correlation: int, work: str = "k", **args: Any) -> list[Event]:
    """Return an op of 20 us, and the kernel that it launches, which starts 100 us after the op does."""
    return [x(name, ts, 20, **args), *launch(correlation, ts + 5, 5, ts + 100, work_us, work)]


def test_the_text_of_many_shapes_is_short() -> None:
    assert shape_text(Sizes(), "[[2, 3],[],[]]") == "[[2,3]]"
    # Each of the empty shapes used to be tried as the start of the shapes at the end.
    assert shape_text(Sizes(), f"[[2]{',[]' * 300_000},[1]]") == f"[[2]{',[]' * 18},…"


def asked(folder: Path, table: str, *traces: list[Event], metadata: dict[str, Any] = H100) -> list[Row]:
    return tables(folder, [table], *traces, metadata=metadata)[0]


def tables(folder: Path, names: list[str], *traces: list[Event], metadata: dict[str, Any] = H100) -> list[list[Row]]:
    with TraceStore() as store:
        for rank, events in enumerate(traces):
            path = folder / f"rank{rank}.json"
            path.write_bytes(document(events, **metadata))
            store.add_trace(str(path))
        return [store.rows(name) for name in names]


def metrics(folder: Path, *traces: list[Event], metadata: dict[str, Any] = H100) -> dict[str, float]:
    rows = asked(folder, "summary", *traces, metadata=metadata)
    return {
        row["metric"]: row["value"] for row in rows if row["metric"] in ("mfu_ratio", "hfu_ratio", "roofline_ratio")
    }


STEP = [step(1, 0, 1000)]


def test_the_shapes_of_a_sparse_matmul_do_not_show_its_cost(tmp_path: Path) -> None:
    """If only one in a thousand values is stored, the shapes make the matmul look a thousand times too fast."""
    dims = {
        "Input Dims": [[1000, 1000], [1000, 1000], [1000, 1000], [], []],
        "Input type": ["float"] * 3 + ["Scalar"] * 2,
    }
    described = {"machine": {"processor": "P"}, "process": {"threads": 1}}
    peaks = {"products": {"fp32": 1e11}, "memory_bandwidth": 1e10}
    recorded = {"perftoolRecording": {"version": 1, **described, "peaks": peaks}}
    sparse = [x("aten::_sparse_addmm", 0, 5000, **dims), x("aten::addmm", 0, 5000, **dims)]
    dense = x("aten::addmm", 6000, 30_000, **dims)
    events = [step(1, 0, 40_000), *sparse, dense]
    ops, matmuls, rated = tables(
        tmp_path, ["op_efficiency", "matmuls", "rated_devices"], events, metadata=recorded
    )  # fmt: skip
    rows = {row["name"]: row for row in ops}
    assert rows["aten::addmm (sparse)"]["flops"] is None
    assert rows["aten::addmm"]["flops"] == pytest.approx(2e9, rel=0.01)
    assert [row["dur"] for row in matmuls] == [30_000_000]
    assert rated


def test_the_matmuls_of_sparse_experts_are_dense(tmp_path: Path) -> None:
    events = [*STEP, x("moe::block_sparse_experts", 90, 100), *op("aten::mm", 100, 84.484, 1, **PRODUCT)]
    (row,), matmuls = tables(tmp_path, ["op_efficiency", "matmuls"], events)
    assert (row["name"], row["flops"]) == ("aten::mm", 51_581_550_592)
    assert len(matmuls) == 1


def test_a_product_by_hand(tmp_path: Path) -> None:
    (row,) = asked(tmp_path, "op_efficiency", [*STEP, *op("aten::mm", 100, 84.484, 1, **PRODUCT)])
    # 51.58 GFLOP in 84.484 us, at a peak of 989.4 TFLOP/s.
    assert row["flops"] == 51_581_550_592
    assert row["bytes"] == 74_457_088
    assert (row["calls"], row["kernel_ns"], row["bound"]) == (1, 84_484, "compute")
    assert row["tflops"] == pytest.approx(610.55, abs=0.01)
    assert row["tbytes"] == pytest.approx(0.8813, abs=0.0001)
    assert row["roofline_ratio"] == pytest.approx(610.55 / 989.4, abs=0.0001)


def test_each_kernel_counts_once_under_the_innermost_op(tmp_path: Path) -> None:
    events = [
        *STEP, x("aten::linear", 90, 50, **PRODUCT), *op("aten::mm", 100, 80, 1, **PRODUCT),
        *op("aten::mm", 200, 40, 2, **PRODUCT), *op("mine::op", 300, 30, 3), kernel("nobody's", 900, 7),
        runtime("cudaMemcpyAsync", 500, 5, 9), memcpy("Memcpy HtoD (Pageable -> Device)", 510, 11, 9),
    ]  # fmt: skip
    rows = asked(tmp_path, "op_efficiency", events)
    assert {row["name"]: (row["calls"], row["kernel_ns"]) for row in rows} == {
        "aten::mm": (2, 120_000), "mine::op": (1, 30_000), "nobody's": (1, 7_000),
        "Memcpy HtoD (Pageable -> Device)": (1, 11_000),
    }  # fmt: skip
    assert {row["source"] for row in rows if row["name"].endswith(("mm", "op"))} == {"op"}
    assert {row["source"] for row in rows if not row["name"].endswith(("mm", "op"))} == {"kernel"}
    unknown = ("flops", "bytes", "tflops", "tbytes", "bound", "roofline_ratio")
    assert {row[key] for row in rows if row["name"] != "aten::mm" for key in unknown} == {None}


def test_a_captured_graph_shows_its_kernels_whatever_op_launches_it(tmp_path: Path) -> None:
    graph = [
        x("decode", 90, 60, cat="user_annotation"), runtime("cudaGraphLaunch", 100, 20, 1),
        kernel("gemm", 200, 30, 1), kernel("norm", 240, 5, 1), kernel("gemm", 250, 31, 1),
    ]  # fmt: skip
    rows = asked(tmp_path, "op_efficiency", [*STEP, *graph])
    assert [(row["name"], row["source"], row["calls"], row["kernel_ns"]) for row in rows] == [
        ("gemm", "graph", 2, 61_000), ("norm", "graph", 1, 5_000),
    ]  # fmt: skip


@pytest.mark.parametrize("sample", ["gaudi2_unoptimised/rank0.pt.trace.json.gz", "gaudi3_gen_c.json.gz"])
def test_all_work_of_a_sample_counts_once(sample: str) -> None:
    with TraceStore() as store:
        store.add_trace(str(Path(__file__).parents[2] / "sample_traces" / sample))
        rows = store.rows("op_efficiency")
        (work,) = store.select("""
            SELECT sum(d.dur)::BIGINT AS ns FROM device_ops AS d
            JOIN windows AS w ON w.rank = d.rank AND d.ts >= w.ts AND d.ts < w."end" WHERE d.valid AND d.kind <> 'wait'
        """)
    assert sum(row["kernel_ns"] for row in rows) == work["ns"] > 0
    assert {row["source"] for row in rows} <= {"recipe", "kernel", "op"}
    assert {"MME", "TPC"} <= {row["engine"] for row in rows}


FORWARD = {**PRODUCT, "Sequence number": 7}
BACKWARD = "autograd::engine::evaluate_function: AddmmBackward0"


def checkpointed(forward: dict[str, Any], repeated: dict[str, Any]) -> list[Event]:
    """Return a matmul in forward, one that a backward function repeats, and the one for the gradient."""
    return [
        *STEP, *op("aten::mm", 100, 80, 1, **forward), x(BACKWARD, 300, 90),
        *op("aten::mm", 310, 80, 2, **repeated), *op("aten::mm", 340, 80, 3, **PRODUCT),
    ]  # fmt: skip


def test_recomputed_ops_count_for_hfu_but_not_for_mfu(tmp_path: Path) -> None:
    found = metrics(tmp_path, checkpointed(FORWARD, {**FORWARD, "Sequence number": 8}))
    assert found["hfu_ratio"] == pytest.approx(1.5 * found["mfu_ratio"])


def test_a_gradient_penalty_does_not_count_as_recomputation(tmp_path: Path) -> None:
    other = {"Input Dims": [[1024, 8944], [8944, 2816]], "Input type": [BF16, BF16], "Sequence number": 8}
    found = metrics(tmp_path, checkpointed(FORWARD, other))
    assert found["hfu_ratio"] == found["mfu_ratio"]


def test_lists_of_tensors_have_the_size_that_their_kernel_names(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[[4, 8], [4, 2]], []], "Input type": ["TensorList", "Scalar"]}
    opaque = "CatArrayBatchedCopy<(anonymous namespace)::OpaqueType<2u>, 4>"
    (row,) = asked(tmp_path, "op_efficiency", [*STEP, *op("aten::cat", 100, 5, 1, opaque, **shapes)])
    assert (row["flops"], row["bytes"], row["bound"]) == (0, 2 * 2 * 40, "memory")


def test_an_unknown_device_has_rates_without_shares(tmp_path: Path) -> None:
    (row,) = asked(tmp_path, "op_efficiency", [*STEP, *op("aten::mm", 100, 80, 1, **PRODUCT)], metadata={})
    assert row["tflops"] is not None
    assert (row["bound"], row["roofline_ratio"]) == (None, None)


def test_a_type_without_a_published_rate_has_no_share(tmp_path: Path) -> None:
    whole = {**PRODUCT, "Input type": ["long int", "long int"]}
    (row,) = asked(tmp_path, "op_efficiency", [*STEP, *op("aten::mm", 100, 80, 1, **whole)])
    assert row["tflops"] is not None
    assert (row["bound"], row["roofline_ratio"]) == (None, None)


def test_a_kernel_of_zero_length_causes_no_division_by_zero(tmp_path: Path) -> None:
    (row,) = asked(tmp_path, "op_efficiency", [*STEP, *op("aten::mm", 100, 0, 1, **PRODUCT)])
    assert (row["kernel_ns"], row["tflops"], row["roofline_ratio"]) == (0, None, None)


def test_a_copy_from_the_host_is_not_compared_with_the_device_memory_bandwidth(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[1024], [1024], []], "Input type": ["float", "float", "Scalar"]}
    events = [
        *STEP, x("aten::copy_", 100, 20, **shapes), runtime("cudaMemcpyAsync", 105, 5, 1),
        memcpy("Memcpy HtoD (Pageable -> Device)", 200, 50, 1),
    ]  # fmt: skip
    (row,) = asked(tmp_path, "op_efficiency", events)
    assert (row["bytes"], row["bound"], row["roofline_ratio"]) == (8192, None, None)


def test_calls_that_differ_in_other_arguments_share_a_row(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[4, 8], []], "Input type": ["float", "ScalarList"]}
    each = {**shapes, "Concrete Inputs": ["", "[1]"]}
    whole = {**shapes, "Concrete Inputs": ["", ""]}
    (row,) = asked(
        tmp_path, "op_efficiency", [*STEP, *op("aten::sum", 100, 5, 1, **each), *op("aten::sum", 300, 5, 2, **whole)]
    )
    assert (row["calls"], row["flops"], row["bytes"]) == (2, 32, 4 * 32 + (4 * 4 + 4) / 2)


def test_the_summary_weighs_operations_against_the_window(tmp_path: Path) -> None:
    found = metrics(tmp_path, [*STEP, *op("aten::mm", 100, 84.484, 1, **PRODUCT)])
    at_peak_us = 51_581_550_592 / 989.4e6
    assert found == {
        "mfu_ratio": pytest.approx(at_peak_us / 1000), "hfu_ratio": pytest.approx(at_peak_us / 1000),
        "roofline_ratio": pytest.approx(at_peak_us / 84.484),
    }  # fmt: skip


def test_the_summary_has_no_ratio_if_too_little_is_known(tmp_path: Path) -> None:
    product = op("aten::mm", 100, 80, 1, **PRODUCT)
    assert metrics(tmp_path, [*STEP, *product], metadata={}) == {}
    assert metrics(tmp_path, [*STEP, *product, *op("aten::mm", 300, 20, 2)]).keys() == {"roofline_ratio"}
    assert metrics(tmp_path, [*STEP, *product, *op("mine::op", 300, 200, 2)]) == {}


def test_one_rank_without_data_removes_the_ratio_of_the_summary(tmp_path: Path) -> None:
    product = [*STEP, *op("aten::mm", 100, 80, 1, **PRODUCT)]
    ranked = {**H100, "distributedInfo": {}}
    assert "mfu_ratio" in metrics(tmp_path, product, product, metadata=ranked)
    assert metrics(tmp_path, product, [*STEP, *op("mine::op", 100, 80, 1)], metadata=ranked) == {}


def replay(correlation: int, ts: float, *kernels: tuple[str, float]) -> list[Event]:
    """Return a launch of a captured graph, with its kernels 20 us apart."""
    work = [kernel(name, ts + 50 + 20 * at, took, correlation) for at, (name, took) in enumerate(kernels)]
    return [runtime("cudaGraphLaunch", ts, 10, correlation), *work]


def captured(folder: Path, *events: Event) -> Reading:
    path = folder / "capture.json"
    path.write_bytes(document(list(events)))
    return read_capture(str(path))


def joined(folder: Path, capture: Reading, events: list[Event]) -> list[Row]:
    path = folder / "rank0.json"
    path.write_bytes(document(events, **H100))
    with TraceStore() as store:
        store.add_trace(str(path))
        store.add_reading(capture)
        return store.rows("op_efficiency")


def test_the_kernels_of_replays_get_the_ops_of_their_capture(tmp_path: Path) -> None:
    other = {"Input Dims": [[8, 8], [8, 8]], "Input type": [BF16, BF16]}
    capture = captured(
        tmp_path, *op("aten::mm", 0, 5, 1, "gemm", **PRODUCT), *op("aten::mm", 200, 5, 2, "gemm", **other),
        *op("mine::op", 400, 5, 3, "twice"), runtime("cudaLaunchKernel", 415, 2, 4), kernel("twice", 600, 3, 4),
    )  # fmt: skip
    once = [("gemm", 10.0), ("twice", 1.0), ("twice", 2.0), ("gemm", 4.0), ("unheard of", 3.0)]
    rows = joined(tmp_path, capture, [*STEP, *replay(1, 100, *once), *replay(2, 500, *once)])
    assert [(row["name"], row["source"], row["calls"], row["kernel_ns"]) for row in rows] == [
        ("aten::mm", "graph", 2, 20_000), ("aten::mm", "graph", 2, 8_000), ("mine::op", "graph", 2, 6_000),
        ("unheard of", "graph", 2, 6_000),
    ]  # fmt: skip
    assert (rows[0]["flops"], rows[0]["bound"]) == (51_581_550_592, "compute")


def test_only_the_first_kernel_of_a_captured_op_has_its_inputs(tmp_path: Path) -> None:
    """An op with 2,900 inputs and 15,000 launches used to create 15,000 copies of 80 kB."""
    capture = captured(
        tmp_path, *op("aten::mm", 0, 5, 1, "gemm", **PRODUCT), runtime("cudaLaunchKernel", 15, 2, 2),
        kernel("reduce", 20, 3, 2),
    )  # fmt: skip
    kept = [(one.kernel, one.op, one.input_dims is None, one.input_types is None) for one in capture.reading.captured]
    assert kept == [("gemm", 1, False, False), ("reduce", 1, True, True)]
    [row] = joined(tmp_path, capture, [*STEP, *replay(1, 100, ("reduce", 4.0), ("gemm", 10.0))])
    assert (row["name"], row["kernel_ns"], row["flops"]) == ("aten::mm", 14_000, 51_581_550_592)


def test_a_replay_of_another_number_of_kernels_keeps_their_names(tmp_path: Path) -> None:
    capture = captured(tmp_path, *op("aten::mm", 0, 5, 1, "gemm"), *op("aten::bmm", 200, 5, 2, "gemm"))
    rows = joined(tmp_path, capture, [*STEP, *replay(1, 100, ("gemm", 1.0), ("gemm", 1.0), ("gemm", 1.0))])
    assert [(row["name"], row["calls"]) for row in rows] == [("gemm", 3)]


def test_calls_that_name_their_kernels_need_no_device_events(tmp_path: Path) -> None:
    call = x("hipLaunchKernel", 5, 5, "cuda_runtime", kernel="gemm", correlation=1)
    capture = captured(tmp_path, x("aten::mm", 0, 20, **PRODUCT), call)
    rows = joined(tmp_path, capture, [*STEP, *replay(1, 100, ("gemm", 80.0))])
    assert [(row["name"], row["bound"]) for row in rows] == [("aten::mm", "compute")]


def test_a_capture_without_kernels_gives_a_message(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no op in this trace launches a kernel whose name is recorded"):
        captured(tmp_path, x("aten::mm", 0, 20))


def test_odd_shapes_have_times_but_no_shares(tmp_path: Path) -> None:
    odd: list[Any] = [[[0, 1024], [1024, 2816]], [["s0", 1024], [1024, 2816]], [[8944, 1024]], [], "{"]
    product = {"Input type": [BF16, BF16]}
    ranks = ([*STEP, *op("aten::mm", 100, 84, 1, **product, **{"Input Dims": dims})] for dims in odd)
    rows = asked(tmp_path, "op_efficiency", *ranks)
    assert sorted((row["rank"], row["kernel_ns"], row["tflops"] or 0) for row in rows) == [
        (rank, 84_000, 0) for rank in range(len(odd))
    ]


def test_several_kernels_of_an_op_are_one_call_and_an_op_without_kernels_has_no_row(tmp_path: Path) -> None:
    events = [
        *STEP, *op("aten::mm", 100, 40, 1, **PRODUCT), runtime("cudaLaunchKernel", 112, 3, 2),
        kernel("reduce", 200, 4, 2), x("aten::view", 400, 5, **PRODUCT),
    ]  # fmt: skip
    rows = asked(tmp_path, "op_efficiency", events)
    assert [(row["name"], row["calls"], row["kernel_ns"]) for row in rows] == [("aten::mm", 1, 44_000)]


@pytest.mark.parametrize(
    ("events", "metadata", "missing"),
    [
        (op("aten::mm", 100, 80, 1, **PRODUCT), H100, ""),
        (op("aten::mm", 100, 80, 1), H100, NO_SHAPES),
        (op("aten::mm", 100, 80, 1, **PRODUCT), {}, UNKNOWN_DEVICE),
        ([runtime("cudaGraphLaunch", 100, 20, 1), kernel("gemm", 200, 30, 1)], H100, IN_GRAPHS),
        ([*op("aten::mm", 100, 80, 1, **PRODUCT), runtime("cudaGraphLaunch", 300, 20, 2), kernel("gemm", 400, 100, 2)],
         {}, IN_GRAPHS_OF_A_STRANGER),
        ([*op("aten::mm", 100, 80, 1, **PRODUCT), *op("mine::op", 300, 200, 2, **PRODUCT)], H100, LITTLE_KNOWN),
    ],
    ids=["all is known", "no shapes", "unknown device", "graphs", "graphs of an unknown device", "custom ops"],
)  # fmt: skip
def test_the_report_lists_what_the_input_lacks(
    tmp_path: Path, events: list[Event], metadata: dict[str, Any], missing: str
) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(document([*STEP, *events], **metadata))
    with TraceStore() as store:
        store.add_trace(str(path))
        ops = efficiency(store, "cuda")
    assert ops is not None
    assert ops.missing == missing
    assert [peak.dtype for peak in ops.peaks] == (["bf16"] if missing in ("", LITTLE_KNOWN) else [])
