"""Builds each analysis table from a few events, and checks all of its rows and columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from events import (
    HOST,
    Event,
    begin,
    document,
    end,
    instant,
    kernel,
    launch,
    loader,
    memcpy,
    memset,
    meta,
    runtime,
    step,
    x,
)  # fmt: skip
from stores import Rows

import perftool
from perftool.engine.rules.pack import builtin_folder
from perftool.store.catalog import catalog
from perftool.store.readings import read_text
from perftool.store.trace_store import TraceStore

PACKAGE = Path(perftool.__file__).parent
PACK = builtin_folder()

# A batch, a launch that waits for the host, an optimizer, an immediate launch, and work queued before the recording.
BUSY: list[Event] = [
    step(1, 0, 1000), loader(0, 300), x("aten::mm", 300, 60), *launch(1, 310, 20, 400, 100),
    x("Optimizer.step#SGD.step", 500, 100, "user_annotation"), *launch(2, 610, 10, 620, 100),
    runtime("cudaLaunchKernel", 630, 10, 3), kernel("queued", 760, 40, 3),
]  # fmt: skip

# fmt: off
# For each table, its events and its rows, with every column in documented order; rows are sorted by rank, time and id.
CASES: dict[str, tuple[list[Event], list[tuple[object, ...]]]] = {
    # Host threads, streams, device annotations and Gaudi lanes.
    "tracks": ([
        meta("process_name", "python", tid=0), meta("thread_name", "main"), x("a", 1, 2),
        x("b", 1, 2, pid="", tid="x"), kernel("k", 1, 1), x("note", 1, 1, "gpu_user_annotation", pid=0, tid=8),
        meta("process_name", "/device:HPU:0 x", pid=5, tid=0), x("nic", 1, 1, "kernel", pid=5, tid=14000),
    ], [
        (0, 0, '', 'x', None, None, 'host', None),
        (1, 0, '0', '7', None, None, 'device', None),
        (2, 0, '0', '8', None, None, 'device', None),
        (3, 0, '1', '1', 'python', 'main', 'host', None),
        (4, 0, '5', '14000', '/device:HPU:0 x', None, 'device', 'NIC'),
    ]),
    # The window reaches from the first complete step to the last one, including the time between steps. The host's
    # window leaves out its wait for the device.
    "windows": ([
        step(1, 0, 100), *launch(1, 10, 5, 50, 100), step(2, 200, 100), *launch(2, 210, 5, 250, 150),
    ], [
        (0, 0, 400_000, 400_000, 0, 300_000, 2),
    ]),
    # The thread that launches feeds the device; the loader's thread does not.
    "feeding_tracks": ([
        *launch(1, 10, 5, 50, 100), loader(0, 200, tid=2), x("aten::mm", 0, 5, tid=3),
    ], [
        (0, 1),
    ]),
    # The roles of names in each category, from the vendor files.
    "roles": ([
        runtime("cudaMemcpy", 0, 5), x("aten::item", 0, 5), x("aten::mm", 9, 5), kernel("ncclDevKernel", 0, 5),
        memcpy("Memcpy DtoH (Device -> Pinned)", 5, 5),
    ], [
        ('Memcpy DtoH (Device -> Pinned)', 'memcpy', 'device_to_host'),
        ('Memcpy DtoH (Device -> Pinned)', 'memcpy', 'pinned'),
        ('aten::item', 'cpu_op', 'bookkeeping'),
        ('aten::item', 'cpu_op', 'scalar_read'),
        ('cudaMemcpy', 'runtime', 'blocking_copy'),
        ('cudaMemcpy', 'runtime', 'copy'),
        ('ncclDevKernel', 'kernel', 'collective'),
    ]),
    # Complete events, pairs and events of odd categories become slices. Host events with a negative length do not.
    "slices": ([
        x("outer", 0, 10), x("inner", 2, 3), begin("pair", 20), end(25, "pair"), x("negative", 50, -1),
        kernel("late", 1, -1), x("odd", 60, 0, "Something"), x("no time", None, 1),
    ], [
        (0, 0, 1, 'host', 'outer', 'cpu_op', 0, 10_000, 10_000, 0, None, True),
        (5, 0, 0, 'device', 'late', 'kernel', 1000, -1000, 0, 0, None, True),
        (1, 0, 1, 'host', 'inner', 'cpu_op', 2000, 3000, 5000, 1, 0, False),
        (2, 0, 1, 'host', 'pair', 'cpu_op', 20_000, 5000, 25_000, 0, None, True),
        (6, 0, 1, 'host', 'odd', 'something', 60_000, 0, 60_000, 0, None, True),
    ]),
    # A step lasts until its work is done. The last step launched nothing and is partial.
    "steps": ([
        step(3, 0, 100), *launch(1, 10, 5, 50, 80), step(4, 100, 100), *launch(2, 110, 5, 140, 20), step(5, 200, 50),
    ], [
        (0, 3, 'ProfilerStep#3', 0, 130_000, 130_000, 0, 100_000, False, 80_000, 0, 0, 0, 5000, 0, 0, 45_000,
         80_000, 0, 0, 0, 5000, 0, 0, 'profiler', 'high', None),
        (0, 4, 'ProfilerStep#4', 130_000, 70_000, 200_000, 100_000, 200_000, False, 20_000, 0, 0, 0, 0, 0,
         0, 50_000, 20_000, 0, 0, 0, 0, 0, 0, 'profiler', 'high', None),
        (0, 5, 'ProfilerStep#5', 200_000, 50_000, 250_000, 200_000, 250_000, True, 0, 0, 0, 0, 0, 0, 0,
         50_000, 0, 0, 0, 0, 0, 0, 0, "profiler", "high", "incomplete"),
    ]),
    # Self time excludes the direct children.
    "ops": ([
        x("linear", 0, 100, **{"External id": 7, "Input Dims": [[2, 3]], "Input type": ["float"],
          "Concrete Inputs": ["1"], "Sequence number": 4, "Fwd thread id": 0, "Call stack": "a.py"}),
        x("t", 10, 20), x("addmm", 40, 50), runtime("cudaLaunchKernel", 50, 10),
    ], [
        (0, 0, 0, 'linear', 0, 100_000, 100_000, 0, None, True, 30_000, '[[2,3]]', '["float"]', '["1"]', 7, 4, 0,
         'a.py'),
        (1, 0, 0, 't', 10_000, 20_000, 30_000, 1, 0, False, 20_000, None, None, None, None, None, None, None),
        (2, 0, 0, 'addmm', 40_000, 50_000, 90_000, 1, 0, False, 40_000, None, None, None, None, None, None, None),
    ]),
    # Kinds and engines of device work, and who submitted it.
    "device_ops": ([
        x("aten::mm", 0, 30), runtime("cudaLaunchKernel", 10, 5, 1), kernel("gemm", 40, 10, 1),
        memcpy("Memcpy HtoD (Pinned -> Device)", 60, 5, 2, bytes=1000), memset(70, 5, 3),
        kernel("ncclDevKernel_AllReduce", 80, 5, 4, stream=9), x("end", 0, 200, tid=2),
    ], [
        (2, 0, 0, 'gemm', 'kernel', 'compute', None, '7', '0', None, 40_000, 10_000, 50_000, None, 1, 0,
         'aten::mm', True, None),
        (3, 0, 0, 'Memcpy HtoD (Pinned -> Device)', 'memcpy', 'copy', None, '7', '0', None, 60_000, 5000,
         65_000, 1000, None, None, None, True, None),
        (4, 0, 0, 'Memset (Device)', 'memset', 'copy', None, '7', '0', None, 70_000, 5000, 75_000, None,
         None, None, None, True, None),
        (5, 0, 1, 'ncclDevKernel_AllReduce', 'collective', 'collective', None, '9', '0', None, 80_000, 5000,
         85_000, None, None, None, None, True, None),
    ]),
    # The queue delay counts from the start of the call. Calls without work have no row.
    "launches": ([
        x("aten::mm", 0, 30), runtime("cudaLaunchKernel", 10, 5, 1), kernel("gemm", 40, 10, 1),
        kernel("tail", 60, 10, 1), runtime("cudaGetDevice", 20, 1), runtime("cudaLaunchKernel", 22, 2, 9),
    ], [
        (1, 0, 1, 'cudaLaunchKernel', 10_000, 5000, 15_000, 1, None, 2, 40_000, 70_000, 30_000, 0, False),
    ]),
    # Overlapping and adjacent work counts once, clipped to the window.
    "device_busy": ([
        step(1, 100, 900), kernel("before", 50, 100), kernel("a", 200, 50), kernel("b", 240, 30, stream=9),
        kernel("c", 270, 10), kernel("impossible", 300, 5000), kernel("d", 990, 100, stream=11),
    ], [
        (0, 100_000, 50_000, 150_000),
        (0, 200_000, 80_000, 280_000),
        (0, 990_000, 10_000, 1_000_000),
    ]),
    "gaps": (BUSY, [
        (0, 0, 1, 0, 400_000, 400_000, 'dataloader', 300_000),
        (1, 0, 1, 500_000, 120_000, 620_000, 'optimizer', 100_000),
        (2, 0, 1, 720_000, 40_000, 760_000, 'queued', 40_000),
        (3, 0, 1, 800_000, 200_000, 1_000_000, 'unknown', 200_000),
    ]),
    "gap_causes": (BUSY, [
        (0, 0, 'dataloader', 'annotation', 'steady', 0, 300_000, 300_000),
        (0, 0, 'framework_op', 'op', 'steady', 300_000, 10_000, 310_000),
        (0, 0, 'launch_call', 'call', 'steady', 310_000, 20_000, 330_000),
        (0, 0, 'launch_latency', 'flow', 'steady', 330_000, 70_000, 400_000),
        (1, 0, 'optimizer', 'annotation', 'steady', 500_000, 100_000, 600_000),
        (1, 0, 'between_ops', 'next event', 'steady', 600_000, 10_000, 610_000),
        (1, 0, 'launch_call', 'call', 'steady', 610_000, 10_000, 620_000),
        (2, 0, 'queued', 'flow', 'steady', 720_000, 40_000, 760_000),
        (3, 0, 'unknown', None, 'steady', 800_000, 200_000, 1_000_000),
    ]),
    # A read that waits, a blocking copy and an explicit wait. Reading a host value is not a wait.
    "syncs": ([
        x("aten::is_nonzero", 0, 90), x("aten::item", 5, 80, **{"Call stack": "train.py(3)"}),
        x("aten::_local_scalar_dense", 10, 70), runtime("cudaMemcpyAsync", 12, 5, 1),
        runtime("cudaStreamSynchronize", 20, 50),
        memcpy("Memcpy DtoH (Device -> Pageable)", 60, 5, 1), x("aten::item", 100, 5), x("aten::to", 200, 50),
        runtime("cudaStreamSynchronize", 210, 30), runtime("cudaDeviceSynchronize", 300, 40),
    ], [
        (0, 0, 1, 'scalar_read', 'aten::is_nonzero', 'aten::is_nonzero', 0, 90_000, 90_000, None),
        (8, 0, 1, 'copy', 'cudaStreamSynchronize', 'aten::to', 210_000, 30_000, 240_000, None),
        (9, 0, 1, 'explicit', 'cudaDeviceSynchronize', None, 300_000, 40_000, 340_000, None),
    ]),
    # Direction, bandwidth, kind of host memory, and whether the host waited.
    "copies": ([
        x("aten::to", 0, 50), runtime("cudaMemcpyAsync", 5, 5, 1), runtime("cudaStreamSynchronize", 12, 30),
        memcpy("Memcpy HtoD (Pageable -> Device)", 20, 10, 1, bytes=5000), runtime("cudaMemcpyAsync", 60, 5, 2),
        memcpy("Memcpy DtoH (Device -> Pinned)", 70, 4, 2, bytes=8000), memcpy("Memcpy DtoD (Device -> Device)", 80, 2),
        memcpy("Memcpy PtoP", 85, 5), x("end", 90, 100),
    ], [
        (3, 0, 'host_to_device', 5000, 20_000, 10_000, 30_000, 500000000.0, False, True, 'aten::to', 1, 50_000),
        (5, 0, 'device_to_host', 8000, 70_000, 4000, 74_000, 2000000000.0, True, False, None, 4, 5000),
        (6, 0, 'device_to_device', None, 80_000, 2000, 82_000, None, None, False, None, None, None),
        (7, 0, 'peer', None, 85_000, 5000, 90_000, None, None, False, None, None, None),
    ]),
    # The part hidden behind compute, and host collectives that no device shows.
    "collectives": ([
        x("all", 0, 1000, tid=9), kernel("gemm", 100, 100), kernel("more", 150, 100, stream=8),
        kernel("ncclDevKernel_AllReduce", 180, 120, stream=9, **{"Collective name": "allreduce", "In msg nelems": 10,
               "dtype": "Float", "Process Group Name": "0"}),
        x("gloo:broadcast", 400, 50), x("nccl:all_reduce", 500, 10),
    ], [
        (3, 0, 'device', 'allreduce', 180_000, 120_000, 300_000, 40, '0', None, None, 'Float', 'all_reduce', True,
         70_000, 2, None, None, None, None),
        (4, 0, 'host', 'gloo:broadcast', 400_000, 50_000, 450_000, None, None, None, None, None, None, True,
         0, 3, None, None, None, None),
    ]),
    # Splits count rows, here of four numbers each. Equal splits are left out, and long lists are shortened.
    "all_to_all_sizes": ([
        *(kernel("ncclDevKernel_SendRecv", at, 50, stream=9, **{"Collective name": "all_to_allv", "dtype": "Float",
                 "In msg nelems": 16, "Out msg nelems": 24, "Process Group Name": "ep", "Group size": 2,
                 "Process Group Ranks": ranks, "In split size": sent, "Out split size": received})
          for at, ranks, sent, received in (
              (0, "[4, 5]", "[1, 3]", "[2, 4]"), (100, "[4, 5]", "[4, 0]", "[6, 0]"), (200, "[4, 5]", "[]", "[]"),
              (300, "[4, 5, ..., 99]", "[1, 1, ..., 1]", "[1, 1, ..., 1]"))),
    ], [
        (0, 4, "ep", 2, 80, 128),
        (0, 5, "ep", 2, 48, 64),
    ]),
    # Loaders with and without worker processes; a fetch belongs to the step in which it begins.
    "dataloader": ([
        step(1, 0, 100), loader(10, 20), step(2, 100, 100), loader(90, 30, "_MultiProcessingDataLoaderIter", tid=2),
        x("enumerate(DataPipe)#Batcher", 150, 5), x("enumerate(DataLoader)#Dataset.length", 160, 5),
    ], [
        (1, 0, 0, 1, 'enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__', False, 10_000, 20_000,
         30_000),
        (3, 0, 1, 1, 'enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__', True, 90_000, 30_000,
         120_000),
        (4, 0, 0, 2, 'enumerate(DataPipe)#Batcher', False, 150_000, 5000, 155_000),
    ]),
    # An optimizer step counts the ops and launches inside it.
    "optimizer_steps": ([
        x("Optimizer.step#AdamW.step", 0, 100, "user_annotation"), x("aten::add_", 10, 40), x("aten::mul_", 20, 10),
        *launch(1, 22, 5, 150, 10), x("aten::mul_", 120, 10),
        x("Optimizer.zero_grad#AdamW.zero_grad", 200, 10, "user_annotation"),
    ], [
        (0, 0, 1, 'AdamW', 0, 100_000, 100_000, 2, 1, None, None),
    ]),
    "memory": ([
        instant("[memory]", 5, **{"Device Type": 1, "Device Id": 0, "Addr": 18446744073709551615, "Bytes": 512,
                "Total Allocated": 1024, "Total Reserved": 2048}),
        instant("[memory]", 6, **{"Device Type": 0, "Device Id": -1, "Addr": 5, "Bytes": -64}), instant("other", 7),
    ], [
        (0, 0, 0, 5000, 1, 1, 0, 18_446_744_073_709_551_615, 512, 1024, 2048),
        (1, 0, 0, 6000, 1, 0, -1, 5, -64, None, None),
    ]),
    # All phases of a compilation form one row.
    "compilations": ([
        step(1, 0, 10_000), x("dynamo", 100, 500), x("entire_frame_compile", 150, 300), step(2, 10_000, 10_000),
        x("_compile.compile_inner (dynamo_timed)", 12_000, 1000),
    ], [
        (1, 0, 1, None, 'unknown', 'torch.compile', 100_000, 500_000, 600_000),
        (4, 0, 2, None, 'unknown', 'torch.compile', 12_000_000, 1_000_000, 13_000_000),
    ]),
    # Begins and ends beyond the edges of the recording, and events that cannot become slices.
    "input_issues": ([
        begin("pair", 20), end(25, "pair"), end(30, "other"), begin("open", 40), x("backwards", 50, -5),
        {**HOST, "ph": "X", "name": "endless", "ts": 1}, {**HOST, "ph": "X", "name": "timeless", "dur": 1},
        kernel("impossible", 60, -5),
    ], [
        ('PATH', 'events without times', 3, None, None,
         '3 events with no start time or an invalid duration were left out'),
        ('PATH', 'impossible device events', 1, None, None,
         '1 device event of impossible length was set aside (the first: impossible at ts 60.000); record again'),
        ('PATH', 'unmatched begins', 1, None, None,
         '1 slice without an end is assumed to end with the slice around it'),
        ('PATH', 'unmatched ends', 1, None, None,
         '1 slice that began before the recording was left out'),
    ]),
    "inputs": ([
        x("a", 0, 1),
    ], [
        ('PATH', 'trace', 0, 85, 1, 'ok'),
    ]),
    # All metrics of this trace.
    "summary": (BUSY, [
        ('collective_time_ms', None, 'ms', None, None),
        ('compilations', 0.0, 'count', None, None),
        ('compile_ratio', 0.0, 'ratio', 0.0, 1.0),
        ('dataloader_ratio', 0.3, 'ratio', 0.3, 1.0),
        ('device_busy_ratio', 0.24, 'ratio', 0.24, 1.0),
        ('device_host_overlap_ratio', 0.041666666666666664, 'ratio', 0.01, 0.24),
        ('device_idle_ratio', 0.76, 'ratio', 0.76, 1.0),
        ('device_unknown_ratio', 0.0, 'ratio', 0.0, 1.0),
        ('kernel_busy_ratio', 0.24, 'ratio', 0.24, 1.0),
        ('kernel_time_ms', 0.24, 'ms', None, None),
        ('passes_time_ms', None, 'ms', None, None),
        ('peak_memory_bytes', None, 'bytes', None, None),
        ('step_time_ms', 1.0, 'ms', None, None),
        ('steps', 1.0, 'count', None, None),
        ('syncs_per_step', 0.0, 'count', None, None),
        ('window_ms', 1.0, 'ms', None, None),
    ]),
}
# fmt: on


@pytest.mark.parametrize("table", CASES)
def test_table(table: str, rows: Rows) -> None:
    events, expected = CASES[table]
    found = rows(table, events)
    shown = [
        tuple("PATH" if key == "path" else value for key, value in row.items()) for row in sorted(found, key=order)
    ]
    assert shown == expected
    assert all(list(row) == [column.name for column in catalog()[table].columns] for row in found)


def order(row: dict[str, object]) -> tuple[object, ...]:
    return (
        row.get("rank") or 0,
        row.get("ts") or 0,
        row.get("id") or 0,
        str(row.get("metric") or row.get("name")),
        str(row.get("kind") or row.get("role")),
    )


def test_json_arrows_in_sql_are_in_parentheses() -> None:
    # Before DuckDB 2.0 (Python 3.10 has no newer release), a comparison binds more tightly than an arrow.
    loose = re.compile(r"->>?\s*'[^']*'\s*(?:=|<|>|!|\+|-|\*|IS\b|IN\b|LIKE\b|BETWEEN\b|::)")
    files = [*(PACKAGE / "tables").rglob("*.sql"), *(PACKAGE / "store").glob("*.py"), *PACK.rglob("*.toml")]

    assert len(files) > 100
    assert {file.name: found for file in files if (found := loose.findall(file.read_text(encoding="utf-8")))} == {}


def test_a_comparison_of_tensors_is_one_wait(rows: Rows) -> None:
    """aten::equal reads its result by calling aten::item."""
    found = rows("syncs", [
        x("aten::equal", 0, 100), x("aten::item", 20, 70), x("aten::_local_scalar_dense", 21, 68),
        runtime("cudaMemcpyAsync", 22, 3, 1), memcpy("Memcpy DtoH", 40, 9, 1), runtime("cudaStreamSynchronize", 30, 50),
    ])  # fmt: skip
    assert [(row["kind"], row["name"]) for row in found] == [("scalar_read", "aten::equal")]


def test_logs_do_not_count_compilations_in_the_window_of_a_trace(tmp_path: Path) -> None:
    """Lines of a log have no time or step, so the report shows their numbers only if there is no trace."""
    log, trace = tmp_path / "run.log", tmp_path / "run.json"
    log.write_text("adding new recipe to cache :: r1\nadding new recipe to cache :: r2\n")
    trace.write_bytes(document([step(1, 0, 100), x("aten::mm", 10, 5)]))
    for traces, expected in (([], [2]), ([str(trace)], [0])):
        with TraceStore() as store:
            for path in traces:
                store.add_trace(path)
            store.add_reading(read_text(str(log)))
            found = [row["value"] for row in store.rows("summary") if row["metric"] == "compilations"]
            assert found == expected


def test_an_annotation_that_is_written_twice_is_one_step(rows: Rows) -> None:
    twice = [{**step(number, 100 * number, 100), **lane} for number in (0, 1) for lane in ({}, {"tid": 2})]
    found = rows("steps", [*twice, step(1, 100, 100, "cpu_op"), x("aten::mm", 10, 5), x("aten::mm", 110, 5)])
    assert [(row["step"], row["dur"], row["cpu_op"]) for row in found] == [(0, 100_000, 5000), (1, 100_000, 5000)]
