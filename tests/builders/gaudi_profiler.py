"""One convolution on a Gaudi 3, in each format of the profiler, modelled on the only public recording.

In the real recording, 8 MME lanes each run ``g_1_conv_0`` once and 48 TPC lanes pack its weights. The starts and
durations below are those of the recorded work, in ns; starts are relative to the earliest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

ORIGIN_NS = 554_804_519_937
RECIPE, RECIPE_NAME, HANDLE = 61055, "debug.g_1", "0x55ce83ed6490"
CONVOLUTION, PACKING = "g_1_conv_0", "g_1_conv_0_tpc_packing"
_PACKING_OP = "conv_weight_packing_fwd_f32"
# Monitor points at the start and the end of an engine's work.
_POINTS = {"MME": ("SB0_START_EVT", "WB0_END"), "TPC": ("TPC_SPU_START", "TPC_SPU_START_TO_SPU_HALT")}
# Half-die core, lane of the engine in that core, start, duration.
_MME = (
    (0, 0, 7349, 17932),
    (7, 0, 7719, 18444),
    (2, 0, 7739, 17824),
    (5, 0, 8039, 18044),
    (1, 0, 8079, 17742),
    (3, 0, 8259, 17744),
    (6, 0, 8339, 17364),
    (4, 0, 8419, 16884),
)
_TPC = (
    (0, 5, 0, 158),
    (0, 2, 281, 158),
    (0, 1, 581, 158),
    (0, 4, 600, 158),
    (0, 3, 700, 158),
    (0, 0, 860, 238),
    (7, 2, 2439, 160),
    (7, 1, 2579, 160),
    (3, 5, 2900, 158),
    (3, 2, 3000, 158),
    (2, 2, 3040, 158),
    (3, 1, 3040, 158),
    (2, 5, 3160, 158),
    (7, 0, 3259, 160),
    (7, 3, 3379, 160),
    (7, 5, 3399, 160),
    (3, 4, 3460, 158),
    (2, 1, 3460, 158),
    (2, 0, 3460, 238),
    (2, 4, 3480, 158),
    (3, 0, 3538, 160),
    (7, 4, 3639, 160),
    (5, 5, 3659, 240),
    (2, 3, 3680, 158),
    (5, 2, 3779, 160),
    (6, 1, 3799, 160),
    (6, 2, 3879, 160),
    (3, 3, 3880, 158),
    (5, 1, 3919, 160),
    (5, 4, 3919, 160),
    (6, 0, 3999, 160),
    (6, 5, 4039, 160),
    (6, 3, 4039, 160),
    (1, 5, 4060, 158),
    (6, 4, 4219, 160),
    (5, 3, 4239, 160),
    (4, 5, 4381, 158),
    (1, 2, 4500, 158),
    (5, 0, 4519, 160),
    (4, 2, 4621, 158),
    (1, 4, 4800, 158),
    (1, 3, 4900, 158),
    (4, 4, 4941, 158),
    (4, 1, 4941, 158),
    (1, 1, 5260, 78),
    (4, 3, 5361, 158),
    (4, 0, 5381, 158),
    (1, 0, 5780, 158),
)
# Counter samples: lane, counter, time, value as 64 bits.
PARTIAL_WRITES = "Outgoing HBM partial writes"
BACK_PRESSURE = "[8] Back pressure from memory to TPC write queue on store tensors"
_SAMPLES = (
    ("[D2] Cache Slice", PARTIAL_WRITES, 7_603, 2**64 - 201),
    ("[D2] Cache Slice", PARTIAL_WRITES, 28_083, 143),
    ("[HD2] TPC 1", BACK_PRESSURE, 5_140, 2),
)


@dataclass(frozen=True)
class Work:
    """Work on one lane, in ns of the profiler's clock."""

    engine: str
    lane: str
    node: str
    op: str
    ts: int
    dur: int


def works() -> list[Work]:
    mme = [Work("MME", f"[HD{core}] MME", CONVOLUTION, "Convolution", ORIGIN_NS + at, dur) for core, _, at, dur in _MME]
    tpc = [Work("TPC", f"[HD{core}] TPC {n}", PACKING, _PACKING_OP, ORIGIN_NS + at, dur) for core, n, at, dur in _TPC]
    return sorted((*mme, *tpc), key=lambda work: work.ts)


_HEADER = (
    "Name,Trace Source,Engine,Event type,Timestamp[usec],recipeHandle,streamHandle,Recipe ID,Recipe name,Context ID,"
    "Device,Operation,Data Type,HW Event port,HW Event description,SPMU value,BMON min,BMON avg,BMON max,BMON matches,"
    "BMON configured cycles,NIC Packets amount,Misc"
)


def as_csv() -> str:
    """Return the recording as ``hl-prof-config --invoc csv`` writes it."""
    rows = []
    for work in works():
        begin, end = _POINTS[work.engine]
        for kind, at, point in (("BEGIN", work.ts, begin), ("END", work.ts + work.dur, end)):
            rows.append((at, f"{work.node},HW,{work.lane},{kind},{_us(at)},{HANDLE},0xd97f000000000003,{RECIPE},"
                             f"{RECIPE_NAME},0,accel0,{work.op},float32,1,{point},,,,,,,,"))  # fmt: skip
    for lane, counter, at, value in _SAMPLES:
        now = ORIGIN_NS + at
        rows.append((now, f"{counter},HW,{lane},COUNTER,{_us(now)},,,,,,accel0,,,,SPMU,{value},,,,,,,"))
    return "\n".join((_HEADER, *(row for _, row in sorted(rows, key=lambda row: row[0])), ""))


def as_native_json() -> str:
    """Return the recording as ``hl-prof-config --invoc json --merged json`` writes it, with a process for each engine
    and pairs of begin and end events.
    """
    pids = {"MME": 5023, "TPC": 5024, "Cache Slice": 5030}
    lanes: dict[tuple[str, str], int] = {}
    events: list[tuple[int, dict[str, Any]]] = []

    def place(engine: str, lane: str) -> dict[str, Any]:
        return {"pid": pids[engine], "tid": lanes.setdefault((engine, lane), len(lanes))}

    for work in works():
        begin, end = _POINTS[work.engine]
        shared = {
            "op": work.op, "Recipe name": RECIPE_NAME, "recipe id": str(RECIPE), "dtype": "float32", "Device": "accel0",
        }  # fmt: skip
        for phase, at, point in (("B", work.ts, begin), ("E", work.ts + work.dur, end)):
            args = {**shared, "HW event name": point}
            lane = place(work.engine, work.lane)
            events.append((at, {"ph": phase, "cat": "SP 1", "name": work.node, "ts": at / 1000, **lane, "args": args}))
    for lane, counter, at, value in _SAMPLES:
        now = ORIGIN_NS + at
        engine = "TPC" if "TPC" in lane else "Cache Slice"
        sample = {"ph": "C", "cat": "SPMU", "name": counter, "ts": now / 1000, "args": {counter: value}}
        events.append((now, {**sample, **place(engine, lane)}))
    events.sort(key=lambda event: event[0])
    return json.dumps({"traceEvents": [*_names(pids, lanes), *(event for _, event in events)]})


def as_kineto() -> str:
    """Return the recording as the bridge passes it to Kineto: one process, and complete events with the arguments of
    the end events.
    """
    lanes = {lane: number for number, lane in enumerate(dict.fromkeys(work.lane for work in works()))}
    device = {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "/device:HPU:0"}}
    tids = {lane: 1000 * (6 if "MME" in lane else 7) + number for lane, number in lanes.items()}
    named = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": tid, "args": {"name": lane}} for lane, tid in tids.items()
    ]
    events = [
        {
            "ph": "X", "cat": "Kernel", "name": work.op, "pid": 0, "ts": work.ts / 1000, "dur": work.dur / 1000,
            "tid": tids[work.lane],
            "args": {
                "EventName": work.node, "HW event name": _POINTS[work.engine][1], "dataType": "float32", "device": 0,
                "recipeId": RECIPE, "recipeName": RECIPE_NAME, "eventHandle": "0x0",
                "streamHandle": "0xd97f000000000003",
            },
        }
        for work in works()
    ]  # fmt: skip
    return json.dumps({"deviceProperties": [{"name": "GAUDI3"}], "traceEvents": [device, *named, *events]})


def _names(pids: dict[str, int], lanes: dict[tuple[str, str], int]) -> Iterator[dict[str, Any]]:
    for engine, pid in pids.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": f"*{engine} (accel0)"}}
    for (engine, lane), tid in lanes.items():
        yield {"ph": "M", "name": "thread_name", "pid": pids[engine], "tid": tid, "args": {"name": lane}}


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


# Engine, node, op, start and end after ORIGIN_NS, then the figures from Intel's analyzer: active, min, max and mean
# time (us), number of lanes.
_ANALYZED = (
    ("MME", CONVOLUTION, "Convolution", 7_349, 26_163, "18.814000", "16.884000", "18.444000", "17.747000", 8),
    ("TPC", PACKING, _PACKING_OP, 0, 2_739, "1.131000", "0.158000", "0.238000", "0.168000", 8),
    ("TPC", f"{PACKING} iter 2", _PACKING_OP, 2_900, 4_779, "1.878000", "0.158000", "0.240000", "0.164000", 32),
    ("TPC", f"{PACKING} iter 3", _PACKING_OP, 4_800, 5_938, "0.713000", "0.078000", "0.158000", "0.148000", 8),
)
_ANALYZED_HEADER = (
    "Unit,Unique node id,Node Name,Op Type,Start time of node,End time of node,Duration (us),Active (us),"
    "Min single engine (us),Max single engine (us),Avg single engine (us),Num activations,Parallel Engines,"
    "Input shapes,Output Datatype,Exposed tpc (us),Exposed mme (us),MME Compute Utilization (%),"
    "MME expected vs actual (%),MME Origin Node,MME Origin Expected (us),Bundle duration (us),Cost Model"
)


def as_analyzed_nodes() -> str:
    """Return the trace analyzer's ``*_analyzed_nodes.csv`` with the relevant columns, and two that the analyzer fails
    to compute.
    """
    rows = [_ANALYZED_HEADER]
    for unit, node, op, start, end, active, least, most, mean, lanes in _ANALYZED:
        exposed = f"nan,{active}" if unit == "MME" else f"{active},nan"
        times = ",".join(f"{_us(at)}000" for at in (ORIGIN_NS + start, ORIGIN_NS + end, end - start))
        rows.append(
            f"{unit},0,{node},{op},{times},{active},"
            f"{least},{most},{mean},{lanes},{lanes},[],,{exposed},nan,nan,,nan,0.000000,[Error]"
        )
    return "\n".join((*rows, ""))
