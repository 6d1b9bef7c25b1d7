"""Annotations as events: exact to the nanosecond, in the right order, and with names for everything."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftool.model.annotations import Annotations, Counter, Lane, Mark, RankTimeline, Sample
from perftool.model.report import Location
from perftool.reporters.perfetto import render_events, render_ranks, shown_ns

DRAWN = Annotations(
    rank=3, pid=9001, findings=1, view=Location(), select=None,
    lanes=(Lane("GAP101 host-bound", [Mark("outer", 1_000, 5_000, {"fix": "do", "gain": None}),
                                      Mark("inner", 2_500, 1_500, {}), Mark("next", 6_000, 1, {})]),),
    counters=(Counter("queue", [Sample(1_683_564_901_548_726_123, {"depth": 2})]),),
)  # fmt: skip
EXPECTED = """\
{"cat":"habana_perf_tool","ph":"M","name":"process_name","pid":9001,"tid":0,"ts":0,"args":{"name":"perftool (rank 3)"}},
{"cat":"habana_perf_tool","ph":"M","name":"process_sort_index","pid":9001,"tid":0,"ts":0,"args":{"sort_index":-1000000}},
{"cat":"habana_perf_tool","ph":"C","name":"queue","pid":9001,"tid":9001,"ts":1683564901548726.123,"args":{"depth":2}},
{"cat":"habana_perf_tool","ph":"M","name":"thread_name","pid":9001,"tid":9002,"ts":0,"args":{"name":"GAP101 host-bound"}},
{"cat":"habana_perf_tool","ph":"M","name":"thread_sort_index","pid":9001,"tid":9002,"ts":0,"args":{"sort_index":1}},
{"cat":"habana_perf_tool","ph":"B","name":"outer","pid":9001,"tid":9002,"ts":1.000,"args":{"fix":"do"}},
{"cat":"habana_perf_tool","ph":"B","name":"inner","pid":9001,"tid":9002,"ts":2.500,"args":{}},
{"cat":"habana_perf_tool","ph":"E","pid":9001,"tid":9002,"ts":4.000},
{"cat":"habana_perf_tool","ph":"E","pid":9001,"tid":9002,"ts":6.000},
{"cat":"habana_perf_tool","ph":"B","name":"next","pid":9001,"tid":9002,"ts":6.000,"args":{}},
{"cat":"habana_perf_tool","ph":"E","pid":9001,"tid":9002,"ts":6.001}"""  # noqa: E501


def test_events() -> None:
    assert b",\n".join(render_events(DRAWN)).decode() == EXPECTED


def test_long_lanes_come_in_blocks() -> None:
    lane = Lane("idle", (Mark("m", at, 1, {}) for at in range(2000)))
    blocks = list(render_events(Annotations(0, 9001, 0, Location(), None, (lane,), ())))
    assert [len(orjson.loads(b"[" + block + b"]")) for block in blocks] == [1000] * 4 + [4]


@given(st.integers(0, 2**62))
def test_times_keep_every_nanosecond(ns: int) -> None:
    drawn = Annotations(0, 1, 0, Location(), None, (Lane("l", [Mark("m", ns, 0, {})]),), ())
    text = b"".join(render_events(drawn)).split(b'"ph":"B"')[1].split(b'"ts":')[1].split(b",")[0].decode()
    whole, decimals = text.split(".")
    assert (int(whole) * 1000 + int(decimals), len(decimals)) == (ns, 3)


@given(st.integers(0, 2**62), st.integers(0, 2**62))
def test_the_times_that_perfetto_shows_keep_their_order(one: int, other: int) -> None:
    first, second = sorted((one, other))
    assert shown_ns(first) <= shown_ns(second)
    assert abs(shown_ns(first) - first) <= max(1, first >> 52)


def test_any_evidence_can_be_written() -> None:
    odd = {"big": 2**100, "text": "\ud800", "bytes": b"\xff", "map": {(1,): float("nan")}}
    lane = Lane("GAP101", [Mark("m", 1, 1, {"evidence": odd})])
    text = b"".join(render_events(Annotations(0, 9001, 0, Location(), None, (lane,), ())))
    assert b'{"big":1.2676506002282294e+30,"text":"\\\\ud800","bytes":"b\'\\\\xff\'","map":{"(1,)":null}}' in text


DEEP = "[" * 1500 + "]" * 1500


def timeline_of(ph: str, name: str, args: str) -> list[dict]:
    """Return the events called ``name`` in the timeline of a rank that recorded one such event."""
    drawn = Annotations(0, 1, 0, Location(ts_ns=0, dur_ns=1), None, (), ())
    events = iter([(ph, None, name, "1", "1", 5000, 1000, None, args)])
    written = b"".join(render_ranks([RankTimeline(0, None, ("1",), events, drawn)]))
    return [event for event in orjson.loads(written)["traceEvents"] if event["name"] == name]


@pytest.mark.parametrize(("recorded", "shown"), [
    ('{"name": "python"}', "python"), ('{"name": NaN}', "1"), ('"text"', "1"), ("[1]", "1"), ("null", "1"), ("{}", "1"),
    (f'{{"name": {"9" * 400}}}', "1"), (f'{{"name": {DEEP}}}', "1"),
])  # fmt: skip
def test_a_process_of_a_rank_is_named_by_its_number_where_its_name_cannot_be_read(recorded: str, shown: str) -> None:
    names = [event["args"]["name"] for event in timeline_of("M", "process_name", recorded)]
    assert f"rank 0: {shown}" in names


@pytest.mark.parametrize(("recorded", "shown"), [
    ('{"a": NaN, "b": [-inf, Infinity], "c": "x, nano"}', {"a": None, "b": [None, None], "c": "x, nano"}),
    ('{"a": null, "b": "nan"}', {"a": None, "b": "nan"}), ('{"a": "x: nan, y"}', {"a": "x: nan, y"}),
    ('"text"', None), ("[NaN]", None), ("nan", None),
    (f'{{"a": nan, "b": {DEEP}}}', None),
])  # fmt: skip
def test_arguments_in_a_timeline_of_ranks_are_objects_that_any_viewer_reads(recorded: str, shown: object) -> None:
    (event,) = timeline_of("X", "aten::add", recorded)
    assert event.get("args") == shown
