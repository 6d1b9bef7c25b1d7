"""Which traces are ranks of one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from events import document, x

from perftool.errors import InputError
from perftool.readers.files.discover import find_inputs
from perftool.readers.files.one_run import list_runs

# Microseconds since 1970, some day in 2023.
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
    return [run.files for run in list_runs(traces)]


def test_ranks_of_one_run_may_lie_in_folders_of_their_hosts() -> None:
    traces = [write(f"node{node}/rank{2 * node + at}.json", DAY + at, "Tesla V100", rank=2 * node + at, world_size=4)
              for node in range(2) for at in range(2)]  # fmt: skip
    assert files_of(*traces) == [tuple(traces)]


def test_what_a_trace_does_not_say_contradicts_nothing() -> None:
    traces = [write("a.json", 5.0), write("b.json", device="Tesla V100", rank=1, world_size=2), write("c.json", 7.0)]
    assert files_of(*traces) == [tuple(traces)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"device": "NVIDIA A100"}, {"device": "AMD Instinct MI300X"}),
        ({"rank": 0, "world_size": 2}, {"rank": 1, "world_size": 4}),
        ({"rank": 0}, {"rank": 0}),
        ({}, {"at": DAY + 601e6}),
        ({"world_size": 1}, {}),
    ],
    ids=["devices", "world sizes", "one rank twice", "clocks", "a world of one"],
)
def test_traces_of_two_runs_are_refused_with_the_list_of_runs(one: dict[str, Any], other: dict[str, Any]) -> None:
    traces = [write("a.json", **one), write("b.json", **other)]

    assert files_of(*traces) == [("a.json",), ("b.json",)]
    with pytest.raises(InputError, match=r"2 traces are of 2 runs.*--as-one-run:\n  1\. a.json.*\n  2\. b.json"):
        find_inputs(traces)
    assert find_inputs(traces, as_one_run=True).traces == ("a.json", "b.json")


def test_ten_minutes_are_within_the_error_of_clocks() -> None:
    assert len(files_of(write("a.json"), write("b.json", DAY + 599e6))) == 1


def test_a_copy_is_left_out_and_a_stated_rank_kept() -> None:
    write("a/run.json", rank=1, world_size=2)
    Path("b").mkdir()
    Path("b/run.json").write_bytes(Path("a/run.json").read_bytes())

    found = find_inputs(["a/run.json", "b/run.json"])

    assert found.traces == ("a/run.json",)
    assert found.notes == ("b/run.json is a copy of a/run.json, rank 1: left out",)


def test_metadata_behind_the_events_counts_too() -> None:
    Path("a.json").write_bytes(b'{"traceEvents": [{"ph": "X"}], "distributedInfo": {"rank": 3, "world_size": 4}}')
    Path("b.json").write_bytes(b'{"traceEvents": [{"ph": "X"}], "distributedInfo": {"rank": 3, "world_size": 4} }')
    assert files_of("a.json", "b.json") == [("a.json",), ("b.json",)]
