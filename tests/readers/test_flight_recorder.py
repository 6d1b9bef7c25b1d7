"""Dumps of the flight recorder: what is read of them, and what is never loaded."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from perftool.engine.analysis import analyze
from perftool.errors import InputError
from perftool.model.records import FlightEntry, FlightGroup
from perftool.readers.flight import dump
from perftool.readers.flight.plain_pickle import load_plain


def entry(number: int, state: str = "completed", **more: Any) -> dict[str, Any]:
    """As torch 2.13 writes it."""
    return {
        "frames": [{"name": "all_reduce", "filename": "/x/torch/distributed/distributed_c10d.py", "line": 3245},
                   {"name": "step", "filename": "/home/me/train.py", "line": 31}],
        "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": number,
        "p2p_seq_id": 0, "op_id": number, "profiling_name": "nccl:all_reduce", "time_created_ns": 100 + number,
        "input_sizes": [[3, 4]], "input_dtypes": ["Float"], "output_sizes": [[3, 4]], "output_dtypes": ["Float"],
        "state": state, "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": False,
        "timeout_ms": 600000, "is_p2p": False, **more,
    }  # fmt: skip


def dumped(*entries: dict[str, Any], ranks: str = "[0, 1, 2]", **status: int) -> dict[str, Any]:
    return {
        "version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {"0": {"last_started_collective": -1, **status}}, "comm_lib_version": "", "entries": list(entries),
    }  # fmt: skip


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_both_forms_say_the_same(form: str, tmp_path: Path) -> None:
    found = dumped(entry(6, "scheduled", retired=True), entry(7, "started"), last_completed_collective=5)
    found["entries"].append(entry(1, is_p2p=True))
    path = tmp_path / ("nccl_trace_rank_2" + (".json" if form == "json" else ""))
    path.write_bytes(pickle.dumps(found, protocol=2) if form == "pickle" else json.dumps(found).encode())
    assert dump.is_dump(str(path))
    reading = dump.read(str(path))
    shared = (None, "train.py:31 step", False, 0, "default_pg")
    assert reading.flight == tuple(
        FlightEntry(2, "0", number, "nccl:all_reduce", state, "[3, 4]", 100 + number, *shared[1:])
        for number, state in ((6, "completed"), (7, "started"))
    )
    assert reading.flight_groups == (FlightGroup(2, "0", "default_pg", (0, 1, 2), 7, 6),)


class _Harm:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch harmed",)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (pickle.dumps({"entries": _Harm()}, protocol=2), "more than plain values (GLOBAL)"),
        (pickle.dumps({"entries": _Harm()}, protocol=4), "more than plain values (STACK_GLOBAL)"),
        (pickle.dumps({"a": {1, 2}}, protocol=4), "more than plain values (EMPTY_SET)"),
        (pickle.dumps(bytearray(8), protocol=5), "more than plain values (BYTEARRAY8)"),
        (b"\x80\x02Nr\xff\xff\xff\x7f.", "its memo has gaps"),
        (b"\x80\x02}(", "damaged pickle"),
        (b"\x80\x02a.", "damaged pickle"),
        (b"\x80\x02]]}u.", "damaged pickle"),
    ],
)
def test_only_plain_values_are_loaded(data: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        load_plain(data)
    assert said in str(raised.value)
    assert not Path("harmed").exists()


@pytest.mark.parametrize(
    "value", [{"a": [1, 2.5, None, True, "é", (1, 2)], "b": {"c": -(2**40)}}, [], {"same": [[1]] * 3}]
)
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_plain_values_of_any_protocol_come_back(value: Any, protocol: int) -> None:
    assert load_plain(pickle.dumps(value, protocol=protocol)) == value


def test_odd_entries_are_counted_and_left_out(tmp_path: Path) -> None:
    odd = [5, {}, entry(1, process_group=[]), entry(2, collective_seq_id="x"), entry(3, profiling_name=None)]
    path = tmp_path / "dump_3"
    path.write_text(json.dumps(dumped(*odd, entry(4, input_sizes=[[2**80]], frames="?", time_created_ns=True))))
    reading = dump.read(str(path))
    assert [issue.count for issue in reading.issues] == [5]
    assert [(one.rank, one.number, one.sizes, one.place, one.created_ns) for one in reading.flight] == [
        (3, 4, None, None, None)
    ]


def test_a_folder_of_dumps_names_the_rank_behind_first(tmp_path: Path) -> None:
    for rank, last in ((0, 12), (1, 12), (2, 11)):
        entries = [entry(number, "started" if number == 12 else "completed") for number in range(9, last + 1)]
        place = tmp_path / f"nccl_trace_rank_{rank}"
        place.write_bytes(pickle.dumps(dumped(*entries, ranks="[0, 1, 2, 3]"), protocol=2))
    report = analyze([str(tmp_path)])
    assert [(read.kind, read.rank) for read in report.inputs] == [
        ("flight_record", 0),
        ("flight_record", 1),
        ("flight_record", 2),
    ]
    first = report.findings[0]
    assert (first.code, first.evidence["late_ranks"], first.evidence["ranks_missing"]) == ("COL114", [2], [3])
    assert first.message == (
        "group default_pg (0): rank 2 has not called collective 12 (nccl:all_reduce of [3, 4] at train.py:31 step), in "
        "which 2 wait; the last call there: nccl:all_reduce at train.py:31 step; no dump of rank 3"
    )
    assert report.verdict.headline == f"{first.message[:1].upper()}{first.message[1:]}."


def test_a_dump_that_could_run_code_is_an_unreadable_input(tmp_path: Path) -> None:
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(dumped(entry(1, "started")), protocol=2))
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps({"pg_config": _Harm()}, protocol=2))
    report = analyze([str(tmp_path)])
    told = next(finding for finding in report.findings if finding.code == "TRC000")
    assert "more than plain values (GLOBAL), which is never loaded" in told.message
    assert not Path("harmed").exists()
