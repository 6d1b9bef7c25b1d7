"""From a folder with several runs, the newest complete run is read, or the run that the user requested."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders import gaudi_profiler
from events import document, kernel, x

from perftool.errors import InputError
from perftool.readers.discover import find_inputs
from perftool.readers.files import duplicates, runs

T = 1_729_284_340_533_778_439
MINUTE = 60_000_000_000


def save(folder: Path, name: str, rank: int | None = None, ranks: int = 2) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {} if rank is None else {"distributedInfo": {"backend": "hccl", "rank": rank, "world_size": ranks}}
    path.write_text(json.dumps({**metadata, "traceEvents": [{"ph": "X"}]}))


def handler(worker: str, at: int) -> str:
    return f"{worker}.{at}.pt.trace.json"


@pytest.mark.parametrize(
    ("files", "newest"),
    [
        pytest.param(
            {handler("host_10", T): None, handler("host_11", T + 5 * MINUTE): None},
            [handler("host_11", T + 5 * MINUTE)],
            id="two runs of one process",
        ),
        pytest.param(
            {handler("host_10", T): None, handler("host_10", T + 1): None},
            [handler("host_10", T + 1)],
            id="one process that recorded twice",
        ),
        pytest.param(
            {handler("host_10", T): None, handler("host_11", T + 1): None},
            [handler("host_11", T + 1)],
            id="two processes at the same time, of which nothing says that they are ranks",
        ),
        pytest.param(
            {handler("host_10", T): 0, handler("host_11", T + 9 * MINUTE): 1},
            [handler("host_10", T), handler("host_11", T + 9 * MINUTE)],
            id="two ranks, however far apart they saved",
        ),
        pytest.param(
            {handler("a_1", T): 0, handler("a_2", T + 1): 1, handler("b_1", T + 2): 1, handler("b_2", T + 3): 0},
            [handler("b_1", T + 2), handler("b_2", T + 3)],
            id="two runs of two ranks",
        ),
        pytest.param(
            {handler("host_10", T // 1_000_000): None, handler("host_11", T - 5 * MINUTE): None},
            [handler("host_10", T // 1_000_000)],
            id="a time in ms, one in ns",
        ),
        pytest.param(
            {"plugins/profile/2026_01_02_10_00_00/host.pt.trace.json": None,
             "plugins/profile/2026_01_02_09_00_00/host.pt.trace.json": None},
            ["plugins/profile/2026_01_02_10_00_00/host.pt.trace.json"],
            id="run folders of TensorBoard",
        ),
        pytest.param(
            {f"train/{handler('host_10', T)}": None, f"generate/{handler('host_10', T + 1)}": None},
            [f"generate/{handler('host_10', T + 1)}"],
            id="named folders of hpu_profile",
        ),
        pytest.param(
            {f"rank0/{handler('host_10', T)}": None, f"rank1/{handler('host_11', T + 9 * MINUTE)}": None},
            [f"rank0/{handler('host_10', T)}", f"rank1/{handler('host_11', T + 9 * MINUTE)}"],
            id="a folder for each rank",
        ),
        pytest.param(
            {handler("fit-[Strategy]SingleDeviceStrategy.training_step", T): None,
             handler("fit-[Strategy]SingleDeviceStrategy.validation_step", T + 1): None},
            [handler("fit-[Strategy]SingleDeviceStrategy.training_step", T)],
            id="training before the validation of Lightning",
        ),
        pytest.param(
            {handler("rank0", T): 0, handler("host_13181.async_llm", T + 1): None},
            [handler("rank0", T)],
            id="the worker of vLLM before its API server",
        ),
        pytest.param(
            {handler("fit-perf-0-[Strategy]DDPStrategy.training_step", T): None,
             handler("fit-perf-1-[Strategy]DDPStrategy.training_step", T + 2 * MINUTE): None},
            [handler("fit-perf-0-[Strategy]DDPStrategy.training_step", T),
             handler("fit-perf-1-[Strategy]DDPStrategy.training_step", T + 2 * MINUTE)],
            id="the ranks of Lightning",
        ),
    ],
)  # fmt: skip
def test_the_newest_run_is_used(tmp_path: Path, files: dict[str, int | None], newest: list[str]) -> None:
    for name, rank in files.items():
        save(tmp_path, name, rank)

    found = find_inputs([str(tmp_path)])

    assert sorted(Path(path).relative_to(tmp_path).as_posix() for path in found.traces) == sorted(newest)
    assert bool(found.notes) == (len(newest) < len(files))


_FRONT, _TEST = "host_1.async_llm", "slow-0-[Strategy]DDPStrategy.test_step"


@pytest.mark.parametrize(
    ("kind", "event", "at", "doubt"),
    [
        (_FRONT, x("python", 1.7e15, 9, "python_function", pid=800), T, False),
        (_FRONT, kernel("gemm", 1.7e15, 9), T, True),
        (_FRONT, x("execute_context_0(0)_generation_8(8)", 1.7e15, 9, "user_annotation"), T, True),
        (_FRONT, x("python", 1.7e15 + 1e9, 9, "python_function", pid=800), T, True),
        (_TEST, x("aten::mm", 1.7e15 + 1e9, 9, pid=700), T + 1, False),
        (_TEST, x("aten::mm", 1.7e15, 9, pid=800), T + 1, True),
        (_TEST, x("aten::mm", 1.7e15, 9, pid=1), T + 1, False),
        (_TEST, x("aten::mm", 1.7e15 + 1e9, 9, pid=1), T + 1, True),
    ],
    ids=["front end", "device work", "iterations", "another time", "same process", "another process", "container",
         "container, another time"],
)  # fmt: skip
def test_a_name_alone_does_not_leave_out_a_recording(
    tmp_path: Path, kind: str, event: dict[str, Any], at: int, doubt: bool
) -> None:
    (tmp_path / handler("rank0", T)).write_bytes(document([x("aten::mm", 1.7e15, 9, pid=700)]))
    left_out = tmp_path / handler(kind, at)
    left_out.write_bytes(document([event]))
    assert [one.file for one in find_inputs([str(tmp_path)]).doubts] == [str(left_out)] * doubt
    newest = find_inputs([str(tmp_path)], run=runs.NEWEST)
    assert len(newest.doubts) == (doubt and at > T)


def test_a_run_with_another_number_of_ranks_is_another_run(tmp_path: Path) -> None:
    for rank in range(4):
        save(tmp_path, handler(f"a_{rank}", T + rank), rank, ranks=4)
    for rank in range(2):
        save(tmp_path, handler(f"b_{rank}", T + 10 + rank), rank, ranks=2)

    assert [Path(path).name[:3] for path in find_inputs([str(tmp_path)]).traces] == ["b_0", "b_1"]


def test_the_note_names_what_was_chosen_and_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for at in (T, T + MINUTE):
        save(tmp_path / "logs", handler("host_1", at))

    assert find_inputs(["logs"]).notes == (
        f"logs contains 2 recordings; analysing the newest: host_1.{T + MINUTE}. --run NAME picks another: host_1.{T}",
    )


def test_named_files_of_several_runs_are_refused_unless_one_is_picked(tmp_path: Path) -> None:
    for at in (T, T + MINUTE):
        save(tmp_path, handler("host_1", at))
    pattern = str(tmp_path / "*.json")

    with pytest.raises(InputError, match="these 2 traces belong to 2 runs; pick one with --run NAME"):
        find_inputs([pattern])
    assert find_inputs([pattern], run=str(T)).traces == (str(tmp_path / handler("host_1", T)),)


def test_logs_of_the_other_runs_and_json_of_other_programs_are_left_out(tmp_path: Path) -> None:
    log = "Frequency of op and op name that were executed on CPU:\n3\taten::digamma\n"
    for at, name in ((T, "old"), (T + 1, "new")):
        save(tmp_path / name, handler("host_1", at))
        (tmp_path / name / "console.log").write_text(log)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "added_tokens": []}')

    found = find_inputs([str(tmp_path)])

    assert [Path(path).parent.name for path in found.traces] == ["new"]
    assert [Path(path).parent.name for path in found.texts] == ["new"]


def test_an_excluded_run_is_not_the_newest(tmp_path: Path) -> None:
    save(tmp_path, handler("host_1", T))
    save(tmp_path, handler("host_2", T + 5 * MINUTE))

    assert [Path(path).name for path in find_inputs([str(tmp_path)], exclude=["host_2*"]).traces] == [
        handler("host_1", T)
    ]


def test_a_folder_of_profiler_csvs_gives_the_newest_of_each_card(tmp_path: Path) -> None:
    names = ("m_hw_prof_accel0_001.csv", "m_hw_prof_accel0_002.csv", "m_hw_prof_accel1_001.csv")
    for age, name in enumerate(names):
        (tmp_path / name).write_text(gaudi_profiler.as_csv())
        (tmp_path / name.replace(".csv", "_analyzed_nodes.csv")).write_text(gaudi_profiler.as_analyzed_nodes())
        os.utime(tmp_path / name, (1_700_000_000 + age,) * 2)
    (tmp_path / "numbers.csv").write_text("a,b\n1,2\n")

    found = find_inputs([str(tmp_path)])

    chosen = (names[1], names[2])
    assert found.traces == tuple(str(tmp_path / name) for name in chosen)
    assert found.texts == tuple(str(tmp_path / name.replace(".csv", "_analyzed_nodes.csv")) for name in chosen)
    assert "3 recordings of the native profiler; analysing the newest of each card" in found.notes[0]
    # The newest tables of two cards may come from different recordings, so --run does not pick among tables.
    for run in (None, "newest"):
        assert [doubt.file for doubt in find_inputs([str(tmp_path)], run=run).doubts] == [str(tmp_path / names[0])]


@pytest.mark.parametrize(
    "names",
    [
        ("rank0.csv", "rank1.csv"),
        ("rank0/prof.csv", "rank1/prof.csv"),
        ("accel0.csv", "accel1.CSV"),
        ("a.csv", "b.csv"),
    ],
    ids=["ranks", "folders of ranks", "another case", "devices in the tables"],
)
def test_profiler_csvs_of_other_ranks_and_cards_are_no_older_recordings(names: tuple[str, ...], tmp_path: Path) -> None:
    header, *rows = gaudi_profiler.as_csv().splitlines()
    for card, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        text = "\n".join([f"{header},Device", *(f"{row},hl{card}" for row in rows)])
        (tmp_path / name).write_text(text, encoding="utf-16" if card else "utf-8")
        os.utime(tmp_path / name, (1_700_000_000 + card,) * 2)
    assert find_inputs([str(tmp_path)]).traces == tuple(str(tmp_path / name) for name in names)


def test_profiler_csvs_beside_a_json_trace_are_the_same_recording(tmp_path: Path) -> None:
    (tmp_path / "profile_1.csv").write_text(gaudi_profiler.as_csv())
    (tmp_path / "profile_1.json").write_text(gaudi_profiler.as_native_json())
    found = find_inputs([str(tmp_path)])
    assert found.traces == (str(tmp_path / "profile_1.json"),)
    table = tmp_path / "profile_1.csv"
    assert found.notes == (f"{table} is a profiler table next to a trace and was not read (name it to read it)",)


def record(path: Path, events: int, minute: int = 0, process: int = 4000, name: str = "aten::mm", **info: int) -> str:
    """Write a trace of ``events`` events, a second apart, from a program that began recording in minute ``minute``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    at = T // 1000 + minute * 60_000_000
    metadata = {"distributedInfo": info} if info else {}
    path.write_bytes(document([x(name, at + 1e6 * event, 5, pid=process) for event in range(events)], **metadata))
    return str(path)


@pytest.mark.parametrize(
    "names",
    [("trace_5.json", "trace_10.json", "trace_12.json"), tuple(handler("host_4000", T + at) for at in range(3))],
    ids=["export_chrome_trace", "the handler of TensorBoard"],
)
def test_the_tail_of_a_schedule_without_repeat_is_not_the_recording(tmp_path: Path, names: tuple[str, ...]) -> None:
    traces = [
        record(tmp_path / name, events, minute)
        for minute, (name, events) in enumerate(zip(names, (90, 88, 30), strict=True))
    ]

    found = find_inputs([str(tmp_path)])

    assert found.traces == (traces[1],)
    assert "contains 3 recordings; analysing the newest complete one" in found.notes[0]
    assert "(only part of a recording: " in found.notes[0]
    tail = Path(traces[2]).name.partition(".pt")[0].partition(".json")[0]
    assert find_inputs([str(tmp_path)], run=tail).traces == (traces[2],)


def test_tails_of_named_ranks_are_set_aside(tmp_path: Path) -> None:
    whole, tails = (
        [record(tmp_path / f"{cycle}-rank{rank}.json", events, minute, 4000 + rank, rank=rank, world_size=2)
         for rank in range(2)]
        for minute, (cycle, events) in enumerate({"whole": 90, "tail": 30}.items())
    )  # fmt: skip

    found = find_inputs([*tails, *whole])

    assert found.traces == tuple(whole)
    assert [(one.path, one.why) for one in found.set_aside] == [(tail, "part of a recording") for tail in tails]


def test_two_recordings_of_one_process_in_separate_folders_are_complete(tmp_path: Path) -> None:
    record(tmp_path / "train" / handler("host_1", T), 90)
    generate = record(tmp_path / "generate" / handler("host_1", T + 1), 30)

    assert find_inputs([str(tmp_path)]).traces == (generate,)


def test_a_run_that_broke_off_at_once_is_not_the_newest_complete_one(tmp_path: Path) -> None:
    whole = record(tmp_path / "2026-01-31_10-00-00" / "rank0.1.json", 90, rank=0, world_size=1)
    record(tmp_path / "2026-01-31_10-01-00" / "rank0.2.json", 3, 1, 5000, rank=0, world_size=1)

    found = find_inputs([str(tmp_path)])

    assert found.traces == (whole,)
    assert (
        "analysing the newest complete one: 2026-01-31_10-00-00. --run NAME picks another: 2026-01-31_10-01-00 (only "
        in (found.notes[0])
    )


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        pytest.param("first", "2024-10-18_14-15-40", id="without a date, and in Los Angeles"),
        pytest.param("2024-10-18_22-45-40", "2024-10-18_21-15-40", id="in Berlin, and in UTC"),
    ],
)
def test_the_start_that_a_trace_states_decides_before_the_date_of_its_folder(
    tmp_path: Path, older: str, newer: str
) -> None:
    record(tmp_path / older / "rank0.json", 9, 0, 4000, rank=0, world_size=1)
    newest = record(tmp_path / newer / "rank0.json", 9, 30, 5000, rank=0, world_size=1)

    assert find_inputs([str(tmp_path)], run="newest").traces == (newest,)


def test_a_run_that_lacks_ranks_is_not_the_newest_complete_one(tmp_path: Path) -> None:
    whole = [record(tmp_path / f"a/rank{rank}.json", 9, 0, 4000 + rank, rank=rank, world_size=2) for rank in range(2)]
    record(tmp_path / "b/rank0.json", 9, 60, 5000, rank=0, world_size=2)

    found = find_inputs([str(tmp_path)])

    assert found.traces == tuple(whole)
    assert (
        "analysing the newest complete one: a (2 ranks). --run NAME picks another: b (1 of 2 ranks)" in found.notes[0]
    )


def test_two_single_process_runs_are_not_ranks_however_close_in_time(tmp_path: Path) -> None:
    for pid in (4000, 4100):
        record(tmp_path / handler(f"host_{pid}", T + pid), 9, 0, pid, rank=0, world_size=1)
        record(tmp_path / f"plain{pid}.json", 9, 0, pid + 1)

    assert len(find_inputs([str(tmp_path)]).traces) == 1


@pytest.mark.parametrize(
    ("name", "minute", "process", "ranks"),
    [("nccl:all_reduce", 0, 4001, 2), ("aten::mm", 0, 4001, 1), ("nccl:all_reduce", 1, 4001, 1),
     ("nccl:all_reduce", 0, 4000, 1)],
    ids=["the same collective", "no collective", "another minute", "the same process"],
)  # fmt: skip
def test_traces_without_ranks_are_one_run_if_they_share_collectives(
    tmp_path: Path, name: str, minute: int, process: int, ranks: int
) -> None:
    record(tmp_path / "a.json", 9, 0, 4000, name)
    record(tmp_path / "b.json", 9, minute, process, name)

    assert len(find_inputs([str(tmp_path)]).traces) == ranks


def test_a_run_is_picked_by_its_name_or_a_part_of_it(tmp_path: Path) -> None:
    traces = {
        day: record(tmp_path / f"2026-01-{day}_10-00-00" / "rank0.json", 9, day, rank=0, world_size=1)
        for day in (29, 31)
    }

    for name in ("2026-01-29_10-00-00", "01-29", traces[29]):
        assert find_inputs([str(tmp_path)], run=name).traces == (traces[29],)
    with pytest.raises(
        InputError, match="--run 2026-01: matches several runs; the runs are 2026-01-31_10-00-00, 2026-01-29"
    ):
        find_inputs([str(tmp_path)], run="2026-01")
    with pytest.raises(InputError, match="--run 2025: matches no run here; the runs are 2026-01-31_10-00-00"):
        find_inputs([str(tmp_path)], run="2025")


def test_a_run_is_picked_by_the_name_that_its_report_shows(tmp_path: Path) -> None:
    # 10:00 and 11:00 UTC on 31 January 2026.
    files = [tmp_path / f"vm_7.{1769853600 + hour * 3600}123456789.pt.trace.json" for hour in (0, 1)]
    traces = [record(file, 9, minute, rank=0, world_size=1) for minute, file in enumerate(files)]

    for name in ("vm_7.2026-01-31_10-00-00.pt.trace.json", "2026-01-31_10"):
        assert find_inputs([str(tmp_path)], run=name).traces == (traces[0],)


@pytest.mark.parametrize("metadata", [{"rank": 0, "world_size": 8}, {"rank": 0, "world_size": 1}, {}], ids=str)
def test_many_traces_of_one_rank_take_linear_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metadata: dict[str, int]
) -> None:
    monkeypatch.setattr(runs, "_MOST_GROWING", 8)
    compared: list[str] = []
    for owner, name in ((runs.Run, "is_contradicted_by"), (duplicates._Contents, "same")):
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, do=original: (compared.append(""), do(*given))[1])
    for number in range(100):
        text = {"distributedInfo": metadata, "traceEvents": [{"ph": "X", "name": f"{number:03}"}]}
        (tmp_path / f"t{number}.json").write_text(json.dumps(text))
    assert len(find_inputs([str(tmp_path)]).traces) == 1
    # Comparing all pairs twice would take 2 x 4,950 comparisons.
    assert len(compared) <= 2 * 8 * 100


def test_each_trace_names_the_last_one_that_replaces_it(tmp_path: Path) -> None:
    for number in range(5):
        text = document(
            [x(f"op{number}", 1.7e15 + 6e7 * number, 5, pid=4242)], distributedInfo={"rank": 0, "world_size": 1}
        )
        (tmp_path / f"t{number}.json").write_bytes(text)
    found = find_inputs([str(tmp_path)])
    assert found.traces == (str(tmp_path / "t4.json"),)
    assert {one.instead for one in found.set_aside} == {str(tmp_path / "t4.json")}
    assert len(found.set_aside) == 4


def test_the_name_of_a_run_is_one_line(tmp_path: Path) -> None:
    for name in ("a", "b\nAll checks passed\n"):
        save(tmp_path / name, handler("host_1", T))
    found = find_inputs([str(tmp_path)])
    assert "\n" not in found.notes[0]
    assert find_inputs([str(tmp_path)], run="b?All checks passed?").traces
