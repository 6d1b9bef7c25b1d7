"""Impossible numbers are left out. They neither end the analysis nor crash a rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from events import Event, document, instant, kernel, launch, meta, step, x

from perftool.api import analyze
from perftool.cli import main
from perftool.readers.flight import dump
from perftool.readers.trace import chrome_trace

NOW = 1_780_000_000_000_000
"""A time in 2026, in microseconds since 1970."""
RUN: list[Event] = [x("aten::mm", NOW, 50), *launch(1, NOW + 10, 5, NOW + 20, 20)]
MATRICES = {"Input Dims": [[3_000_000, 3_000_000]] * 2, "Input type": ["float"] * 2}
NINES = "9" * 5000
MEMORY = {"Device Type": 1, "Device Id": 0, "Addr": 1, "Bytes": 512, "Total Allocated": 512, "Total Reserved": 512}
H100 = {"deviceProperties": [{"name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000}]}


def in_line(line: str) -> list[Event]:
    """Return an allocation at ``line`` of a file, and the function around it."""
    return [
        instant("[memory]", NOW + 5, **{**MEMORY, "Call stack": f"/home/a.py({line}): f"}),
        x(f"/home/a.py({line}): f", NOW, 50, "python_function", **{"Python id": 1, "Call line": line}),
    ]


@pytest.mark.parametrize(
    ("events", "metadata"),
    [
        pytest.param([x("a", 9.2e15, 9.2e15), kernel("k", 9.1e15, 9.2e15)], {}, id="times past 2043"),
        pytest.param([step(1, 0, 5), step(2, NOW, 50)], {}, id="a step that starts in 1970"),
        pytest.param([kernel("k", NOW, 1.7e15) for _ in range(10)], {}, id="kernels as long as their end"),
        pytest.param([x("a", NOW, 1.7e15) for _ in range(10)], {}, id="ops as long as their end"),
        pytest.param(
            [meta("process_name", "/device:HPU:0", pid=9, tid=0),
             x("k", NOW, 5, "Kernel", pid=9, tid=7001, recipeId=2**45, recipeName="r")],
            {}, id="the id of a recipe",
        ),
        pytest.param([x("aten::mm", NOW + 60, 20, **MATRICES), *launch(2, NOW + 61, 1, NOW + 70, 9, "sgemm")],
                     H100, id="matrices larger than any memory"),
        pytest.param([x("nccl:all_reduce", NOW, 9, "user_annotation", **{**MATRICES, "Input Dims": [[10**10] * 2]}),
                      kernel("ncclKernel_Broadcast", NOW + 60, 9, **{"Collective name": "b", "Src Rank": 2**40})],
                     {}, id="a collective larger than any memory, and the source of a broadcast"),
        pytest.param([instant("[memory]", NOW, **{"Device Type": 10**12, "Device Id": 10**12}),
                      *(one for line in (NINES[:10], NINES[:30], NINES) for one in in_line(line))],
                     {}, id="a type of memory, and lines"),
        pytest.param([], {"distributedInfo": {"rank": 10**12, "world_size": 10**12}}, id="a rank"),
        pytest.param([], {"distributedInfo": {"rank": -1, "world_size": True,
                                              "pg_config": [{"pg_name": [[]], "pg_desc": "mesh"}, 7]}},
                     id="a negative rank, and a group"),
        pytest.param([], {"baseTimeNanoseconds": 2**63 + 5,
                          "deviceProperties": [{"name": "GAUDI2", "totalGlobalMem": 2**63 + 1}]},
                     id="the zero of the clock, and device memory"),
    ],
)  # fmt: skip
def test_the_rest_is_analysed(tmp_path: Path, events: list[Event], metadata: dict[str, Any]) -> None:
    (tmp_path / "damaged.json").write_bytes(document([*RUN, *events], **metadata))
    (tmp_path / "whole.json").write_bytes(document(RUN, baseTimeNanoseconds=1))
    # What a file says about its run matters only if there is a second file.
    paths = ["damaged.json", "whole.json"] if metadata else ["damaged.json"]
    report = analyze([tmp_path / path for path in paths], as_one_run=True)
    assert [finding.message for finding in report.findings if finding.code == "TRC001"] == []
    assert [rank.rank for rank in report.ranks] == list(range(len(paths)))
    assert "aten::mm" in {share.name for share in report.top_ops}


def test_values_nested_too_deeply_to_be_printed_are_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    deep = b"[" * 950 + b"]" * 950
    for rank in range(2):
        description: dict[str, Any] = {
            "distributedInfo": {"rank": rank, "world_size": 2, "pg_roles": {"0": "@"}},
            "deviceProperties": [{"name": "@", "computeMajor": 9, "computeMinor": 0}],
        }
        events = [meta("process_name", "@"), *RUN]
        Path(f"{rank}.json").write_bytes(document(events, **description).replace(b'"@"', deep))
    report = analyze(["0.json", "1.json"])
    assert [rank.rank for rank in report.ranks] == [0, 1]
    monkeypatch.setattr("sys.argv", ["habana_perf_tool", "annotate", "-q", "0.json", "1.json", "-o", "drawn.json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0


@pytest.mark.parametrize("error", [RecursionError("too deep"), TypeError("LINE 1\n    ^"), KeyError("ranks")])
def test_a_file_that_breaks_its_reader_is_the_only_one_lost(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trips(*_: object) -> None:
        raise error

    (tmp_path / "whole.json").write_bytes(document(RUN))
    (tmp_path / "nccl_trace_rank_7.json").write_bytes(b'{"pg_config": {}, "entries": []}')
    monkeypatch.setattr(dump, "_without_batches", trips)
    report = analyze([tmp_path / "whole.json", tmp_path / "nccl_trace_rank_7.json"])
    (unread,) = [finding.message for finding in report.findings if finding.code == "TRC000"]
    assert f"cannot read (internal error: {type(error).__name__}: " in unread
    assert "\n" not in unread
    assert "aten::mm" in {share.name for share in report.top_ops}


def test_a_trace_that_breaks_its_reader_is_the_only_one_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("whole", "damaged"):
        (tmp_path / f"{name}.json").write_bytes(document(RUN))
    before = chrome_trace.ChromeTrace.finish

    def finish(trace: chrome_trace.ChromeTrace) -> None:
        if trace.path.endswith("damaged.json"):
            raise RecursionError("too deep")
        before(trace)

    monkeypatch.setattr(chrome_trace.ChromeTrace, "finish", finish)
    report = analyze([tmp_path / "whole.json", tmp_path / "damaged.json"], as_one_run=True)
    assert len(report.ranks) == 1
    (unread,) = [finding.message for finding in report.findings if finding.code == "TRC000"]
    assert "damaged.json" in unread
    assert "aten::mm" in {share.name for share in report.top_ops}
