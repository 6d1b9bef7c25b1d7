"""One small trace for each trap in the Gaudi formats, with the facts that an analyser must find in it.

Every function returns ``(bytes of the file, Facts)``. Steps start at 1000 us, and each is 1000 us long.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from builders.gaudi import BASE_NS, GaudiTrace
from builders.trap_facts import Facts, Trap, facts_of


def device_work_that_looks_like_calls(generation: str = "B") -> Trap:
    """DMA and NIC work has the same category as host calls; only the plane distinguishes them."""
    trace = _one_step(generation)
    trace.bridge("SyncTensorsGraphInternal", 1010, 90)
    trace.annotation("enqueueWithExternalEvents recipeHandle 0x5b7 seqId 1", 1110, 60, recipe=7)
    trace.dma("DmaTranspose", 1180, 20, recipe=7)
    trace.dma("Dma_17", 1200, 40, lanes=2, recipe=7)
    trace.pdma("pdma_tx_commands apiId=31 chunk=0", 1150, 10)
    trace.nic("STM_SEND", 1260, 100, lanes=3)
    trace.mme("GEMM", 1300, 50, recipe=7, dtype="bf16")
    return trace.to_bytes(), facts_of(trace, host_ns={"SyncTensorsGraphInternal": 90_000})


def many_events_per_kernel() -> Trap:
    """A TPC kernel on 24 lanes and an MME operation on four; both have an event on each lane."""
    trace = _one_step()
    trace.mme("GEMM", 1100, 200, lanes=4, recipe=3, dtype="bf16")
    trace.tpc("fused_kernel_0x1_bf16", 1250, 150, lanes=24, recipe=3, dtype="bf16")
    return trace.to_bytes(), facts_of(trace)


def monitor_duplicates() -> Trap:
    """With full hardware tracing, other monitor points add records that are longer than the work itself."""
    trace = _one_step()
    trace.monitored("MME", "GEMM", 1100, 200, recipe=3, dtype="bf16")
    for lane in range(2):
        trace.monitored("TPC", "relu_fwd_bf16", 1400, 50, lane=lane, recipe=3, dtype="bf16")
    return trace.to_bytes(), facts_of(trace)


def dead_tpc_lane() -> Trap:
    """The metadata lists 25 TPC lanes, but only 24 have work. The spare lane is absent rather than idle."""
    trace = _one_step()
    trace.lane("TPC", 24)
    trace.tpc("relu_fwd_bf16", 1100, 300, lanes=24, recipe=2, dtype="bf16")
    return trace.to_bytes(), facts_of(trace)


def unnamed_lane() -> Trap:
    """A lane without metadata, which only its tid base marks as a TPC."""
    trace = _one_step()
    trace.device_op("TPC", "relu_fwd_bf16", 1100, 30, lane=5, recipe=2, named=False)
    trace.mme("GEMM", 1200, 30, recipe=2, dtype="bf16")
    return trace.to_bytes(), facts_of(trace)


def unbalanced_edges() -> Trap:
    """Two calls cut off by the edges of the window: an end without a begin, and a begin without an end."""
    trace = _one_step()
    trace.bridge("LaunchSyncTensorsGraph", 900, 110, half="E")
    trace.bridge("SyncTensorsGraphInternal", 1100, 80)
    trace.mme("GEMM", 1200, 100, recipe=1, dtype="bf16")
    trace.synapse("synEventSynchronize", 1950, 400, half="B")
    facts = facts_of(trace, host_ns={"SyncTensorsGraphInternal": 80_000}, dropped_events=2)
    return trace.to_bytes(), facts


def nested_calls_with_a_skipped_end() -> Trap:
    """An exception skipped the end of an inner call. The outer call must still be paired."""
    trace = _one_step()
    begin, end = 1100, 1300
    trace.bridge("LaunchSyncTensorsGraph", begin, end - begin, half="B")
    trace.bridge("CompileSynapse", 1150, 50, half="B")
    trace.bridge("LaunchSyncTensorsGraph", begin, end - begin, half="E")
    trace.mme("GEMM", 1400, 100, recipe=1, dtype="bf16")
    facts = facts_of(trace, host_ns={"LaunchSyncTensorsGraph": 200_000}, dropped_events=1)
    return trace.to_bytes(), facts


def no_device_plane() -> Trap:
    """Host activity of a Gaudi run without device lanes. All engine figures are unknown rather than 0."""
    trace = _one_step()
    trace.host("aten::add", 1050, 10)
    trace.bridge("SyncTensorsGraphInternal", 1100, 300)
    return trace.to_bytes(), facts_of(trace, host_ns={"SyncTensorsGraphInternal": 300_000})


def device_without_host() -> Trap:
    """Device lanes without steps, bridge or Synapse lanes. The whole trace is the window."""
    trace = GaudiTrace("B")
    trace.mme("GEMM", 1000, 400, recipe=1, dtype="float32")
    trace.tpc("relu_fwd_f32", 1300, 200, recipe=1, dtype="float32")
    facts = Facts(0, 500_000, 500_000, 400_000, 200_000, 0, 0, 100_000, {"MME": 1, "TPC": 1})
    return trace.to_bytes(), facts


def clock_offset() -> Trap:
    """The device clock runs three microseconds ahead, so work seems to start before its launch."""
    trace = _one_step()
    trace.annotation("enqueueWithExternalEvents recipeHandle 0x5b4 seqId 1", 1100, 40, recipe=4)
    trace.mme("GEMM", 1097, 100, recipe=4, dtype="bf16")
    return trace.to_bytes(), facts_of(trace)


def text_identifiers() -> Trap:
    """Process and thread ids are JSON strings; those of the closing record are empty."""
    trace = _one_step()
    trace.host("aten::add", 1050, 10, pid="14734", tid="14734")
    trace.host("worker", 1100, 20, pid="Spans", tid="loader", cat="Trace")
    trace.mme("GEMM", 1200, 100, recipe=1, dtype="bf16")
    return trace.to_bytes(), facts_of(trace)


def first_step_is_compilation() -> Trap:
    """The first step only compiles; the second does the work."""
    trace = GaudiTrace("B")
    trace.step(0, 1000, 1000)
    trace.bridge("LaunchSyncTensorsGraph", 1050, 900)
    trace.annotation("compileGraph", 1060, 880, recipe=1)
    trace.step(1, 2000, 1000)
    trace.mme("GEMM", 2100, 700, recipe=1, dtype="bf16")
    facts = facts_of(trace, compilations=1, host_ns={"LaunchSyncTensorsGraph": 900_000})
    return trace.to_bytes(), facts


def late_recipe_name() -> Trap:
    """No compile event, but a recipe name that first appears in the third step: a late compilation, or a load from
    disk.
    """
    trace = GaudiTrace("B")
    for number, recipe in enumerate((3, 3, 9)):
        at = 1000.0 * (number + 1)
        trace.step(number, at, 1000)
        trace.mme("GEMM", at + 200, 300, recipe=recipe, dtype="bf16")
    return trace.to_bytes(), facts_of(trace, compilations=1)


def graph_replay() -> Trap:
    """``ExecuteCachedGraph`` replays a captured graph, which is neither a cache hit nor a compilation."""
    trace = _one_step()
    trace.bridge("ExecuteCachedGraph", 1050, 100)
    trace.mme("GEMM", 1150, 700, recipe=1, dtype="bf16")
    facts = facts_of(trace, replays=1, host_ns={"ExecuteCachedGraph": 100_000})
    return trace.to_bytes(), facts


def cpu_fallback() -> Trap:
    """One fallback: a copy to the host, the op on the CPU with the name of the op around it, and a copy back."""
    trace = _one_step()
    trace.host("aten::digamma", 1100, 200)
    trace.bridge("cpu_fallback", 1102, 196)
    trace.bridge("copy_hpu_lazy_D2H", 1110, 60)
    trace.synapse("synMemCopyAsync", 1115, 5, args={"direction": "1"})
    trace.host("aten::digamma", 1180, 30)
    trace.bridge("copy_hpu_lazy_H2D", 1220, 60)
    trace.synapse("synMemCopyAsync", 1225, 5, args={"direction": "0"})
    trace.mme("GEMM", 1400, 100, recipe=1, dtype="bf16")
    facts = facts_of(trace, fallbacks={"aten::digamma": 1}, host_ns={"cpu_fallback": 196_000})
    return trace.to_bytes(), facts


def unescaped_strings() -> Trap:
    """A generation C file in which one name contains bare quotes.

    The damaged record covers the same time as an intact record on another lane, so busy time does not depend on whether
    a reader repairs or drops it.
    """
    trace = GaudiTrace("C", unescaped=True)
    trace.step(4, 1000, 1000)
    trace.mme("GEMM", 1100, 300, recipe=1, dtype="bf16")
    trace.device_op("MME", 'node "gemm" 12', 1100, 300, lane=1, recipe=1, dtype="bf16")
    trace.tpc("relu_fwd_bf16", 1500, 100, recipe=1, dtype="bf16")
    data = trace.to_bytes()
    # The quote inside the name ends it too early; the JSON breaks after that.
    offset = data.index(b'"node "gemm') + len(b'"node "')
    return data, facts_of(trace, dropped_events=1, bad_offset=offset, lanes={"MME": 1, "TPC": 1})


def zero_length_records() -> Trap:
    """In generation C, flow edges come with host records of zero length, which do not count as work."""
    trace = _one_step("C")
    source = trace.annotation("enqueueWithExternalEventsExt", 1050, 0, recipe=1)
    target = trace.device_op("MME", "GEMM", 1100, 300, recipe=1, dtype="bf16")
    trace.flow(1, source, target)
    return trace.to_bytes(), facts_of(trace)


def shifted_base(rank: int) -> Trap:
    """Rank 1 has a different base time, yet both steps begin at the same wall-clock time."""
    offset_us = 250 * rank
    trace = GaudiTrace("B", rank=rank, world_size=2, base_ns=BASE_NS + offset_us * 1000)
    trace.step(4, 1000 - offset_us, 1000)
    trace.mme("GEMM", 1200 - offset_us, 100, recipe=1, dtype="bf16")
    return trace.to_bytes(), facts_of(trace)


def bare_array() -> Trap:
    """The events alone, as an array without its closing bracket."""
    data, facts = many_events_per_kernel()
    events = json.loads(data)["traceEvents"]
    text = "[\n" + "".join(json.dumps(event) + ",\n" for event in events)
    return text.encode(), facts


def _one_step(generation: str = "B") -> GaudiTrace:
    trace = GaudiTrace(generation)
    trace.step(4, 1000, 1000)
    return trace


TRAPS: tuple[Callable[[], Trap], ...] = (
    device_work_that_looks_like_calls,
    many_events_per_kernel,
    monitor_duplicates,
    dead_tpc_lane,
    unnamed_lane,
    unbalanced_edges,
    nested_calls_with_a_skipped_end,
    no_device_plane,
    device_without_host,
    clock_offset,
    text_identifiers,
    first_step_is_compilation,
    late_recipe_name,
    graph_replay,
    cpu_fallback,
    unescaped_strings,
    zero_length_records,
    bare_array,
)
"""Every trap that needs no argument."""
