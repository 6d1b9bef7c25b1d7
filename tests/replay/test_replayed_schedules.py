"""Schedules with fixed rules are replayed exactly, both unchanged and with changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import Act, period_ns, recording_of, step_ns

from perftool.replay.changes import Change, altered
from perftool.replay.graph import Graph, build_graph
from perftool.replay.path import critical_path
from perftool.replay.run import replay_once, replay_steady

LENGTHS = st.integers(1_000, 200_000)
WORK = st.builds(Act, st.just("work"), LENGTHS)
SUBMIT = st.builds(Act, st.sampled_from(["launch", "copy"]), LENGTHS, st.integers(0, 2))
LAUNCH = st.builds(Act, st.just("launch"), LENGTHS, st.integers(0, 2))
WAIT = st.just(Act("wait"))
# These acts reveal the cost of a launch, of a full stream and of a wait. A recording does not show limits that were
# never reached.
REVEALING = [Act("launch", 60_000), *[Act("launch", 5_000)] * 10, Act("wait")]
# Long enough that the model treats a pause of this length as a handover between threads.
LONG = st.builds(Act, st.just("work"), st.integers(30_000, 200_000))
CALL = st.builds(
    lambda acts, first: (Act("work", 50_000), Act("call", acts=(first, *acts)), Act("work", 50_000)),
    st.lists(st.one_of(WORK, LAUNCH), max_size=5).map(tuple),
    LONG,
)
# All work is on one stream, because a wait for work that is already done does not show which stream it was for.
IN_LINE = st.lists(
    st.one_of(WORK, st.builds(Act, st.sampled_from(["launch", "copy"]), LENGTHS), WAIT), min_size=1, max_size=25
)
ONE = st.one_of(WORK, SUBMIT, WAIT).map(lambda act: (act,))
ACTS = st.lists(st.one_of(ONE, ONE, ONE, CALL), min_size=1, max_size=25).map(
    lambda parts: [a for part in parts for a in part]
)


def graph_of(acts: Sequence[Act]) -> Graph:
    return build_graph(recording_of(acts))


def changed_ns(graph: Graph, changes: Sequence[Change]) -> int:
    result = altered(graph, changes)
    return replay_once(graph, result.lag, result.dur).step_ns


@settings(max_examples=40)
@given(ACTS)
def test_a_schedule_is_replayed_exactly(acts: list[Act]) -> None:
    assert replay_once(graph_of(acts)).step_ns == step_ns(acts)


@settings(max_examples=40)
@given(IN_LINE)
def test_repeated_steps_take_their_long_run_time(acts: list[Act]) -> None:
    acts = [*REVEALING, *acts]
    assert replay_steady(graph_of(acts)).step_ns == period_ns(acts)


def _shortened(acts: Sequence[Act], factor: float) -> list[Act]:
    return [
        replace(act, acts=tuple(_shortened(act.acts, factor)))
        if act.kind == "call"
        else replace(act, ns=round(act.ns * factor))
        if act.kind in ("launch", "copy")
        else act
        for act in acts
    ]


@settings(max_examples=40)
@given(ACTS, st.sampled_from([0.25, 0.5, 0.8]))
def test_shorter_work_is_predicted_exactly(acts: list[Act], factor: float) -> None:
    acts = [*REVEALING, *acts]
    graph = graph_of(acts)
    changes = [Change("shorten", task, factor=factor) for task in graph.recording.tasks.id.tolist()]
    assert changed_ns(graph, changes) == step_ns(_shortened(acts, factor))


@settings(max_examples=40)
@given(ACTS, st.data())
def test_removing_work_never_makes_a_step_longer(acts: list[Act], data: st.DataObject) -> None:
    graph = graph_of(acts)
    leaves = graph.recording.leaves
    spans = [
        Change("skip", -1, 10 + int(leaves.thread[n]), int(leaves.ts[n]), int(leaves.end[n]))
        for n in range(len(leaves))
    ]
    gone = [Change("skip", task) for task in graph.recording.tasks.id.tolist()]
    chosen = data.draw(st.lists(st.sampled_from([*spans, *gone]), max_size=6))
    assert 0 <= changed_ns(graph, chosen) <= replay_once(graph).step_ns


@settings(max_examples=40)
@given(ACTS, st.sampled_from(["shorten", "detach", "prefetch", "merge"]), st.data())
def test_a_larger_change_gains_at_least_as_much(acts: list[Act], kind: str, data: st.DataObject) -> None:
    graph = graph_of(acts)
    leaves = graph.recording.leaves
    spans = [
        Change(kind, -1, 10 + int(leaves.thread[n]), int(leaves.ts[n]), int(leaves.end[n]), 0.5)
        for n in range(len(leaves))
    ]  # type: ignore[arg-type]
    tasks = [Change(kind, task, factor=0.5) for task in graph.recording.tasks.id.tolist()]  # type: ignore[arg-type]
    chosen = data.draw(st.lists(st.sampled_from([*spans, *tasks]), max_size=6))
    part = chosen[: len(chosen) // 2]
    whole, half, none = (changed_ns(graph, changes) for changes in (chosen, part, []))
    assert whole <= half <= none
    smaller = [replace(change, factor=0.25) for change in chosen]
    assert changed_ns(graph, smaller) <= whole


@settings(max_examples=25)
@given(ACTS)
def test_the_critical_path_is_as_long_as_the_replay(acts: list[Act]) -> None:
    graph = graph_of(acts)
    for replayed in (replay_once(graph), replay_steady(graph)):
        path = critical_path(graph, replayed)
        assert sum(stretch.bound_ns for stretch in path) == replayed.step_ns


@settings(max_examples=25)
@given(ACTS)
def test_work_off_the_critical_path_gains_nothing(acts: list[Act]) -> None:
    graph = graph_of(acts)
    replayed = replay_once(graph)
    on_path = {stretch.task for stretch in critical_path(graph, replayed)}
    tasks = graph.recording.tasks
    beside = [task for number, task in enumerate(tasks.id.tolist()) if number not in on_path]
    assert changed_ns(graph, [Change("shorten", task, factor=0.5) for task in beside]) == replayed.step_ns
