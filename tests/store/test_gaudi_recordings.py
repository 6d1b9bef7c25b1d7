"""Peculiarities of real Gaudi recordings, as the tables show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders.gaudi import GaudiTrace

from perftool.model.report import Device
from perftool.store.device import detect_device
from perftool.store.trace_store import TraceStore


def asked(tmp_path: Path, traces: GaudiTrace | list[GaudiTrace], *queries: str) -> list[list[tuple[Any, ...]]]:
    """Return the rows of each query on a run with these traces, one for each rank."""
    with TraceStore() as store:
        for rank, trace in enumerate(traces if isinstance(traces, list) else [traces]):
            store.add_trace(str(trace.write(tmp_path / f"trace{rank}.json")))
        return [store.timed(sql, {}, 60)[1] for sql in queries]


# Engines and monitors, and whether an event of the monitor is work.
MONITORS = (
    ("MME", "WB0_END", True), ("MME", "MMEH_WB0_MON_TS_BIT1", True), ("MME", "MMEH_WB1_MON_TS_BIT1", True),
    ("MME", "SB0_START_EVT", False), ("MME", "START_EVENT", False), ("TPC", "TPC_SPU_START_TO_SPU_HALT", True),
    ("TPC", "TPC_QMAN_CMD_EXE", False), ("TPC", "TPC_VPU_HALT", False),
    ("TPC", "TPC_END_OF_KERNEL_MESSAGE_WRITE", False),
    ("DMA", "DBG_DMA_TRC_WR_DATA_LAST", True), ("DMA", "DBG_DMA_TRC_RD_FRST_ADDR_PUSH", False),
    ("NIC", "STM_0_RX_EVENT", True), ("TPC", "A_MONITOR_OF_TOMORROW", True), ("MME", "", True),
)  # fmt: skip


def test_only_known_monitor_points_are_not_work(tmp_path: Path) -> None:
    traces = []
    for engine, monitor, _ in MONITORS:
        traces.append(GaudiTrace())
        traces[-1].step(0, 0, 10_000)
        traces[-1].device_op(engine, "work", 1_000, 500, recipe=57_400, monitor=monitor)
    (found,) = asked(tmp_path, traces, "SELECT rank, engine, busy_ns FROM engines ORDER BY rank")
    assert found == [(rank, engine, 500_000) for rank, (engine, _, work) in enumerate(MONITORS) if work]


WAIT = 8_800


def waiting(trace: GaudiTrace, api: bool, method: str) -> GaudiTrace:
    """Return two steps, each with one wait for the device. ``api`` and ``method`` choose the lanes that show it."""
    for step in range(2):
        at = 10_000 * step
        trace.step(step, at, 10_000)
        trace.mme("GEMM", at + 100, 8_900, recipe=57_400, dtype="bf16")
        if api:
            trace.synapse("synEventSynchronize", at + 200, WAIT)
        if method:
            trace.annotation(method, at + 201, WAIT - 3, thread="140233")
            trace.annotation(f"{method} (accel0)", at + 202, WAIT - 5, thread="140233")
            trace.annotation("eventQuery", at + 9_200, 2, thread="140233")
    return trace


def test_one_wait_a_step_is_one_wait_whichever_lanes_show_it(tmp_path: Path) -> None:
    lanes = [(True, ""), (False, "synchronizeEvent"), (False, "synchronizeStream"), (False, "synchronizeAllStreams"),
             (True, "synchronizeEvent")]  # fmt: skip
    traces = [waiting(GaudiTrace(), api, method) for api, method in lanes]
    (found,) = asked(tmp_path, traces, "SELECT rank, kind, count(*), min(dur) FROM syncs GROUP BY ALL ORDER BY rank")
    assert found == [(rank, "explicit", 2, (WAIT if api else WAIT - 3) * 1000) for rank, (api, _) in enumerate(lanes)]


def test_a_wait_of_another_thread_stays_separate(tmp_path: Path) -> None:
    trace = waiting(GaudiTrace(), True, "synchronizeEvent")
    trace.annotation("synchronizeStream", 9_500, 400, thread="140999")
    assert asked(tmp_path, trace, "SELECT name FROM syncs ORDER BY ts")[0][1] == ("synchronizeStream",)


def test_a_wait_of_a_method_inside_a_scalar_read_is_that_read(tmp_path: Path) -> None:
    trace = GaudiTrace()
    trace.step(0, 0, 10_000)
    trace.mme("GEMM", 100, 8_900, recipe=57_400, dtype="bf16")
    trace.host("aten::item", 190, WAIT + 30)
    trace.annotation("synchronizeEvent", 200, WAIT, thread="140233")
    assert asked(tmp_path, trace, "SELECT kind, op FROM syncs") == [[("scalar_read", "aten::item")]]


def test_streams_of_the_host_dma_give_kind_and_direction_of_copies(tmp_path: Path) -> None:
    trace = GaudiTrace()
    trace.step(0, 0, 10_000)
    trace.mme("GEMM", 4_000, 2_000, recipe=57_400, dtype="bf16")
    for at, name in enumerate(("pdma_tx", "pdma_tx_commands", "pdma_rx", "pdma_rx_profiler", "pdma_device2device")):
        trace.pdma(f"{name} apiId={at} chunk=0", 100 + 100 * at, 50)
    directions, busy = asked(
        tmp_path, trace, "SELECT direction FROM copies ORDER BY ts", "SELECT busy_ns FROM engines WHERE engine = 'PDMA'"
    )
    assert directions == [("host_to_device",), ("device_to_host",), ("device_to_device",)]
    # Transfers of commands and the profiler's own copies do not count as copies, but they keep the engine busy.
    assert busy == [(250_000,)]


def test_a_call_is_linked_to_a_transfer_of_its_own_direction(tmp_path: Path) -> None:
    trace = GaudiTrace()
    trace.step(0, 0, 10_000)
    trace.synapse("synMemCopyAsync", 90, 8, args={"direction": "0", "size": "4096"})
    trace.annotation("memcpyAsync", 91, 6, thread="140233")
    trace.pdma("pdma_tx_commands apiId=1 chunk=0", 100, 10)
    trace.pdma("pdma_rx apiId=3 chunk=0", 105, 30)
    trace.pdma("pdma_tx apiId=2 chunk=0", 110, 50)
    trace.synapse("synMemCopyAsync", 99, 5, args={"direction": "1", "size": "8"})
    (found,) = asked(tmp_path, trace, "SELECT direction, bytes FROM copies ORDER BY direction")
    assert found == [("device_to_host", 8), ("host_to_device", 4_096)]


def two_recipes_of_one_id(**values: tuple[str, str]) -> GaudiTrace:
    """Return two graphs with the same recipe id. ``values`` are the arguments that distinguish them."""
    trace = GaudiTrace()
    trace.step(0, 0, 10_000)
    for number, at in enumerate((1_000, 3_000, 5_000)):
        which = number % 2
        name = values["name"][which]
        text = f"enqueueWithExternalEvents recipeHandle {values['launched'][which]} recipeSeqNum {which}"
        trace.annotation("enqueueWithExternalEventsExt", at - 110, 60, recipe=60_931, recipe_name=name)
        trace.annotation(f"{text} seqId {number} inFlight 0", at - 100, 40, recipe=0, recipe_name="")
        work = {"recipe": 60_931, "recipe_name": name, "dtype": "bf16"}
        if values["handle"][which]:
            work["recipeHandle"] = values["handle"][which]
        trace.mme("GEMM", at, 100 * (1 + which), **work)
    return trace


def test_recipes_that_share_an_id_are_two(tmp_path: Path) -> None:
    """They differ in their names, in their handles, or in both. A fourth rank has one recipe without a name."""
    names, handles, none = ("a", "b"), ("0x1", "0x2"), ("", "")
    traces = [
        two_recipes_of_one_id(name=names, launched=handles, handle=none),
        two_recipes_of_one_id(name=none, launched=handles, handle=handles),
        two_recipes_of_one_id(name=names, launched=handles, handle=handles),
        two_recipes_of_one_id(name=none, launched=("0x1", "0x1"), handle=none),
    ]
    found, launches = asked(
        tmp_path, traces,
        "SELECT rank, recipe, name, launches, busy_ns FROM recipes ORDER BY rank, name, launches DESC",
        "SELECT rank, name, device_ts - ts FROM launches SEMI JOIN launch_depth USING (id) ORDER BY rank, ts",
    )  # fmt: skip
    assert found == [
        (0, 60_931, "a", 2, 200_000), (0, 60_931, "b", 1, 200_000),
        (1, 60_931, None, 2, 200_000), (1, 60_931, None, 1, 200_000),
        (2, 60_931, "a", 2, 200_000), (2, 60_931, "b", 1, 200_000),
        (3, 60_931, None, 3, 400_000),
    ]  # fmt: skip
    assert launches == [(rank, "enqueueWithExternalEventsExt", 110_000) for rank in range(4) for _ in range(3)]


def test_python_threads_in_the_process_of_the_device_are_host_work(tmp_path: Path) -> None:
    trace = GaudiTrace()
    trace.step(0, 0, 10_000)
    trace.mme("GEMM", 1_000, 500, recipe=57_400, dtype="bf16")
    trace.host("threading.py(973): _bootstrap", 10, 9_900, cat="python_function", pid=0, tid=0)
    assert asked(
        tmp_path, trace, "SELECT side, engine FROM tracks WHERE pid = '0' ORDER BY tid",
        "SELECT sum(dur)::BIGINT FROM device_busy", "SELECT side FROM slices WHERE cat = 'python_function'",
    ) == [[("host", None), ("device", "MME")], [(500_000,)], [("host",)]]  # fmt: skip


@pytest.mark.parametrize("lane", ["[HD0] MME", "[HD7] TPC 3", "[D1] SPDMA 0"])
def test_lanes_identify_a_gaudi_3_if_nothing_else_does(tmp_path: Path, lane: str) -> None:
    trace = GaudiTrace("B", "GAUDI3")
    trace.mme("GEMM", 1_000, 500, recipe=57_400, dtype="bf16", hidden="1")
    trace.tpc("relu", 1_000, 500, recipe=57_400, lanes=[59])
    trace.pdma("pdma_tx apiId=0 chunk=0", 2_000, 100, lanes=[2])
    data = json.loads(trace.to_bytes())
    del data["deviceProperties"]
    named = [event for event in data["traceEvents"] if event["name"] == "thread_name" and event["args"]["name"] == lane]
    data["traceEvents"] = [event for event in data["traceEvents"] if event["name"] != "thread_name"] + named
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(data))
    with TraceStore() as store:
        store.add_trace(str(path))
        assert [row["device"] for row in store.rows("known_devices")] == ["GAUDI3"]
        assert detect_device(store) == Device("hpu", "GAUDI3", 1)


def test_dma_lanes_dedicated_to_hcl_belong_to_collectives(tmp_path: Path) -> None:
    trace = GaudiTrace()
    trace.step(0, 0, 10_000)
    trace.dma("transfer", 1_000, 500, lanes=2)
    data = trace.to_bytes().replace(b'"EDMA 1"', b'"EDMA 1 HCL dedicated"')
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    with TraceStore() as store:
        store.add_trace(str(path))
        kinds = store.timed("SELECT kind::VARCHAR, engine FROM device_ops ORDER BY track", {}, 60)[1]
    assert kinds == [("memcpy", "DMA"), ("collective", "DMA")]


def test_the_name_of_a_fused_kernel_does_not_set_its_type(tmp_path: Path) -> None:
    trace = GaudiTrace()
    trace.step(0, 0, 10_000)
    trace.mme("fused_kernel_0x88805A4E_C_f32", 1_000, 500, recipe=57_400, dtype="bf16")
    low = "SELECT round(value, 3) FROM summary WHERE metric = 'mme_low_precision_ratio'"
    assert asked(tmp_path, trace, "SELECT bits FROM matmuls", low) == [[(16,)], [(1.0,)]]


def test_graphs_built_on_the_thread_of_python_count_as_building(tmp_path: Path) -> None:
    trace = GaudiTrace()
    trace.step(0, 0, 10_000)
    trace.mme("GEMM", 6_000, 500, recipe=57_400)
    data = json.loads(trace.to_bytes())
    (thread,) = [event for event in data["traceEvents"] if event["name"] == "ProfilerStep#0"]
    place = {"pid": thread["pid"], "tid": thread["tid"], "ts": thread["ts"] + 1_000}
    build = {"ph": "X", "name": "SyncTensorsGraphInternal", "dur": 2_000, **place}
    path = tmp_path / "trace.json"
    for events, ratio in (
        ([], None), ([build | {"cat": "Runtime"}], 0.2), ([build | {"cat": "hpu_op"}], 0.2),
    ):  # fmt: skip
        path.write_text(json.dumps(data | {"traceEvents": [*data["traceEvents"], *events]}))
        with TraceStore() as store:
            store.add_trace(str(path))
            rows = {row["metric"]: row["value"] for row in store.rows("summary")}
        assert rows.get("graph_build_ratio") == ratio
