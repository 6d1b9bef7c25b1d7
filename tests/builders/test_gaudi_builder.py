"""The builder's output matches that of the real writers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import traps
from builders.fallback_logs import table_f1, table_f2, table_f3, table_f4
from builders.gaudi import GaudiTrace
from builders.gaudi_encode import event_line
from builders.intervals import Interval, overlap_ns, union_ns
from builders.metrics_files import Snapshot, json_file, text_file

GENERATION_B = """\
{"args":{"name":"python3"},"name":"process_name","ph":"M","pid":14734,"tid":0,"ts":1249105.633}
{"args":{"labels":"CPU"},"name":"process_labels","ph":"M","pid":14734,"tid":0,"ts":1249105.633}
{"args":{"sort_index":14734},"name":"process_sort_index","ph":"M","pid":14734,"tid":0,"ts":1249105.633}
{"args":{"name":"thread 14734 (python3)"},"name":"thread_name","ph":"M","pid":14734,\
"tid":14734,"ts":1249105.633}
{"args":{"sort_index":14734},"name":"thread_sort_index","ph":"M","pid":14734,"tid":14734,"ts":1249105.633}
{"args":{"Ev Idx":0,"External id":1,"Record function id":0},"cat":"cpu_op","dur":470.0,"name":"aten::item",\
"ph":"X","pid":14734,"tid":14734,"ts":1250190.0}
{"args":{"Op count":0},"cat":"Trace","dur":1554.367,"name":"PyTorch Profiler (0)","ph":"X","pid":"Spans",\
"tid":"PyTorch Profiler","ts":1249105.633}
{"args":{"sort_index":536870912},"name":"process_sort_index","ph":"M","pid":"Spans","tid":0,"ts":1249105.633}
{"name":"Iteration Start: PyTorch Profiler","ph":"i","pid":"Traces","s":"g","tid":"Trace PyTorch Profiler",\
"ts":1249105.633}
{"name":"Record Window End","ph":"i","pid":"","s":"g","tid":"","ts":1250660.0}
{"args":{"name":"/device:HPU:0"},"name":"process_name","ph":"M","pid":0,"tid":0,"ts":0.0}
{"args":{"labels":"/device:HPU:0"},"name":"process_labels","ph":"M","pid":0,"tid":0,"ts":0.0}
{"args":{"sort_index":16777216},"name":"process_sort_index","ph":"M","pid":0,"tid":0,"ts":0.0}
{"args":{"name":"Bridge Logs"},"name":"process_name","ph":"M","pid":34734,"tid":0,"ts":0.0}
{"args":{"labels":"Bridge Logs"},"name":"process_labels","ph":"M","pid":34734,"tid":0,"ts":0.0}
{"args":{"sort_index":34734},"name":"process_sort_index","ph":"M","pid":34734,"tid":0,"ts":0.0}
{"args":{"name":"MME 0"},"name":"thread_name","ph":"M","pid":0,"tid":6003,"ts":0.0}
{"args":{"sort_index":-1},"name":"thread_sort_index","ph":"M","pid":0,"tid":6003,"ts":0.0}
{"cat":"Runtime","name":"SyncTensorsGraphInternal","ph":"B","pid":34734,"tid":14734,"ts":1249105.633}
{"cat":"Runtime","name":"SyncTensorsGraphInternal","ph":"E","pid":34734,"tid":14734,"ts":1249880.201}
{"args":{"dataType":"bf16","device":0,"eventHandle":"0x0","recipeId":7,\
"recipeName":".graph_dumps/HabanaFusedOpLazy_6","streamHandle":"0x7f30c4001b20"},"cat":"Kernel","dur":118.906,\
"name":"GEMM","ph":"X","pid":0,"tid":6003,"ts":1250012.4}"""

GENERATION_C_WORK = """\
  {
    "ph": "X", "cat": "hpu_op", "name": "SyncTensorsGraphInternal", "pid": 34734, "tid": 14734,
    "ts": 1249105.633, "dur": 774.568,
    "args": {
      "External id": 1
    }
  },
  {
    "ph": "X", "cat": "kernel", "name": "GEMM", "pid": 0, "tid": 6003,
    "ts": 1250012.400, "dur": 118.906,
    "args": {
      "recipeId": 7,"recipeName": ".graph_dumps/HabanaFusedOpLazy_6","streamHandle": "0x7f30c4001b20",\
"eventHandle": "0x0","dataType": "bf16","device": 0
    }
  },
"""


def three_events(generation: str) -> GaudiTrace:
    trace = GaudiTrace(generation, "GAUDI2", 14734)
    trace.bridge("SyncTensorsGraphInternal", 1249105.633, 774.568)
    trace.mme("GEMM", at=1250012.4, dur=118.906, recipe=7, dtype="bf16")
    trace.host("aten::item", at=1250190, dur=470)
    return trace


def test_generation_b_is_one_line_with_sorted_keys_and_hpu_events_last():
    events = ",".join(GENERATION_B.splitlines())
    assert three_events("B").to_bytes().decode() == (
        '{"baseTimeNanoseconds":1727743122000000000,'
        '"deviceProperties":[{"name":"GAUDI2","totalGlobalMem":101200691200}],"displayTimeUnit":"ms",'
        f'"schemaVersion":1,"traceEvents":[{events}],"traceName":"hpu_14734.pt.trace.json","with_stack":0}}'
    )


def test_generation_c_writes_pairs_as_slices_in_kineto_layout():
    text = three_events("C").to_bytes().decode()
    assert GENERATION_C_WORK in text
    names = [(event["ph"], event["name"]) for event in json.loads(text)["traceEvents"] if event["ph"] != "M"]
    assert names == [
        ("X", "aten::item"),
        ("X", "SyncTensorsGraphInternal"),
        ("X", "GEMM"),
        ("X", "PyTorch Profiler (0)"),
        ("i", "Iteration Start: PyTorch Profiler"),
        ("i", "Record Window End"),
    ]


@pytest.mark.parametrize(
    ("generation", "categories"),
    [
        (
            "A",
            {"GEMM": "hpu_op", "relu": "kernel", "memcpy": "hpu_op", "memset": "hpu_op", "Dma_1": "hpu_op"},
        ),
        (
            "B",
            {"GEMM": "Kernel", "relu": "Kernel", "memcpy": "Memcpy", "memset": "Memset", "Dma_1": "Runtime"},
        ),
        (
            "C",
            {
                "GEMM": "kernel",
                "relu": "kernel",
                "memcpy": "gpu_memcpy",
                "memset": "gpu_memset",
                "Dma_1": "hpu_op",
            },
        ),
    ],
)
def test_device_categories(generation, categories):
    trace = GaudiTrace(generation)
    trace.mme("GEMM", 10, 1)
    trace.tpc("relu", 10, 1)
    for name in ("memcpy", "memset", "Dma_1"):
        trace.dma(name, 10, 1)
    assert {event.name: event.cat for event in trace.events} == categories


def test_other_event_kinds_of_generation_b():
    trace = GaudiTrace("B")
    launch = trace.annotation("enqueueWithExternalEvents recipeHandle 0x5b7 seqId 31", 1249921.7, 63.21, recipe=7)
    trace.synapse("synEventSynchronize", 1250201.77, 442.25, args={"eventHandle": "0x7f30c40022a0"})
    trace.memory(1249300.5, 4194304, 8388608)
    trace.flow(0, launch, trace.device_op("MME", "GEMM", 1250012.4, 118.906))
    assert [event_line(event) for event in trace.events if event.part != "device"] == [
        '{"args":{"dataType":"","eventHandle":"0x0","recipeId":7,"recipeName":".graph_dumps/HabanaFusedOpLazy_6",'
        '"streamHandle":"0x7f30c4001b20"},"cat":"Runtime","dur":63.21,'
        '"name":"enqueueWithExternalEvents recipeHandle 0x5b7 seqId 31","ph":"X","pid":22101,'
        '"tid":4294966299,"ts":1249921.7}',
        '{"args":{"eventHandle":"0x7f30c40022a0"},"cat":"Runtime","name":"synEventSynchronize","ph":"B",'
        '"pid":24734,"tid":14734,"ts":1250201.77}',
        '{"args":{"status":"0"},"cat":"Runtime","name":"synEventSynchronize","ph":"E","pid":24734,"tid":14734,'
        '"ts":1250644.02}',
        '{"args":{"Addr":1152957300000,"Bytes":4194304,"Device Id":0,"Device Type":1,'
        '"Profiler Event Index":1,'
        '"Total Allocated":8388608,"Total Reserved":96636764160},"cat":"cpu_instant_event","name":"[memory]",'
        '"ph":"i","pid":44734,"s":"t","tid":14734,"ts":1249300.5}',
        '{"bp":"e","cat":"enqueue","id":0,"name":"GEMM","ph":"s","pid":22101,"tid":4294966299,"ts":1249921.7}',
        '{"bp":"e","cat":"enqueue","id":0,"name":"GEMM","ph":"f","pid":0,"tid":6003,"ts":1250012.4}',
    ]


def test_generation_c2_has_its_own_category_and_small_synapse_tids():
    trace = GaudiTrace("C2")
    event = trace.annotation("compileGraph", 10, 5)
    assert (event.cat, event.tid) == ("privateuse1_runtime", 997)


def test_lane_names_of_gaudi_3():
    trace = GaudiTrace("C", "GAUDI3")
    trace.tpc("relu", 1, 1, lanes=[5, 8])
    trace.mme("GEMM", 1, 1)
    events = json.loads(trace.to_bytes())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name" and event["pid"] == 0]
    assert names == ["[HD0] MME", "[HD0] TPC 5", "[HD1] TPC 0"]


def test_fallback_tables():
    counts = {"aten::digamma": 1, "aten::nonzero": 48}
    header = "Frequency of op and op name that were executed on CPU:"
    assert table_f1(counts) == f"{header}\n48       aten::nonzero\n1       aten::digamma\n"
    assert table_f2(counts).splitlines()[0] == (
        f"{header} (Set env var PT_HABANA_LOG_TYPE_MASK=0 to disable this print)"
    )
    assert table_f3(counts).splitlines()[1] == "(Set env var PT_HPU_LOG_TYPE_MASK=0 to disable this print)"
    assert table_f4(counts) == (
        "[20:57:12.104233][PT_FALLBACK        ][critical][tid:398E] CPU Fallback stats:\n"
        "48\taten::nonzero\n1\taten::digamma\n"
    )


def test_metrics_files():
    snapshot = Snapshot("process_exit", "2024-10-18T20:58:10.000431", (("r_0", 3),), {"aten::digamma": 2})
    head = '"triggered_by": "process_exit", "generated_on": "2024-10-18T20:58:10.000431", "statistics": '
    assert json_file([snapshot], closed=False) == (
        f'[{{"metric_name": "graph_compilation", {head}'
        '{"TotalNumber": 1, "TotalTime": 3, "AvgTime": 3.0, "recipe": [["r_0", 3]]}},\n'
        f'{{"metric_name": "cpu_fallback", {head}'
        '{"TotalNumber": 2, "FallbackOps": {"aten::digamma": 2}}},\n'
        f'{{"metric_name": "memory_defragmentation", {head}'
        '{"TotalNumber": 0, "TotalSuccessful": 0, "AvgTime": 0, "MaxTime": 0}}'
    )
    assert text_file([snapshot], enum_names=True).split("\n\n")[1] == (
        "Metric name: cpu_fallback\nTriggered by: MetricDumpTrigger.process_exit\n"
        "Generated on: 2024-10-18 20:58:10.000431\nStatistics:\n"
        "\tTotalNumber: 2\n\tFallbackOps: {'aten::digamma': 2}"
    )


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60))), st.randoms())
def test_union_counts_every_covered_nanosecond_once(pairs, random):
    intervals: list[Interval] = [(min(pair), max(pair)) for pair in pairs]
    covered = {instant for start, end in intervals for instant in range(start, end)}
    shuffled = random.sample(intervals, len(intervals))
    assert union_ns(shuffled) == union_ns(intervals) == len(covered)
    assert overlap_ns(intervals, shuffled) == len(covered)


@pytest.mark.parametrize("trap", traps.TRAPS, ids=lambda trap: trap.__name__)
def test_traps_are_deterministic_and_damaged_only_where_they_say_so(trap):
    data, facts = trap()
    assert trap() == (data, facts)
    if trap is traps.bare_array:
        data = data.rstrip(b",\n") + b"]"
    if facts.bad_offset is None:
        assert json.loads(data)
        return
    with pytest.raises(json.JSONDecodeError) as failure:
        json.loads(data)
    assert failure.value.pos == facts.bad_offset


def test_monitor_points_are_not_work():
    _, facts = traps.monitor_duplicates()
    assert (facts.mme_union_ns, facts.tpc_union_ns, facts.busy_ns) == (200_000, 50_000, 250_000)
