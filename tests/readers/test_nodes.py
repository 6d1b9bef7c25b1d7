"""Compiled graphs, the trace analyzer's tables and the graph compiler's advice."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from builders import gaudi_profiler

from perftool.errors import InputError
from perftool.model.nodes import CompilerAdvice, GraphTensor, NodeRun
from perftool.readers import text_input
from perftool.readers.nodes import analyzed_nodes, post_graph

ADVICE = """\
[HIGH][SmallFcd] Tensor: t1 - with size 300 MB and effective FCD 64 B, will be read 12 times from DRAM
[LOW ][SmallFcd] Tensor: t2 - The node n2 write tensor of size 1.5 MB and the effective FCD is 32 B to SRAM
[HIGH][StridedOps] StridedView Node: n3 - with view tensor sizes=[4, 8] might cause redundant copies
[HIGH][SmallFcd] Tensor: t1 - with size 300 MB and effective FCD 64 B, will be read 12 times from DRAM
"""


def graph(**node: Any) -> dict[str, Any]:
    """Return a post-graph file with one matmul, [512, 4096] x [4096, 1024], with the fastest dimension first."""
    tensors = [
        {"name": "a", "max_shape": [4096, 512], "dtype": "bf16", "dtype_bit_size": 16, "allocation": "DRAM"},
        {"name": "b", "max_shape": [1024, 4096], "dtype": "bf16", "dtype_bit_size": 16, "allocation": "SRAM"},
        {"name": "c", "max_shape": [1024, 512], "dtype": "bf16", "dtype_bit_size": 16, "allocation": "DRAM"},
    ]
    product = {
        "name": "mm", "guid": "gemm", "id": 5, "context_id": 3, "engine": "MME", "is_logical": False,
        "input_tensors": ["a", "b", ""], "output_tensors": ["c"], "mme_expected_compute_cycles": 1650,
        "mme_compute_utilization": 0.9, "origin_nodes": ["linear"], **node,
    }  # fmt: skip
    view = {"name": "reshape", "guid": "reshape", "id": 6, "engine": "TPC", "is_logical": True}
    return {"graphs": [{"name": "g", "recipe_debug_id": 61055, "nodes": [product, view], "tensors": tensors}]}


def test_a_graph_has_its_shapes_turned_and_its_logical_nodes_left_out(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(graph()))
    reading = text_input.read(path)
    (node,) = reading.graph_nodes
    assert reading.kind == "graph"
    assert (node.recipe, node.recipe_name, node.node, node.node_id, node.engine) == (61055, "g", "mm", 5, "MME")
    assert node.inputs == (GraphTensor((512, 4096), "bf16", 16, "DRAM"), GraphTensor((4096, 1024), "bf16", 16, "SRAM"))
    assert (node.expected_cycles, node.utilisation, node.origins) == (1650, 0.9, ("linear",))


def test_an_estimate_of_zero_is_ignored() -> None:
    data = json.dumps(graph(mme_expected_compute_cycles=0, mme_compute_utilization=0)).encode()
    (node,) = post_graph.read(data, None, "graph.json").graph_nodes
    assert (node.expected_cycles, node.utilisation) == (None, None)


def test_a_fused_kernel_lists_what_is_in_it() -> None:
    inner = {"nodes": [{"name": "x", "guid": "relu_fwd_bf16"}, {"name": "y", "guid": "add_fwd_bf16"}]}
    data = json.dumps(graph(engine="TPC", guid="fused_kernel_0x1_bf16", fused_node_graph=inner)).encode()
    (node,) = post_graph.read(data, None, "graph.json").graph_nodes
    assert node.fused_ops == ("relu_fwd_bf16", "add_fwd_bf16")


def test_the_number_of_dimensions_is_bounded_by_the_size_of_the_file() -> None:
    found = graph()
    found["graphs"][0]["tensors"] = [{"name": "a", "max_shape": [1 << 40] * 32, "dtype": "bf16"}]
    found["graphs"][0]["nodes"] = [
        {"name": f"n{number}", "engine": "TPC", "input_tensors": ["a"] * 100} for number in range(100)
    ]
    data = json.dumps(found).encode()
    reading = post_graph.read(data, None, "graph.json")
    kept = sum(len(tensor.shape) for node in reading.graph_nodes for tensor in node.inputs)
    assert 0 < kept <= len(data) // 8
    assert len(reading.graph_nodes) == 100
    assert [issue.kind for issue in reading.issues] == ["operand"]


def test_the_name_of_a_graph_is_not_repeated_at_any_length() -> None:
    found = graph()
    found["graphs"][0]["name"] = "g" * 100_000
    (node,) = post_graph.read(json.dumps(found).encode(), None, "graph.json").graph_nodes
    assert node.recipe_name == "g" * 200


@pytest.mark.parametrize(
    "text", ["{", '{"graphs": 4}', "[]", '{"graphs": [{"nodes": 3, "tensors": {"a": 1}}]}', '{"graphs": [7, null]}']
)
def test_damaged_graphs_give_a_sentence_or_nothing(text: str) -> None:
    with suppress(InputError):
        assert post_graph.read(text.encode(), None, "graph.json").graph_nodes == ()


@pytest.mark.parametrize(
    "node",
    [
        {"name": 3}, {"engine": None}, {"input_tensors": {"a": 1}}, {"id": -4}, {"mme_expected_compute_cycles": "many"},
        {"id": 10**30}, {"fused_node_graph": []}, {"origin_nodes": "x"}, {"mme_compute_utilization": True},
    ],
)  # fmt: skip
def test_odd_nodes_are_ignored(node: dict[str, Any]) -> None:
    assert len(post_graph.read(json.dumps(graph(**node)).encode(), None, "graph.json").graph_nodes) <= 1


def test_the_analyzers_table(tmp_path: Path) -> None:
    path = tmp_path / "model_hw_prof_accel0_001_analyzed_nodes.csv"
    path.write_text(gaudi_profiler.as_analyzed_nodes())
    reading = text_input.read(path)
    assert reading.kind == "nodes"
    assert reading.nodes[2] == NodeRun(
        engine="TPC", node="g_1_conv_0_tpc_packing", run=2, op="conv_weight_packing_fwd_f32", dur_ns=1879,
        active_ns=1878, ts_ns=554_804_522_837, exposed_ns=1878, activations=32, lanes=32, min_engine_ns=158,
        max_engine_ns=240,
        avg_engine_ns=164,
    )  # fmt: skip


def test_the_same_as_a_view_of_an_archive_with_its_other_units() -> None:
    row = {
        "Unit": "MME", "Node Name": "mm", "Op Type": "GEMM", "Duration (usec)": 12.5, "Active (usec)": "10",
        "MME Expected Compute (usec)": "5", "MME Compute Utilization (%)": 80, "Input shapes": "[Error]",
    }  # fmt: skip
    reading = analyzed_nodes.read_view(json.dumps({"analyzer_metadata": [row, 3, {}]}).encode(), 0, "view.json")
    (node,) = reading.nodes
    assert (node.dur_ns, node.active_ns, node.expected_ns, node.utilisation, node.input_shapes) == (
        12500,
        10000,
        5000,
        0.8,
        None,
    )
    assert [(issue.kind, issue.count) for issue in reading.issues] == [("node", 1)]


def test_the_expected_time_of_an_op_does_not_apply_to_its_slices() -> None:
    row = {"Unit": "MME", "Node Name": "mm/op_1", "Op Type": "GEMM", "Duration (us)": "1", "Active (us)": "1"}
    for origin, expected in (("mm", None), ("mm/op_1", 5000)):
        rows = [{**row, "MME Origin Node": origin, "MME Origin Expected (us)": "5"}]
        (node,) = analyzed_nodes.read_view(json.dumps({"analyzer_metadata": rows}).encode(), 0, "view.json").nodes
        assert node.expected_ns == expected


def test_advice_is_grouped_by_check_with_tensors_and_sizes(tmp_path: Path) -> None:
    path = tmp_path / "graph_compiler_perf.log"
    path.write_text(ADVICE)
    reading = text_input.read(path)
    assert reading.kind == "runtime_log"
    assert reading.advice[0] == CompilerAdvice(
        "high", "SmallFcd", "Tensor: t1 - with size 300 MB and effective FCD 64 B, will be read 12 times from DRAM",
        "t1", None, 300 << 20, 64, 12, "DRAM", count=2, line=1,
    )  # fmt: skip
    found = [
        (one.priority, one.tensor, one.node, one.size_bytes, one.fcd_bytes, one.memory) for one in reading.advice[1:]
    ]
    assert found == [("low", "t2", "n2", 1_572_864, 32, "SRAM"), ("high", None, "n3", None, None, None)]


def test_other_text_in_the_file_of_advice_is_damage() -> None:
    advice = "[LOW ][check] The node n of size 1 MB\n"
    assert text_input.read((advice + "\n" + advice).encode()).issues == ()
    (issue,) = text_input.read((advice * 2 + "Failed requests: 999\n").encode()).issues
    assert issue.message == "a line is not compiler advice and is left out, first in line 3"


def test_a_log_line_with_a_level_in_brackets_is_not_advice(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("[INFO] start\n[HIGH] load\n[WARN] slow\n")
    assert text_input.read(path).advice == ()
