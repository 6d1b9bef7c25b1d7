"""Findings that count the same time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from perftool.engine.analysis import analyze
from perftool.engine.rules.pack import shipped_rules
from perftool.engine.rules.shared_time import HostTime, host_time, with_fix_gains, with_overlaps
from perftool.model.recorded_on import RECORDED_KEY
from perftool.model.report import Finding, Gain, Location, Overlap
from perftool.reporters.terminal.answer import print_answer
from perftool.reporters.verdict import overlap_text

MATMULS = host_time({"related": [{"ts": 0, "dur": 100}, {"ts": 200, "dur": 100}]})


def finding(code: str, gain: int, **fields: Any) -> Finding:
    made = Finding(
        code=code, name=code.lower(), severity="warning", confidence="high", subject="s", message="m", why="w", fix="f",
        rank=0, location=Location(), related=(), evidence={}, gain=Gain(gain, gain / 1000), fingerprint="f",
        benchmark=None,
    )  # fmt: skip
    return replace(made, **fields)


def second(first: Finding, other: Finding, *times: HostTime) -> tuple[Overlap, ...]:
    known = dict(zip((id(first), id(other)), times, strict=False))
    return with_overlaps((first, other), known, 1000)[1].overlaps


def test_findings_on_the_same_ops_overlap() -> None:
    inside = host_time({"ts": 220, "dur": 60})
    assert second(finding("A001", 400), finding("B001", 300), MATMULS, inside) == (Overlap("A001", certain=True),)
    apart = host_time({"ts": 290, "dur": 60})
    assert second(finding("A001", 400), finding("B001", 300), MATMULS, apart) == ()


def test_gains_that_do_not_fit_in_a_step_overlap() -> None:
    assert second(finding("A001", 700), finding("B001", 400)) == (Overlap("A001", certain=True),)
    assert second(finding("A001", 600), finding("B001", 400)) == ()
    assert second(finding("A001", 700), finding("B001", 400, rank=1)) == ()
    assert second(finding("A001", 700), finding("B001", 400, rank=None)) == (Overlap("A001", certain=True),)


def whole_gains(findings: Sequence[Finding], *spans: tuple[int, int]) -> list[int | None]:
    times = {id(found): HostTime((span,)) for found, span in zip(findings, spans, strict=False)}
    return [found.fix_gain and found.fix_gain.ns_per_step for found in with_fix_gains(findings, times, 1000)]


def test_gains_of_one_fix_add_up_where_their_times_are_disjoint() -> None:
    forward, backward = finding("A001", 300, short_fix="fix"), finding("A001", 200, short_fix="fix")
    assert whole_gains((forward, backward), (0, 100), (100, 300)) == [500, 500]
    assert whole_gains((forward, backward), (0, 100), (50, 300)) == [None, None]
    # The time of the second finding is unknown.
    assert whole_gains((forward, backward), (0, 100)) == [None, None]
    assert whole_gains((forward, replace(backward, short_fix="other")), (0, 100), (100, 300)) == [None, None]
    assert whole_gains((forward, replace(backward, rank=1)), (0, 100), (100, 300)) == [None, None]
    assert whole_gains((forward, replace(backward, code="B001")), (0, 100), (100, 300)) == [None, None]
    # Together, the gains exceed a step.
    longer = finding("A001", 800, short_fix="fix")
    assert whole_gains((forward, longer), (0, 100), (100, 300)) == [None, None]


def test_time_somewhere_inside_ops_is_not_known_to_be_disjoint() -> None:
    pair = finding("A001", 300, short_fix="fix"), finding("A001", 200, short_fix="fix")
    times = {id(pair[0]): HostTime(((0, 9),)), id(pair[1]): HostTime(((10, 19),), inside=True)}
    assert [found.fix_gain for found in with_fix_gains(pair, times, 1000)] == [None, None]


def test_a_sum_is_predicted_only_if_all_its_gains_are() -> None:
    bound = finding("A001", 300, short_fix="fix")
    predicted = replace(bound, gain=Gain(200, 0.2, "predicted"))
    spans = HostTime(((0, 9),)), HostTime(((10, 19),))

    def kind(*pair: Finding) -> str:
        times = dict(zip(map(id, pair), spans, strict=True))
        gain = with_fix_gains(pair, times, 1000)[0].fix_gain
        return gain.kind if gain else ""

    assert kind(bound, predicted) == "bound"
    assert kind(predicted, replace(predicted)) == "predicted"


def test_a_symptom_does_not_overlap_its_cause() -> None:
    assert second(finding("A001", 700), finding("B001", 400, explained_by="A001")) == ()


def test_time_that_lies_somewhere_inside_ops_may_overlap() -> None:
    somewhere = host_time({"within": [{"ts": 0, "dur": 90}, {"ts": 200, "dur": 20}, {"ts": 900, "dur": 90}]})
    may = (Overlap("A001", certain=False),)
    assert second(finding("A001", 400), finding("B001", 300), MATMULS, somewhere) == may
    assert second(finding("A001", 400), finding("B001", 300), somewhere, MATMULS) == may
    assert second(finding("A001", 400), finding("B001", 300), somewhere, somewhere) == ()


def test_a_finding_without_a_place_has_no_time() -> None:
    assert host_time({"ts": None, "related": None}) == HostTime(())
    # The column host_time does not count: it only shows where the line of code is.
    assert host_time({"ts": 5, "dur": 4, "host_time": [{"ts": 0, "dur": 1}]}) == HostTime(((5, 9),))
    assert second(finding("A001", 400), finding("B001", 300), MATMULS, host_time({})) == ()


def test_the_text_says_whether_the_overlap_is_certain() -> None:
    sure, maybe = Overlap("A001", certain=True), Overlap("B001", certain=False)
    assert overlap_text(finding("C001", 1)) == ""
    assert overlap_text(finding("C001", 1, overlaps=(maybe, sure))) == "overlaps A001, may overlap B001"
    assert overlap_text(finding("C001", 1, overlaps=(maybe,))) == "may overlap B001"


def test_the_short_answer_says_what_the_page_faults_may_be_part_of(tmp_path: Path) -> None:
    """The recording counts page faults but does not say in which ops they occur."""
    counts = {"wall_ns": 10_000_000, "cpu_ns": 10_000_000, "system_ns": 2_000_000, "page_faults": 1000,
              "page_bytes": 4096, "grown_bytes": 0}  # fmt: skip
    here = {"ph": "X", "pid": 1, "tid": 1}
    events: list[dict[str, Any]] = [
        {**here, "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 10_000}
    ]
    for number in range(16):
        args = {"Input Dims": [[64, 64, 64], []], "Sequence number": number}
        name = "autograd::engine::evaluate_function: SelectBackward0"
        ts = 600 * number
        events += [
            {**here, "cat": "cpu_op", "name": name, "ts": ts, "dur": 300, "args": {}},
            {**here, "cat": "cpu_op", "name": "aten::select_backward", "ts": ts + 1, "dur": 298, "args": args},
        ]
    path = tmp_path / "trace.json"
    recorded = {"version": 1, "window": counts}
    path.write_text(json.dumps({RECORDED_KEY: recorded, "traceEvents": events}))
    report = analyze([str(path)], [rule for rule in shipped_rules() if rule.code in ("FUS120", "MEM110")])
    assert [(one.code, one.overlaps) for one in report.findings] == [
        ("FUS120", ()), ("MEM110", (Overlap("FUS120", certain=False),))
    ]  # fmt: skip
    console = Console(width=160)
    with console.capture() as printed:
        print_answer(report, console)
    assert "Set MALLOC_MMAP_MAX_=0 and a large MALLOC_TRIM_THRESHOLD_ (may overlap FUS120)" in printed.get()
