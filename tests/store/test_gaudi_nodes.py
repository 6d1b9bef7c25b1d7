"""The nodes of a Gaudi recipe: each format of a recording yields the numbers of Intel's own analysis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import gaudi_profiler

from perftool.engine.analysis import analyze
from perftool.store.readings import read_text
from perftool.store.trace_store import TraceStore

# From gaudi3_conv_analyzed_nodes.csv: node, run, start, duration, active, exposed, min, max and mean time of a lane (in
# ns, rounded down), activations, parallel engines, parallel execution (in percent, rounded down).
INTEL = [
    ("g_1_conv_0_tpc_packing", 1, 554804519937, 2739, 1131, 1131, 158, 238, 168, 8, 8, 41),
    ("g_1_conv_0_tpc_packing", 2, 554804522837, 1879, 1878, 1878, 158, 240, 164, 32, 32, 99),
    ("g_1_conv_0_tpc_packing", 3, 554804524737, 1138, 713, 713, 78, 158, 148, 8, 8, 62),
    ("g_1_conv_0", 1, 554804527286, 18814, 18814, 18814, 16884, 18444, 17747, 8, 8, 100),
]
SHARED = Path(__file__).parents[3] / "shared" / "traces" / "gaudi3_conv_hw_prof_accel0_001.csv"
FORMATS = {
    "profile_1.csv": gaudi_profiler.as_csv,
    "native.json": gaudi_profiler.as_native_json,
    "kineto.json": gaudi_profiler.as_kineto,
    "profile_1_analyzed_nodes.csv": gaudi_profiler.as_analyzed_nodes,
}


def runs_of(store: TraceStore) -> list[tuple[Any, ...]]:
    return [
        (
            row["node"], row["run"], row["ts"], row["dur"], row["active_ns"], row["exposed_ns"], row["min_engine_ns"],
            row["max_engine_ns"], int(row["avg_engine_ns"]), row["activations"], row["lanes"],
            int(100 * row["parallel_share"]),
        )
        for row in store.rows("node_runs")
    ]  # fmt: skip


def store_of(path: Path, store: TraceStore) -> None:
    if path.name.endswith("_analyzed_nodes.csv"):
        store.add_reading(read_text(str(path)))
    else:
        store.add_trace(str(path))


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_gives_the_numbers_of_intels_analysis(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(FORMATS[name]())
    with TraceStore() as store:
        store_of(path, store)
        assert runs_of(store) == INTEL
        nodes = [(row["node"], row["engine"], row["active_ns"], row["lanes"]) for row in store.rows("device_nodes")]
    assert nodes == [("g_1_conv_0", "MME", 18814, 8), ("g_1_conv_0_tpc_packing", "TPC", 3722, 32)]


@pytest.mark.skipif(not SHARED.exists(), reason="the recording is not at hand")
def test_the_recording_itself_gives_them_too() -> None:
    with TraceStore() as store:
        store.add_trace(str(SHARED))
        assert runs_of(store) == INTEL


@pytest.mark.parametrize("name", [name for name in FORMATS if "analyzed" not in name])
def test_each_format_gives_the_same_engine_times(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(FORMATS[name]())
    summary = analyze([str(tmp_path)], []).summary
    assert summary["mme_time_ms"].value == pytest.approx(0.018814)
    assert summary["tpc_time_ms"].value == pytest.approx(0.003722)


def test_counters_wrap_at_64_bits(tmp_path: Path) -> None:
    for name in ("profile_1.csv", "native.json"):
        path = tmp_path / name
        path.write_text(FORMATS[name]())
        with TraceStore() as store:
            store.add_trace(str(path))
            found = [(row["lane"], row["kind"], row["since"], row["value"]) for row in store.rows("device_counters")]
        assert found == [
            ("[HD2] TPC 1", "back_pressure", None, 2),
            ("[D2] Cache Slice", "partial_writes", None, -201),
            ("[D2] Cache Slice", "partial_writes", 554804527540, 143),
        ]


def native(*events: dict[str, Any]) -> str:
    process = {"ph": "M", "name": "process_name", "pid": 5, "tid": 0, "args": {"name": "*TPC (accel5)"}}
    lane = {"ph": "M", "name": "thread_name", "pid": 5, "tid": 19, "args": {"name": "TPC 0"}}
    return json.dumps({"traceEvents": [process, lane, *events]})


def half(phase: str, ts: float, name: str = "node", recipe: int = 7) -> dict[str, Any]:
    args = {
        "op": "relu_fwd_bf16",
        "recipe id": recipe,
        "Recipe name": "g",
        "HW event name": "TPC_SPU_START_TO_SPU_HALT",
    }
    return {"ph": phase, "cat": "SP 1", "name": name, "pid": 5, "tid": 19, "ts": ts, "args": args}


def work_of(tmp_path: Path, text: str) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    path = tmp_path / "native.json"
    path.write_text(text)
    with TraceStore() as store:
        read = store.add_trace(str(path))
        rows = sorted(store.rows("device_ops"), key=lambda row: (row["ts"], row["dur"]))
        found = [(row["name"], row["engine"], row["ts"], row["dur"], row["recipe"]) for row in rows]
    return found, {issue.kind: issue.count for issue in read.issues}


def test_ends_match_begins_in_order_and_not_by_name(tmp_path: Path) -> None:
    # The second piece of work begins before the first one ends, and the end events have a port's name.
    text = native(half("B", 1, "a"), half("B", 2, "b"), half("E", 5, "TPC_SPU_HALT 1"), half("E", 6, "TPC_SPU_HALT 2"))
    found, issues = work_of(tmp_path, text)
    assert found == [("relu_fwd_bf16", "TPC", 1000, 4000, 7), ("relu_fwd_bf16", "TPC", 2000, 4000, 7)]
    assert issues == {}


def test_an_annotation_on_a_lane_of_the_native_profiler_is_not_work(tmp_path: Path) -> None:
    note = {**half("X", 0), "cat": "gpu_user_annotation", "dur": 100}
    found, _ = work_of(tmp_path, native(note, half("B", 1), half("E", 5)))
    assert found == [("relu_fwd_bf16", "TPC", 1000, 4000, 7)]


def test_recipes_do_not_mix(tmp_path: Path) -> None:
    text = native(half("B", 1, recipe=7), half("B", 2, recipe=8), half("E", 3, recipe=8), half("E", 9, recipe=7))
    assert work_of(tmp_path, text)[0] == [
        ("relu_fwd_bf16", "TPC", 1000, 8000, 7),
        ("relu_fwd_bf16", "TPC", 2000, 1000, 8),
    ]


def test_events_cut_by_the_edges_of_a_recording_are_counted(tmp_path: Path) -> None:
    text = native(half("E", 1), half("B", 2), half("E", 3), half("E", 4), half("B", 5), half("E", 6), half("B", 7))
    found, issues = work_of(tmp_path, text)
    assert found == [("relu_fwd_bf16", "TPC", 2000, 1000, 7), ("relu_fwd_bf16", "TPC", 5000, 1000, 7)]
    assert issues == {"begin without end": 1, "end without begin": 2}


def test_begins_and_ends_without_a_time_are_lost(tmp_path: Path) -> None:
    halves = [half("B", 1), half("E", 6), {**half("B", 7), "ts": "7 us"}, {**half("E", 9), "ts": None}]
    path = tmp_path / "native.json"
    path.write_text(native(*halves))
    with TraceStore() as store:
        store.add_trace(str(path))
        assert len(store.rows("device_ops")) == 1
        (read,) = store.inputs_with_issues()
    assert {issue.kind: issue.count for issue in read.issues} == {"events without times": 2}
    assert "events with no start time" in read.loss


def test_a_node_that_runs_again_on_the_same_lane_runs_twice(tmp_path: Path) -> None:
    path = tmp_path / "native.json"
    path.write_text(native(half("B", 1), half("E", 3), half("B", 10), half("E", 14)))
    with TraceStore() as store:
        store.add_trace(str(path))
        assert [(row["run"], row["ts"], row["dur"]) for row in store.rows("node_runs")] == [
            (1, 1000, 2000),
            (2, 10000, 4000),
        ]


def test_recipes_that_share_an_id_keep_their_nodes_apart(tmp_path: Path) -> None:
    events = [half("B", 1), half("E", 3), half("B", 2), half("E", 5)]
    for event, handle in zip(events, ("0x1", "0x1", "0x2", "0x2"), strict=True):
        event["args"]["recipeHandle"] = handle
        event["tid"] = handle
    path = tmp_path / "native.json"
    path.write_text(native(*events))
    with TraceStore() as store:
        store.add_trace(str(path))
        assert sorted((row["recipe"], row["runs"], row["dur"]) for row in store.rows("device_nodes")) == [
            (7, 1, 2000), (7, 1, 3000),
        ]  # fmt: skip


GRAPH = {
    "graphs": [
        {
            "name": "debug.g_1", "recipe_debug_id": 61055,
            "tensors": [
                {"name": name, "max_shape": shape, "dtype": "f32", "dtype_bit_size": 32, "allocation": memory}
                for name, shape, memory in (
                    ("x", [64, 56, 56, 8], "DRAM"), ("w", [128, 64, 3, 3], "SRAM"), ("y", [128, 54, 54, 8], "DRAM"),
                )
            ],
            "nodes": [
                {
                    "name": "g_1_conv_0", "guid": "spatial_convolution", "id": 3, "engine": "MME", "is_logical": False,
                    "input_tensors": ["x", "w"], "output_tensors": ["y"], "mme_expected_compute_cycles": 16_000,
                    "mme_compute_utilization": 0.75, "origin_nodes": ["conv"],
                },
                {
                    "name": "g_1_conv_0_tpc_packing", "guid": "conv_weight_packing_fwd_f32", "id": 4, "engine": "TPC",
                    "is_logical": False, "input_tensors": ["w"], "output_tensors": ["w"],
                    "fused_node_graph": {"nodes": [{"name": "a", "guid": "cast"}, {"name": "b", "guid": "pack"}]},
                },
            ],
        }
    ]
}  # fmt: skip


def test_a_post_graph_gives_shapes_rates_and_what_the_compiler_expected(tmp_path: Path) -> None:
    trace, graph = tmp_path / "kineto.json", tmp_path / "graph.json"
    trace.write_text(gaudi_profiler.as_kineto())
    graph.write_text(json.dumps(GRAPH))
    with TraceStore() as store:
        store.add_trace(str(trace))
        store.add_reading(read_text(str(graph)))
        convolution, packing = store.rows("device_nodes")
    assert (convolution["input_shapes"], convolution["output_shapes"]) == (
        "[[8, 56, 56, 64], [3, 3, 64, 128]]", "[[8, 54, 54, 128]]",
    )  # fmt: skip
    # 16,000 cycles at a Gaudi 3's 1,600 MHz.
    assert (convolution["expected_ns"], convolution["expected_ratio"]) == (10_000, pytest.approx(1.8814))
    flops = 2 * (8 * 54 * 54 * 128) * (3 * 3 * 64)
    # Data that is already on the chip does not have to be read from memory.
    moved = 4 * (8 * 56 * 56 * 64 + 8 * 54 * 54 * 128)
    assert (convolution["flops"], convolution["bytes"]) == (flops, moved)
    assert convolution["mfu"] == pytest.approx(flops / 229e12 / 18.814e-6)
    assert convolution["roofline_ratio"] == pytest.approx(max(flops / 229e12, moved / 3.67e12) / 18.814e-6)
    assert (packing["ops"], packing["bytes"], packing["mfu"]) == ("cast, pack", 0, None)


def test_lanes_of_one_run_overlap_or_follow_each_other(tmp_path: Path) -> None:
    def on(tid: int, *events: dict[str, Any]) -> list[dict[str, Any]]:
        return [{**event, "tid": tid} for event in events]

    # Work that moves between three lanes is one run, unless the engine does other work in between.
    events = [
        *on(1, half("B", 1), half("E", 3)), *on(2, half("B", 4), half("E", 6)), *on(3, half("B", 5), half("E", 8)),
        *on(1, half("B", 9, "other", 9), half("E", 10, "other", 9)), *on(4, half("B", 11), half("E", 12)),
    ]  # fmt: skip
    path = tmp_path / "native.json"
    path.write_text(native(*events))
    with TraceStore() as store:
        store.add_trace(str(path))
        runs = [
            (row["node"], row["run"], row["dur"], row["active_ns"], row["lanes"]) for row in store.rows("node_runs")
        ]
    assert runs == [("node", 1, 7000, 6000, 3), ("other", 1, 1000, 1000, 1), ("node", 2, 1000, 1000, 1)]


def test_lanes_of_half_die_cores_identify_a_gaudi_3(tmp_path: Path) -> None:
    (tmp_path / "profile_1.csv").write_text(gaudi_profiler.as_csv())
    (tmp_path / "graph.json").write_text(json.dumps(GRAPH))
    with TraceStore() as store:
        store.add_trace(str(tmp_path / "profile_1.csv"))
        store.add_reading(read_text(str(tmp_path / "graph.json")))
        assert store.rows("known_devices") == [{"rank": 0, "device": "GAUDI3"}]
        assert store.rows("device_nodes")[0]["expected_ns"] == 10_000


def test_a_post_graph_gives_the_use_of_the_matrix_units_and_the_roofline(tmp_path: Path) -> None:
    trace, graph = tmp_path / "kineto.json", tmp_path / "graph.json"
    trace.write_text(gaudi_profiler.as_kineto())
    without = analyze([str(trace)], []).summary["mfu_ratio"]
    graph.write_text(json.dumps(GRAPH))
    summary = analyze([str(trace), str(graph)], []).summary
    peak_us = 2 * (8 * 54 * 54 * 128) * (3 * 3 * 64) / 229e12 * 1e6
    assert without.value is None
    assert summary["mfu_ratio"].value == pytest.approx(peak_us / 26.163)
    assert summary["roofline_ratio"].value is not None


def test_intels_table_alone_gives_its_own_times(tmp_path: Path) -> None:
    path = tmp_path / "profile_1_analyzed_nodes.csv"
    path.write_text(gaudi_profiler.as_analyzed_nodes())
    assert "only node times are known" in analyze([str(path)]).verdict.detail
