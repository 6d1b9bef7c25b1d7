"""Which traces count as ranks of the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from events import document, x
from stores import findings_of

from perftool.engine.ranks.batch import number_files
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.errors import InputError
from perftool.readers.discover import find_inputs
from perftool.readers.files.runs import list_runs

# A time on a day in 2023, in microseconds since 1970.
DAY = 1_700_000_000_000_000


def write(name: str, at: float = DAY, device: str | None = None, **info: Any) -> str:
    top: dict[str, Any] = {"distributedInfo": info} if info else {}
    if device:
        top["deviceProperties"] = [{"id": 0, "name": device}]
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(document([x("aten::mm", at, 5), x(name, at + 10, 5)], **top))
    return name


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def files_of(*traces: str) -> list[tuple[str, ...]]:
    return [tuple(run.files) for run in list_runs(traces)]


def test_ranks_of_one_run_may_be_in_folders_of_their_hosts() -> None:
    traces = [write(f"node{node}/rank{2 * node + at}.json", DAY + at, "Tesla V100", rank=2 * node + at, world_size=4)
              for node in range(2) for at in range(2)]  # fmt: skip
    assert files_of(*traces) == [tuple(traces)]


def test_ranks_known_only_by_file_name_are_one_run() -> None:
    traces = [
        write("rank0.json", 5.0),
        write("rank1.json", device="Tesla V100", world_size=3),
        write("rank2.json", 7.0),
    ]
    assert files_of(*traces) == [tuple(traces)]


def test_traces_without_a_rank_are_separate_runs() -> None:
    traces = [write("a.json", 5.0), write("b.json", rank=1, world_size=2), write("c.json", 7.0)]
    assert files_of(*traces) == [(trace,) for trace in traces]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"device": "NVIDIA A100"}, {"device": "AMD Instinct MI300X"}),
        ({"rank": 0, "world_size": 2}, {"rank": 1, "world_size": 4}),
        ({"rank": 0}, {"rank": 0}),
        ({"rank": 0}, {"rank": 1, "at": DAY + 601e6}),
        ({}, {}),
        ({"world_size": 1}, {}),
    ],
    ids=["devices", "world sizes", "one rank twice", "clocks", "no rank", "a world of one"],
)
def test_traces_of_two_runs_are_refused_with_the_list_of_runs(one: dict[str, Any], other: dict[str, Any]) -> None:
    traces = [write("a.json", **one), write("b.json", **other)]

    assert files_of(*traces) == [("a.json",), ("b.json",)]
    with pytest.raises(InputError, match=r"2 traces belong to 2 runs.*--as-one-run:\n  1\. a.json.*\n  2\. b.json"):
        find_inputs(traces)
    assert find_inputs(traces, as_one_run=True).traces == ("a.json", "b.json")


def test_clocks_may_differ_by_ten_minutes() -> None:
    assert len(files_of(write("rank0.json"), write("rank1.json", DAY + 599e6))) == 1


def test_a_copy_is_left_out_and_a_stated_rank_kept() -> None:
    write("a/run.json", rank=1, world_size=2)
    Path("b").mkdir()
    Path("b/run.json").write_bytes(Path("a/run.json").read_bytes())

    found = find_inputs(["a/run.json", "b/run.json"])

    assert found.traces == ("a/run.json",)
    assert list(map(str, found.set_aside)) == ["b/run.json (rank 1) is a copy; a/run.json was read instead"]


def recorded(name: str, minutes: float, pid: int, rank: int = 0) -> str:
    at = DAY + minutes * 60e6
    events = [x("aten::mm", at, 5, pid=pid), x("aten::add", at + 10, 5, pid=pid)]
    Path(name).write_bytes(document(events, distributedInfo={"rank": rank, "world_size": 2}))
    return name


def test_the_last_of_several_recordings_of_a_process_is_used() -> None:
    first = [recorded(f"rank{rank}-cycle1.json", 0, 4000 + rank, rank) for rank in range(2)]
    last = [recorded(f"rank{rank}-cycle2.json", 20, 4000 + rank, rank) for rank in range(2)]

    found = find_inputs([*last, *first])

    assert found.traces == tuple(last)
    assert [(one.path, one.instead, one.why) for one in found.set_aside] == [
        (early, late, "older recording") for early, late in zip(first, last, strict=True)
    ]
    assert find_inputs([*first, *last]).traces == tuple(last)


def test_a_trace_of_another_process_is_another_run() -> None:
    with pytest.raises(InputError, match="belong to 2 runs"):
        find_inputs([recorded("rank0-a.json", 0, 4000), recorded("rank0-b.json", 20, 5000)])


def test_traces_that_were_set_aside_are_a_finding_in_every_output() -> None:
    recorded("rank0.json", 0, 4000)
    Path("copies").mkdir()
    Path("copies/rank0.json").write_bytes(Path("rank0.json").read_bytes())

    rules = [rule for rule in load_pack(builtin_folder()) if rule.code in ("TRC101", "TRC107", "TRC108")]
    found = findings_of(["."], rules)

    assert [(one.code, one.message) for one in found] == [
        ("TRC107", "no trace of 1 of the run's 2 ranks was read: rank 1"),
        ("TRC108", "rank0.json (rank 0) is a copy; copies/rank0.json was read instead"),
    ]


def test_traces_without_a_rank_are_numbered_by_host_and_process() -> None:
    names = ["b_9.1700000000000000000.pt.trace.json", "b_10.1700000000000000000.pt.trace.json",
             "a_300.1700000000000000000.pt.trace.json"]  # fmt: skip
    traces = [write(name) for name in names]

    assert [(file.rank, [issue.kind for issue in file.issues]) for file in number_files(traces)] == [
        (1, ["rank assumed"]), (2, ["rank assumed"]), (0, ["rank assumed"])
    ]  # fmt: skip
    assert [file.rank for file in number_files(["run10.json", "run9.json"])] == [1, 0]


def test_metadata_behind_the_events_counts_too() -> None:
    Path("a.json").write_bytes(b'{"traceEvents": [{"ph": "X"}], "distributedInfo": {"rank": 3, "world_size": 4}}')
    Path("b.json").write_bytes(b'{"traceEvents": [{"ph": "X"}], "distributedInfo": {"rank": 3, "world_size": 4} }')
    assert files_of("a.json", "b.json") == [("a.json",), ("b.json",)]
