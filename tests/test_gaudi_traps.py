"""Checks every trap in the Gaudi trace formats against facts that are naive sums of intervals over the builder's
events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from builders import traps
from builders.gaudi import GaudiTrace
from builders.trap_facts import Trap

from perftool.engine.analysis import analysed, report_on
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.model.rule import Rule
from perftool.readers.discover import find_inputs
from perftool.store.trace_store import TraceStore

# On the first Gaudi, this argument counts recipes; it is unrelated to their ids.
GAUDI_1_LAUNCH = "enqueueWithExternalEvents seqId:{} recipeId:1"
GAUDI_2_LAUNCH = "enqueueWithExternalEvents recipeHandle 0x5b recipeSeqNum 1 seqId {} inFlight 0"
every_trap = pytest.mark.parametrize("trap", traps.TRAPS, ids=lambda trap: trap.__name__)
# The program's choices where the format leaves a choice: a repaired record counts as work on its lane, and a call
# without an end counts as a call.
_KEPT: dict[Callable[[], Trap], dict[str, Any]] = {
    traps.unescaped_strings: {"lanes": {"MME": 2, "TPC": 1}, "dropped_events": 0},
    traps.nested_calls_with_a_skipped_end: {"compilations": 1},
    # A first step that compiles does not belong to the steady phase.
    traps.first_step_is_compilation: {"window_ns": 1_000_000},
}
_UNIONS = {
    "mme_time_ms": "mme_union_ns",
    "tpc_time_ms": "tpc_union_ns",
    "dma_time_ms": "dma_union_ns",
    "mme_tpc_overlap_ms": "mme_tpc_overlap_ns",
}


def facts_for(trap: Callable[[], Trap]) -> Trap:
    data, facts = trap()
    return data, replace(facts, **_KEPT.get(trap, {}))


@contextmanager
def opened(folder: Path, *traces: bytes) -> Iterator[TraceStore]:
    """Yield a store over several ranks, each given as the bytes of its trace."""
    files = []
    for number, data in enumerate(traces):
        path = folder / f"trace{number}.pt.trace.json"
        path.write_bytes(data)
        files.append(str(path))
    with analysed(find_inputs(files)) as run:
        store = run.whole
        assert store.unreadable == []
        yield store


def nanoseconds(store: TraceStore, metric: str) -> int | None:
    found = [row["value"] for row in store.rows("summary") if row["metric"] == metric]
    return None if found in ([], [None]) else round(found[0] * 1_000_000)


def asked(store: TraceStore, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of ``sql``, which runs in this process, like the query of a shipped rule."""
    return store.timed(sql, {}, 60)[1]


def one(store: TraceStore, sql: str) -> Any:
    return asked(store, sql)[0][0]


def counts(store: TraceStore, sql: str) -> dict[str, int]:
    return dict(asked(store, sql))


def host_ns(store: TraceStore, names: list[str]) -> dict[str, int]:
    rows = asked(store, "SELECT name, sum(dur)::BIGINT FROM slices WHERE side = 'host' GROUP BY name")
    return {name: ns for name, ns in rows if name in names}


@dataclass(frozen=True)
class Seen:
    """What the tables contain for a trap, in the terms of Facts. ``damage`` counts all issues except repairs."""

    steps: int
    window_ns: int
    busy_ns: int | None
    unions_ns: Mapping[str, int | None]
    nic_ns: int | None
    lanes: Mapping[str, int]
    host_ns: Mapping[str, int]
    compilations: int
    replays: int
    fallbacks: Mapping[str, int]
    damage: int


def seen(trap: Callable[[], Trap], folder: Path) -> Seen:
    data, facts = trap()
    with opened(folder, data) as store:
        codes = Counter(finding.code for finding in report_on(store, pack()).findings)
        assert codes["TRC000"] == codes["TRC001"] == 0
        return Seen(
            steps=one(store, "SELECT count(*) FROM steps WHERE step IS NOT NULL"),
            window_ns=one(store, 'SELECT sum("end" - ts)::BIGINT FROM windows'),
            busy_ns=one(store, "SELECT sum(dur)::BIGINT FROM device_busy"),
            unions_ns={metric: nanoseconds(store, metric) for metric in _UNIONS},
            nic_ns=one(store, "SELECT sum(busy_ns)::BIGINT FROM engines WHERE engine = 'NIC'"),
            lanes=counts(store, "SELECT engine, lanes FROM engines"),
            host_ns=host_ns(store, list(facts.host_ns)),
            compilations=one(store, "SELECT count(*) FROM compilations"),
            replays=one(store, "SELECT count(*) FROM slices WHERE name = 'ExecuteCachedGraph'"),
            fallbacks=counts(store, "SELECT base, count FROM fallbacks"),
            damage=one(store, "SELECT coalesce(sum(count), 0)::INT FROM input_issues WHERE kind <> 'repaired events'"),
        )


@every_trap
def test_the_tables_match_the_facts_and_every_rule_runs(trap: Callable[[], Trap], tmp_path: Path) -> None:
    _, facts = facts_for(trap)
    found = seen(trap, tmp_path)

    assert (found.steps, found.window_ns) == (facts.steps, facts.window_ns)
    assert found.busy_ns == facts.busy_ns
    assert found.nic_ns == (facts.nic_union_ns or None)
    # An engine that never works has no lane, so its time is missing rather than zero.
    expected = {metric: getattr(facts, name) or None for metric, name in _UNIONS.items()}
    if facts.mme_union_ns and facts.tpc_union_ns:
        expected["mme_tpc_overlap_ms"] = expected["mme_tpc_overlap_ms"] or 0
    assert found.unions_ns == expected
    assert found.lanes == facts.lanes
    assert found.host_ns == facts.host_ns
    assert (found.compilations, found.replays) == (facts.compilations, facts.replays)
    assert found.fallbacks == facts.fallbacks
    assert found.damage == facts.dropped_events


@pytest.mark.parametrize("generation", ["A", "B", "C", "C2"])
def test_every_generation_distinguishes_device_work_from_calls(generation: str, tmp_path: Path) -> None:
    data, facts = traps.device_work_that_looks_like_calls(generation)
    with opened(tmp_path, data) as store:
        assert one(store, "SELECT sum(dur)::BIGINT FROM device_busy") == facts.busy_ns
        assert nanoseconds(store, "dma_time_ms") == facts.dma_union_ns
        assert one(store, "SELECT busy_ns FROM engines WHERE engine = 'NIC'") == facts.nic_union_ns
        assert host_ns(store, list(facts.host_ns)) == facts.host_ns


def test_a_repaired_record_is_reported_with_its_place(tmp_path: Path) -> None:
    data, facts = traps.unescaped_strings()
    with opened(tmp_path, data) as store:
        found = asked(store, 'SELECT kind, count, "offset" FROM input_issues')
        names = asked(store, "SELECT DISTINCT name FROM device_ops WHERE engine = 'MME'")
    assert [(kind, count) for kind, count, _ in found] == [("repaired events", 1)]
    assert facts.bad_offset is not None
    # The reported offset is the start of the record, and the fault is inside the record.
    assert 0 <= facts.bad_offset - found[0][2] < 400
    assert sorted(names) == [("GEMM",), ('node "gemm" 12',)]


def test_ranks_meet_at_the_wall_clock(tmp_path: Path) -> None:
    first, second = traps.shifted_base(0)[0], traps.shifted_base(1)[0]
    with opened(tmp_path, first, second) as store:
        starts = asked(store, "SELECT rank, ts FROM steps ORDER BY rank")
        work = asked(store, "SELECT rank, ts FROM device_ops ORDER BY rank")
    assert [rank for rank, _ in starts] == [0, 1]
    assert starts[0][1] == starts[1][1]
    assert work[0][1] == work[1][1]


def test_without_a_device_plane_numbers_are_missing_not_zero(tmp_path: Path) -> None:
    with opened(tmp_path, traps.no_device_plane()[0]) as store:
        metrics = {row["metric"]: row["value"] for row in store.rows("summary")}
    device = {"device_busy_ratio", "mme_time_ms", "tpc_time_ms", "dma_time_ms", "engines_idle_ms", "kernel_time_ms"}
    assert {name: metrics.get(name) for name in device} == dict.fromkeys(device)


def test_durations_are_never_summed_over_lanes(tmp_path: Path) -> None:
    with opened(tmp_path, traps.many_events_per_kernel()[0]) as store:
        engines = {row["engine"]: row for row in store.rows("engines")}
    assert {name: (row["busy_ns"], row["lane_ns"]) for name, row in engines.items()} == {
        "MME": (200_000, 800_000),
        "TPC": (150_000, 3_600_000),
    }
    assert engines["MME"]["busy_ratio"] == pytest.approx(0.2)


def test_a_step_keeps_its_beginning_when_a_transfer_comes_first(tmp_path: Path) -> None:
    trace = GaudiTrace("B")
    trace.step(4, 1000, 1000)
    trace.pdma("pdma_tx_commands apiId=31 chunk=0", 1150, 10)
    trace.annotation(GAUDI_2_LAUNCH.format(1), 1200, 60, recipe=7)
    trace.mme("GEMM", 1300, 50, recipe=7, dtype="bf16")
    with opened(tmp_path, trace.to_bytes()) as store:
        assert [(row["ts"] % 10_000_000, row["dur"]) for row in store.rows("steps")] == [(1_000_000, 1_000_000)]


def test_a_launch_with_a_compilation_inside_is_not_a_pure_launch(tmp_path: Path) -> None:
    trace = GaudiTrace("B")
    trace.step(0, 1000, 1000)
    trace.mme("GEMM", 1100, 700, recipe=1, dtype="bf16")
    trace.step(1, 2000, 1000)
    trace.bridge("LaunchSyncTensorsGraph", 2050, 900)
    trace.annotation("compileGraph", 2060, 880, recipe=2)
    with opened(tmp_path, trace.to_bytes()) as store:
        compiled = asked(store, "SELECT step, dur FROM compilations")
        idle = counts(store, "SELECT cause, sum(dur)::BIGINT FROM gap_causes GROUP BY cause")
    assert compiled == [(1, 880_000)]
    assert idle["compile"] == 880_000


def test_a_launch_may_begin_after_its_work_on_another_clock(tmp_path: Path) -> None:
    with opened(tmp_path, traps.clock_offset()[0]) as store:
        assert asked(store, "SELECT recipe, device_ops FROM launches") == [(4, 1)]
        assert counts(store, "SELECT set_aside, count(*) FROM device_ops WHERE NOT valid GROUP BY 1") == {}


def test_the_clock_may_be_off_when_a_run_of_the_recipe_is_missing(tmp_path: Path) -> None:
    trace = GaudiTrace("B")
    trace.step(4, 1000, 1000)
    for at in (1100, 1500):
        trace.annotation(GAUDI_2_LAUNCH.format(at), at, 40, recipe=4)
    trace.mme("GEMM", 1497, 100, recipe=4, dtype="bf16")
    with opened(tmp_path, trace.to_bytes()) as store:
        names = asked(store, "SELECT name, device_ops FROM launches")
    assert names == [(GAUDI_2_LAUNCH.format(1500), 1)]


@pytest.mark.parametrize("text", [GAUDI_1_LAUNCH, GAUDI_2_LAUNCH], ids=["Gaudi", "Gaudi 2"])
def test_launches_are_counted_back_from_the_last_where_the_device_lags_behind(text: str, tmp_path: Path) -> None:
    trace = GaudiTrace("B")
    trace.step(4, 1000, 1000)
    # The device finishes two graphs that were launched before the recording, and there is no record of launch 12.
    for number, recipe in ((10, 1), (11, 2), (13, 2)):
        trace.annotation(text.format(number), 1000 + 10 * number, 5, recipe=recipe)
    for number, recipe in ((8, 1), (9, 2), (10, 1), (11, 2), (12, 1), (13, 2)):
        trace.mme("GEMM", 200 + 120 * number, 100, recipe=recipe, dtype="bf16")
    with opened(tmp_path, trace.to_bytes()) as store:
        rows = asked(store, "SELECT ts, device_ts FROM launches ORDER BY ts")
    assert [(start - ts) // 1000 for ts, start in rows] == [300, 410, 630]


def test_records_without_length_are_not_work(tmp_path: Path) -> None:
    trace = GaudiTrace("C")
    trace.step(4, 1000, 1000)
    trace.mme("GEMM", 1100, 300, recipe=1, dtype="bf16")
    trace.device_op("TPC", "relu_fwd_bf16", 1100, 0, recipe=1, dtype="bf16")
    with opened(tmp_path, trace.to_bytes()) as store:
        assert counts(store, "SELECT engine, count(*) FROM device_ops GROUP BY engine") == {"MME": 1}


@cache
def pack() -> tuple[Rule, ...]:
    return tuple(load_pack(builtin_folder()))
