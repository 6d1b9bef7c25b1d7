"""Flight recorder dumps: what is read, and what must never be loaded."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from stores import findings_of

from perftool.engine.analysis import analyze
from perftool.engine.rules.pack import shipped_rules
from perftool.errors import InputError
from perftool.model.records import FlightEntry, FlightGroup
from perftool.readers.flight import dump
from perftool.readers.flight.plain_pickle import load_plain
from perftool.readers.identity import identify
from perftool.readers.sniff import UNKNOWN, sniff

HANGS = [rule for rule in shipped_rules() if rule.code == "COL114"]


def entry(number: int, state: str = "completed", **more: Any) -> dict[str, Any]:
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
def test_json_and_pickle_give_the_same_result(form: str, tmp_path: Path) -> None:
    found = dumped(entry(6, "scheduled", retired=True, profiling_name="gloo:all_reduce"), entry(7, "started"))
    found["pg_status"]["0"]["last_completed_collective"] = 5
    found["entries"].append(entry(0, "started", is_p2p=True, p2p_seq_id=9, profiling_name="nccl:send 2->0"))
    path = tmp_path / ("nccl_trace_rank_2" + (".json" if form == "json" else ""))
    path.write_bytes(pickle.dumps(found, protocol=2) if form == "pickle" else json.dumps(found).encode())
    assert dump.begins_dump(path.read_bytes())
    reading = dump.read(str(path))
    assert reading.flight == tuple(
        FlightEntry(2, "0", number, name, state, "[3, 4]", at, "train.py:31 step", peer, 0, "default_pg")
        for number, name, state, at, peer in (
            (6, "gloo:all_reduce", "completed", 106, None),
            (7, "nccl:all_reduce", "started", 107, None),
            (9, "nccl:send 2->0", "started", 100, 0),
        )
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
        (b"\x80\x02)2\x86.", "more than plain values (DUP)"),
        (b"\x80\x02]q\x00h\x00a.", "self-referential values"),
        (b"\x80\x02]q\x00(h\x00]h\x00ee.", "self-referential values"),
        (b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".", "more lists than its size allows"),
        (b"\x80\x04N" + b"\x94" * 5000 + b".", "holds more values than its size allows"),
        (b"\x80\x04(" + b"N" * 200_000 + b"l.", "holds more values than its size allows"),
        (b"\x80\x02" + b"]" * 800 + b"a" * 799 + b".", "nests more than 64 levels deep"),
        (b"\x80\x02(" * 10 + b".", "damaged pickle"),
        # Each tuple contains the previous one twice, so visiting all values would take 2**60 steps.
        (b"\x80\x02)q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b".", "repeats its values too often"),
        # To hash such a tuple as a dict key, Python itself would visit all values, which no signal can interrupt.
        (b"\x80\x02})\x85Ns.", "keys that are not strings"),
        # All of these numbers have the same hash, so a dict of n of them needs n * n comparisons.
        (pickle.dumps({number * (2**61 - 1): 0 for number in range(9)}, protocol=2), "keys that are not strings"),
        (b"\x80\x02}(", "damaged pickle"),
        (b"\x80\x02a.", "damaged pickle"),
        (b"\x80\x02]]}u.", "damaged pickle"),
        (pickle.dumps([1]) + pickle.dumps([2]), "trailing bytes after the end"),
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


def test_shared_values_of_a_pickle_are_returned_at_each_use() -> None:
    frame = {"name": "step", "filename": "/home/me/train.py", "line": 31}
    value = {"entries": [{"frames": [frame, frame]} for _ in range(2000)]}
    assert load_plain(pickle.dumps(value, protocol=2)) == value


def test_a_long_text_that_is_shared_is_cut(tmp_path: Path) -> None:
    text = "n" * 100_000
    found = dumped(*(entry(number, profiling_name=text, process_group=(text, text)) for number in range(50)))
    found["pg_config"] = {str(key): {"name": text, "desc": [text] * 20, "ranks": "[0]"} for key in range(50)}
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps(found, protocol=2))

    reading = dump.read(str(path))

    assert len(reading.flight) == 50
    assert max(len(one.name) + len(one.group) + len(one.description) for one in reading.flight) == 3000
    assert [(len(group.group), len(group.description)) for group in reading.flight_groups] == [(1000, 1000)]


def test_the_size_of_all_groups_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "_MOST_MEMBERS", 10)
    found = dumped(entry(1))
    found["pg_config"] = {str(key): {"name": str(key), "ranks": [0, 1, 2, 3]} for key in range(4)}
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps(found, protocol=2))

    reading = dump.read(str(path))

    assert [group.members for group in reading.flight_groups] == [(0, 1, 2, 3)] * 2 + [()] * 2
    assert [(issue.kind, issue.count) for issue in reading.issues] == [("members", 2)]


def test_entries_and_texts_that_a_pickle_shares_are_bounded_by_its_size(tmp_path: Path) -> None:
    text = "n" * 1001
    shared = {"profiling_name": text, "process_group": (text, text), "collective_seq_id": 1}
    path = tmp_path / "nccl_trace_rank_0"
    found = dumped(*[shared] * 20_000)
    facts = {"desc": "d" * 1001, "ranks": "[0]"}
    found["pg_config"] = {str(key): facts for key in range(20_000)}

    def size(content: dict[str, Any]) -> int:
        """Return the number of characters read for each byte of the file."""
        path.write_bytes(pickle.dumps(content, protocol=2))
        reading = dump.read(str(path))
        characters = sum(len(one.group) + len(one.name) + len(one.description) for one in reading.flight)
        assert len(reading.flight) < 20_000
        assert "were left out: the file repeats its contents too often" in reading.issues[-1].message
        characters += sum(len(one.group) + len(one.description) for one in reading.flight_groups)
        return characters // path.stat().st_size

    assert size(found) < 20
    del found["pg_config"]
    assert size(found) < 40


def test_members_that_groups_share_are_bounded_by_the_size_of_the_file(tmp_path: Path) -> None:
    found, ranks = dumped(entry(1)), str(list(range(1000)))
    found["pg_config"] = {str(key): {"name": str(key), "ranks": ranks} for key in range(3000)}
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps(found, protocol=2))

    reading = dump.read(str(path))

    members = sum(len(group.members) for group in reading.flight_groups)
    assert 199_000 < members < 200_000 + path.stat().st_size
    assert [issue.kind for issue in reading.issues] == ["members"]


def test_a_trace_of_a_large_cluster_is_not_taken_for_a_dump(tmp_path: Path) -> None:
    """The trace begins with a list of process groups that looks like the one in a dump and is longer than the first
    block.
    """
    groups = [{"pg_name": str(number), "pg_desc": "x" * 40, "ranks": list(range(64))} for number in range(2000)]
    events = [{"ph": "X", "name": "aten::mm", "cat": "cpu_op", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]
    info = {"rank": 5, "world_size": 64, "pg_config": groups}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}))
    assert path.stat().st_size > 512 << 10

    report = analyze([str(path)], [])

    assert not dump.begins_dump(path.read_bytes())
    assert [(read.kind, read.rank, read.events) for read in report.inputs] == [("trace", 5, 1)]
    assert identify(str(path)).world_size == 64


@pytest.mark.parametrize("name", ["PT_HPU_LAZY_MODE=1", "CPU fallback aten::nonzero", "[INFO][SYN_API] x"])
def test_json_is_never_taken_for_a_log(name: str) -> None:
    lines = json.dumps([{"odd": 1, "name": name}], indent=1).split("\n")
    assert sniff(lines, "a.log") == UNKNOWN


def test_odd_entries_are_counted_and_left_out(tmp_path: Path) -> None:
    odd = [5, {}, entry(1, process_group=[]), entry(2, collective_seq_id="x"), entry(3, profiling_name=None)]
    path = tmp_path / "dump_3"
    path.write_text(json.dumps(dumped(*odd, entry(4, input_sizes=[[2**80]], frames="?", time_created_ns=True))))
    reading = dump.read(str(path))
    assert [issue.count for issue in reading.issues] == [5]
    assert [(one.rank, one.number, one.sizes, one.place, one.created_ns) for one in reading.flight] == [
        (3, 4, None, None, None)
    ]


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("pg_status", {"0": {"last_enqueued_collective": "6"}}),
        ("pg_status", {"0": {"last_completed_collective": 5.0}}),
        ("pg_status", {"0": 5}),
        ("pg_config", ["0"]),
        ("pg_config", {"0": {"name": "0", "ranks": "[0, 1"}}),
        ("pg_config", {"0": {"name": "0", "ranks": [0, "1"]}}),
    ],
)
def test_damaged_groups_are_reported(part: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "dump_3"
    path.write_text(json.dumps({**dumped(entry(4)), part: value}))
    assert [issue.count for issue in dump.read(str(path)).issues] == [1]


@pytest.mark.parametrize("status", [{}, {"0": {"last_enqueued_collective": None}}])
def test_groups_without_a_status_are_not_damaged(status: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "dump_3"
    path.write_text(json.dumps({**dumped(entry(4), ranks=""), "pg_status": status}))
    assert dump.read(str(path)).issues == ()


def test_a_deeply_nested_name_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_0.json"
    text = json.dumps(dumped(entry(1, profiling_name="?"), entry(2)))
    path.write_text(text.replace('"?"', "[" * 1000 + "]" * 1000))
    assert [one.number for one in dump.read(str(path)).flight] == [2]


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
        "which ranks 0, 1 wait; the last call before it: nccl:all_reduce at train.py:31 step; no dump from rank 3"
    )
    assert report.verdict.headline == f"{first.message[:1].upper()}{first.message[1:]}."


def write_hang(folder: Path, form: str = "pickle", last: int = 11) -> None:
    """Write dumps in which ranks 0 and 1 wait in collective 12, and rank 2, whose dump has this ``form``, has called
    ``last`` collectives."""
    folder.mkdir()
    for rank, calls in ((0, 12), (1, 12), (2, last)):
        content = dumped(*(entry(number, "started" if number == 12 else "completed") for number in range(9, calls + 1)))
        place = folder / f"nccl_trace_rank_{rank}"
        if form == "json" and rank == 2:
            place.with_suffix(".json").write_text(json.dumps(content))
        else:
            place.write_bytes(pickle.dumps(content, protocol=2))


def test_a_rank_has_one_dump(tmp_path: Path) -> None:
    write_hang(tmp_path / "old")
    write_hang(tmp_path / "new", last=12)
    with pytest.raises(InputError, match=r"new/nccl_trace_rank_2 and .*old/nccl_trace_rank_2 are both dumps of rank 2"):
        analyze([str(tmp_path)])
    # Copies do not count.
    report = analyze([str(tmp_path / "old"), f"{tmp_path}/old/../old/nccl_trace_rank_2"])
    assert [(read.rank, read.kind) for read in report.inputs] == [(rank, "flight_record") for rank in range(3)]


@pytest.mark.parametrize("trace", [None, "rank0.json"])
def test_dumps_in_both_forms_belong_together(trace: str | None, tmp_path: Path) -> None:
    write_hang(tmp_path / "run", "json")
    if trace:
        (tmp_path / "run" / trace).write_text('{"traceEvents": [{"ph": "X", "name": "f", "ts": 1, "dur": 2}]}')
    found = findings_of([str(tmp_path / "run")], HANGS)
    assert [one.evidence["late_ranks"] for one in found] == [[2]]


def test_the_first_of_groups_that_wait_for_each_other_is_named(tmp_path: Path) -> None:
    # Rank 3 made no further call. Rank 2 waits for rank 3 in their tp group, so it has not reached dp0, where rank 0
    # waits.
    called = {0: {"tp0": 5, "dp0": 3}, 1: {"tp0": 5, "dp1": 3}, 2: {"tp1": 5, "dp0": 2}, 3: {"tp1": 4, "dp1": 2}}
    members = {"tp0": [0, 1], "tp1": [2, 3], "dp0": [0, 2], "dp1": [1, 3]}
    for rank, groups in called.items():
        entries = [
            entry(number, "completed" if number <= done(name) else "started", process_group=(name, name[:2]), pg_id=at)
            for at, (name, last) in enumerate(groups.items())
            for number in range(1, last + 1)
        ]
        content = dumped(*entries)
        content["pg_config"] = {name: {"name": name, "desc": name[:2], "ranks": str(members[name])} for name in groups}
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(content, protocol=2))
    found = findings_of([str(tmp_path)], HANGS)
    assert [(one.subject, one.evidence["late_ranks"]) for one in found] == [
        ("group dp (dp1)", [3]),
        ("group tp (tp1)", [3]),
    ]
    assert [one.message.rpartition("; ")[2] for one in found] == [
        "rank 0 is held up in turn",
        "rank 0 is held up in turn",
    ]


def done(group: str) -> int:
    """Return the number of the last collective of ``group`` that every rank has called and that has therefore ended."""
    return {"tp0": 5, "tp1": 4, "dp0": 2, "dp1": 2}[group]


def hangs(tmp_path: Path, groups: dict[str, list[int]], called: dict[int, list[dict[str, Any]]]) -> list[str]:
    """Return the messages about a run with these ``groups``. ``called`` maps each rank to the entries in its dump."""
    for rank, entries in called.items():
        content = dumped(*entries)
        content["pg_config"] = {name: {"name": name, "desc": name, "ranks": str(of)} for name, of in groups.items()}
        content["pg_status"] = {}
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(content, protocol=2))
    return [found.message for found in findings_of([str(tmp_path)], HANGS)]


def sent(name: str, number: int, state: str = "started", **more: Any) -> dict[str, Any]:
    """Return a send or a receive in the group pp."""
    pp = {"process_group": ("pp", "pp"), "is_p2p": True, "collective_seq_id": 0, "p2p_seq_id": number}
    return entry(number, state, profiling_name=f"nccl:{name}", **{**pp, **more})


def test_in_a_pipeline_the_stage_that_waits_nowhere_is_named(tmp_path: Path) -> None:
    # The group consists of ranks 4 to 7. Rank 5 has not sent, rank 6 waits for rank 5, rank 7 waits for rank 6, and
    # rank 4 is blocked in its send to rank 5.
    called = {
        4: [sent("send 0->1", 1, "completed"), sent("send 0->1", 2)],
        5: [sent("recv 1<-0", 1, "completed")],
        6: [sent("recv 2<-1", 1)],
        7: [sent("recv 3<-2", 1, "scheduled")],
    }
    assert hangs(tmp_path, {"pp": [4, 5, 6, 7]}, called) == [
        "group pp, ranks 4, 5: rank 5 has not called the receive that rank 4 waits for in nccl:send 0->1 of [3, "
        "4] at train.py:31 "
        "step; rank 7 is held up in turn",
        "group pp, ranks 5, 6: rank 5 has not called the send that rank 6 waits for in nccl:recv 2<-1 of [3, 4] "
        "at train.py:31 step; "
        "rank 7 is held up in turn",
    ]


def test_in_a_pipeline_a_peer_without_a_dump_is_named(tmp_path: Path) -> None:
    called = {2: [sent("recv 2<-1", 1)], 0: [sent("send 0->1", 1, retired=True)]}
    assert hangs(tmp_path, {"pp": [0, 1, 2]}, called) == [
        "group pp, ranks 0, 1: rank 0 waits in nccl:send 0->1 of [3, 4] at train.py:31 step; it ended with an "
        "error on rank 0; no dump from rank 1: it may have died",
        "group pp, ranks 1, 2: rank 2 waits in nccl:recv 2<-1 of [3, 4] at train.py:31 step; no dump from rank 1: "
        "it may have died",
    ]


def test_a_send_that_both_have_called_does_not_end(tmp_path: Path) -> None:
    called = {0: [sent("send 0->1", 3)], 1: [sent("recv 1<-0", 8)]}
    assert hangs(tmp_path, {"pp": [0, 1]}, called) == [
        "group pp, ranks 0, 1: ranks 0, 1 have both called nccl:send 0->1 of [3, 4] at train.py:31 step, but it "
        "has not completed"
    ]


def test_sends_of_a_batch_have_the_state_of_the_batch(tmp_path: Path) -> None:
    """Batches share the numbering of collectives. Here, rank 0 has two batches and rank 1 has one, so their numbers
    cannot be compared.
    """

    def batch(number: int, state: str, *names: str) -> list[dict[str, Any]]:
        shared = {"collective_seq_id": number, "process_group": ("pp", "pp")}
        closing = entry(number, state, profiling_name="nccl:coalesced", p2p_seq_id=number, **shared)
        return [*(sent(name, number, "scheduled", **shared) for name in names), closing]

    first, second = batch(1, "completed", "send 0->1", "recv 0<-1"), batch(2, "started", "recv 0<-1")
    assert hangs(tmp_path, {"pp": [0, 1]}, {0: first + second, 1: batch(1, "completed", "send 1->0", "recv 1<-0")}) == [
        "group pp, ranks 0, 1: rank 1 has not called the send that rank 0 waits for in nccl:recv 0<-1 of [3, 4] "
        "at train.py:31 step"
    ]


def test_a_rank_without_a_dump_is_not_said_to_have_no_trace(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dumped(entry(4)), protocol=2))
    report = analyze([str(tmp_path)], [rule for rule in shipped_rules() if rule.code == "TRC107"])
    assert [(found.code, found.evidence["ranks"]) for found in report.findings] == [("TRC107", "2")]
    assert "trace" not in report.verdict.caveats


def test_an_error_and_a_missing_dump_suggest_that_the_rank_died(tmp_path: Path) -> None:
    # NCCL also counts work that ended with an error as completed.
    failed = [entry(1), entry(2, "started", retired=True)]
    for rank in (0, 1):
        content = dumped(*failed, last_completed_collective=2, last_enqueued_collective=2)
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(content, protocol=2))
    found = findings_of([str(tmp_path)], HANGS)
    assert [one.message for one in found] == [
        "group default_pg (0): ranks 0, 1 have called collective 2 (nccl:all_reduce of [3, 4] at train.py:31 "
        "step), but it "
        "has not completed; it ended with an error on ranks 0, 1; no dump from rank 2: it may have died"
    ]


def test_a_rank_without_a_dump_is_the_start_of_the_chain_of_waits(tmp_path: Path) -> None:
    # Rank 1 waits in tp for rank 2, which has no dump. So rank 1 has not reached dp, where rank 0 waits.
    def at(group: str, number: int, state: str) -> dict[str, Any]:
        return entry(number, state, process_group=(group, group))

    called = {0: [at("dp", 1, "started")], 1: [at("tp", 1, "started")]}
    assert hangs(tmp_path, {"dp": [0, 1], "tp": [1, 2]}, called) == [
        "group tp: rank 1 has called collective 1 (nccl:all_reduce of [3, 4] at train.py:31 step), but it has "
        "not completed; no "
        "dump from rank 2: it may have died; rank 0 is held up in turn"
    ]


def test_only_ranks_behind_that_wait_nowhere_are_named(tmp_path: Path) -> None:
    # Ranks 1 and 2 are behind in dp. Rank 1 waits for rank 2 in tp.
    def at(group: str, number: int, state: str) -> dict[str, Any]:
        return entry(number, state, process_group=(group, group))

    called = {0: [at("dp", 1, "started")], 1: [at("tp", 1, "started")], 2: []}
    found = hangs(tmp_path, {"dp": [0, 1, 2], "tp": [1, 2]}, called)
    assert [message.partition(" has not")[0] for message in found] == ["group dp: rank 2", "group tp: rank 2"]


def test_a_dump_that_could_run_code_is_an_unreadable_input(tmp_path: Path) -> None:
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(dumped(entry(1, "started")), protocol=2))
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps({"pg_config": _Harm()}, protocol=2))
    report = analyze([str(tmp_path)])
    content = next(finding for finding in report.findings if finding.code == "TRC000")
    assert "refused: the pickle contains more than plain values (GLOBAL)" in content.message
    assert not Path("harmed").exists()
